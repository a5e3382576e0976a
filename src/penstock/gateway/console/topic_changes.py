"""Changing topics and settings: made, grown, emptied, deleted.

Called through the console's routes. Bounds are checked here; what a topic may be, its brokers decide.
"""

import contextlib
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from penstock.admin.cluster import Cluster, admin_types
from penstock.gateway.console.asking import body_of, field, refuse
from penstock.gateway.console.service import Console, value_of
from penstock.gateway.errors import HttpProblem, KafkaFailed, json_response

PARTITIONS_MAX = 10_000
REPLICAS_MAX = 100
CONFIGS_MAX = 200
CONFIG_VALUE_MAX = 10_000
KINDS = ("topic", "broker", "group")


async def change_configs(console: Console, request: Request) -> Response:
    body = await body_of(request)
    kind, name = field(body, "kind", str, "topic"), field(body, "name", str)
    pairs = _configs(body.get("set", {}))
    unset: list[Any] = field(body, "unset", list, [])
    if kind not in KINDS or not all(isinstance(one, str) for one in unset):
        raise refuse("kind is to be topic, broker or group, and unset a list of names")

    def change(cluster: Cluster) -> None:
        types = admin_types()
        put, remove = types.AlterConfigOpType.SET, types.AlterConfigOpType.DELETE
        changes = [types.ConfigEntry(key, value, incremental_operation=put) for key, value in pairs.items()]
        # librdkafka insists on a value that it does not send.
        changes += [types.ConfigEntry(key, "", incremental_operation=remove) for key in unset]
        asked = types.ConfigResource(types.ResourceType[kind.upper()], name, incremental_configs=changes)
        (future,) = cluster.ask(cluster.admin.incremental_alter_configs, [asked]).values()
        value_of(cluster, future)

    if not pairs and not unset:
        raise refuse("nothing to change")
    await console.ask(change)
    return json_response({"changed": [*pairs, *unset]})


def _configs(given: Any) -> dict[str, str]:
    if not isinstance(given, dict) or len(cast("dict[str, Any]", given)) > CONFIGS_MAX:
        raise refuse(f"settings are to be an object of at most {CONFIGS_MAX} names with values")
    pairs = cast("dict[str, Any]", given)
    for name, value in pairs.items():
        if not isinstance(value, str) or len(value) > CONFIG_VALUE_MAX:
            raise refuse(f"the value of {name[:100]} is to be a text of at most {CONFIG_VALUE_MAX} characters")
    return pairs


async def create_topic(console: Console, request: Request) -> Response:
    body = await body_of(request)
    name: str = field(body, "name", str)
    partitions: int = field(body, "partitions", int, -1)
    replication: int = field(body, "replication", int, -1)
    configs = _configs(body.get("configs", {}))
    if not -1 <= partitions <= PARTITIONS_MAX or not -1 <= replication <= REPLICAS_MAX:
        raise refuse(f"a topic has 1 to {PARTITIONS_MAX} partitions")

    def create(cluster: Cluster) -> None:
        # -1 leaves the choice to the broker.
        asked = admin_types().NewTopic(name, partitions or -1, replication or -1, config=configs)
        value_of(cluster, cluster.ask(cluster.admin.create_topics, [asked])[name])

    await console.ask(create)
    return await _changed(console, name)


async def delete_topic(console: Console, request: Request) -> Response:
    name: str = field(await body_of(request), "name", str)
    await console.ask(lambda cluster: value_of(cluster, cluster.ask(cluster.admin.delete_topics, [name])[name]))
    return await _changed(console, name)


async def add_partitions(console: Console, request: Request) -> Response:
    body = await body_of(request)
    name: str = field(body, "name", str)
    count: int = field(body, "partitions", int)
    if not 1 <= count <= PARTITIONS_MAX:
        raise refuse(f"a topic has 1 to {PARTITIONS_MAX} partitions")

    def grow(cluster: Cluster) -> None:
        asked = admin_types().NewPartitions(name, count)
        value_of(cluster, cluster.ask(cluster.admin.create_partitions, [asked])[name])

    await console.ask(grow)
    return await _changed(console, name)


async def empty_topic(console: Console, request: Request) -> Response:
    """Delete all records that are there now; offsets go on from where they are."""
    name: str = field(await body_of(request), "name", str)
    facts = await console.kafka.topic(name)
    if facts is None:
        raise HttpProblem(404, 40403, "there is no such topic; it may have been deleted")

    def cut(cluster: Cluster) -> None:
        from confluent_kafka import OFFSET_END
        from confluent_kafka import TopicPartition as Cut

        cuts = [Cut(name, one, OFFSET_END) for one in range(facts.partitions)]
        for future in cluster.ask(cluster.admin.delete_records, cuts).values():
            try:
                value_of(cluster, future)
            except KafkaFailed as failure:
                if failure.name != "POLICY_VIOLATION":
                    raise
                raise refuse("a compacted topic cannot be emptied unless its cleanup.policy has delete too") from None

    await console.ask(cut)
    return await _changed(console, name)


async def _changed(console: Console, name: str) -> Response:
    """Lists are to show what was just done; but what was done does not fail because they cannot."""
    console.kafka.forget_topic(name)
    with contextlib.suppress(KafkaFailed):
        await console.watcher.refresh()
    return json_response({"changed": [name]})
