"""What REST asks of a cluster: blocking questions to librdkafka's admin client, answered as plain values.

Called through Kafka.ask, in its threads. A refusal is librdkafka's KafkaException, which Kafka.ask translates.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.admin.cluster import Cluster, admin_types
from penstock.errors import ErrorCode
from penstock.gateway.errors import KafkaFailed
from penstock.model import TopicPartition
from penstock.wire.apis import ApiKey

# librdkafka gives the future of an answer a little longer than the answer itself.
_SLACK_S = 1.0

TOPIC, BROKER = "TOPIC", "BROKER"
EVERY_BROKER = ""
_BROKER_TYPE, _SET, _DELETE, _DEFAULT = 4, 0, 1, 5
_SOURCES = {
    0: "UNKNOWN", 1: "DYNAMIC_TOPIC_CONFIG", 2: "DYNAMIC_BROKER_CONFIG", 3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG", 5: "DEFAULT_CONFIG", 6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG", 8: "DYNAMIC_GROUP_CONFIG",
}  # fmt: skip


class Node(NamedTuple):
    id: int
    host: str
    port: int
    rack: str | None


class ClusterFacts(NamedTuple):
    cluster_id: str
    controller: int | None
    nodes: tuple[Node, ...]


class Partition(NamedTuple):
    id: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class Topic(NamedTuple):
    name: str
    is_internal: bool
    partitions: tuple[Partition, ...]


class Config(NamedTuple):
    name: str
    value: str | None
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    source: str
    synonyms: tuple[tuple[str, str | None, str], ...]


class GroupMember(NamedTuple):
    id: str
    client_id: str
    instance_id: str | None
    partitions: tuple[TopicPartition, ...]


class Group(NamedTuple):
    name: str
    is_simple: bool
    state: str
    assignor: str
    coordinator: int | None
    members: tuple[GroupMember, ...]


def describe_cluster(cluster: Cluster) -> ClusterFacts:
    found: Any = _answer(cluster, _ask(cluster, cluster.admin.describe_cluster))
    nodes = tuple(sorted(Node(one.id, one.host, one.port, one.rack or None) for one in found.nodes))
    controller = None if found.controller is None or found.controller.id < 0 else int(found.controller.id)
    return ClusterFacts(str(found.cluster_id), controller, nodes)


def list_topics(cluster: Cluster) -> list[Topic]:
    """All of them, by name. Without a name, so that none is made by being asked for."""
    metadata: Any = cluster.admin.list_topics(timeout=cluster.timeout_s)
    return [
        Topic(
            name,
            name.startswith("__"),
            tuple(
                Partition(one.id, one.leader if one.leader >= 0 else None, tuple(one.replicas), tuple(one.isrs))
                for one in sorted(topic.partitions.values(), key=lambda one: one.id)
            ),
        )
        for name, topic in sorted(metadata.topics.items())
    ]


def describe_topic(cluster: Cluster, name: str) -> Topic:
    from confluent_kafka import TopicCollection

    asked = _ask(cluster, cluster.admin.describe_topics, TopicCollection([name]))
    found: Any = _answer(cluster, asked[name])
    partitions = tuple(
        Partition(
            one.id,
            None if one.leader is None or one.leader.id < 0 else int(one.leader.id),
            tuple(node.id for node in one.replicas),
            tuple(node.id for node in one.isr),
        )
        for one in sorted(found.partitions, key=lambda one: one.id)
    )
    return Topic(found.name, bool(found.is_internal), partitions)


def create_topic(
    cluster: Cluster,
    name: str,
    partitions: int,
    replication_factor: int,
    assignments: Sequence[Sequence[int]] | None,
    configs: Mapping[str, str],
    validate_only: bool,
) -> None:
    """-1 for partitions or replicas lets the cluster choose; `assignments` say it all instead."""
    placed = {"replica_assignment": [list(one) for one in assignments]} if assignments else {}
    count = len(assignments) if assignments else partitions
    factor = {} if assignments else {"replication_factor": replication_factor}
    new = admin_types().NewTopic(name, num_partitions=count, config=dict(configs), **factor, **placed)
    asked = _ask(cluster, cluster.admin.create_topics, [new], validate_only=validate_only)
    _answer(cluster, asked[name])


def delete_topic(cluster: Cluster, name: str) -> None:
    _answer(cluster, _ask(cluster, cluster.admin.delete_topics, [name])[name])


def grow_topic(cluster: Cluster, name: str, partitions: int) -> None:
    asked = _ask(cluster, cluster.admin.create_partitions, [admin_types().NewPartitions(name, partitions)])
    _answer(cluster, asked[name])


def describe_configs(cluster: Cluster, kind: str, name: str) -> list[Config]:
    if kind == BROKER and name == EVERY_BROKER:
        return _describe_every_broker(cluster)
    types = admin_types()
    resource = types.ConfigResource(types.ResourceType[kind], name)
    found: Any = _answer(cluster, _ask(cluster, cluster.admin.describe_configs, [resource])[resource])
    return [_config(one) for _, one in sorted(found.items())]


def alter_configs(
    cluster: Cluster, kind: str, name: str, changes: Mapping[str, str | None], validate_only: bool = False
) -> None:
    """Only what is named changes; None goes back to the default."""
    if kind == BROKER and name == EVERY_BROKER:
        _alter_every_broker(cluster, changes, validate_only)
        return
    types = admin_types()
    put, remove = types.AlterConfigOpType.SET, types.AlterConfigOpType.DELETE
    entries = [
        # librdkafka insists on a value where it sends none.
        types.ConfigEntry(setting, value or "", incremental_operation=remove if value is None else put)
        for setting, value in changes.items()
    ]
    resource = types.ConfigResource(types.ResourceType[kind], name, incremental_configs=entries)
    asked = _ask(cluster, cluster.admin.incremental_alter_configs, [resource], validate_only=validate_only)
    _answer(cluster, asked[resource])


# librdkafka refuses the empty name that stands for all brokers, so these two go over a connection of our own.


def _describe_every_broker(cluster: Cluster) -> list[Config]:
    asked = {"resource_type": _BROKER_TYPE, "resource_name": EVERY_BROKER, "configuration_keys": None}
    body = {"resources": [asked], "include_synonyms": True}
    (result,) = _request(cluster, ApiKey.DESCRIBE_CONFIGS, body).results
    _require_done(result)
    return [
        Config(
            one.name,
            None if one.is_sensitive else one.value,
            int(one.config_source) == _DEFAULT,
            bool(one.read_only),
            bool(one.is_sensitive),
            _SOURCES.get(int(one.config_source), "UNKNOWN"),
            tuple((each.name, each.value, _SOURCES.get(int(each.source), "UNKNOWN")) for each in one.synonyms),
        )
        for one in sorted(result.configs, key=lambda one: one.name)
    ]


def _alter_every_broker(cluster: Cluster, changes: Mapping[str, str | None], validate_only: bool) -> None:
    configs = [
        {"name": name, "config_operation": _DELETE if value is None else _SET, "value": value}
        for name, value in changes.items()
    ]
    asked = {"resource_type": _BROKER_TYPE, "resource_name": EVERY_BROKER, "configs": configs}
    body = {"resources": [asked], "validate_only": validate_only}
    (result,) = _request(cluster, ApiKey.INCREMENTAL_ALTER_CONFIGS, body).responses
    _require_done(result)


def _request(cluster: Cluster, api_key: ApiKey, body: Mapping[str, Any]) -> Any:
    if not cluster.is_plaintext:
        raise KafkaFailed(-165, "_UNSUPPORTED_FEATURE", "This is served for clusters with plaintext listeners only.")
    return cluster.request(api_key, body)


def _require_done(result: Any) -> None:
    code = int(result.error_code)
    if code:
        name = ErrorCode(code).name if code in ErrorCode.__members__.values() else f"error {code}"
        raise KafkaFailed(code, name, result.error_message or name)


def find_ends(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """Where each starts and ends; raises for the first that cannot be asked."""
    from confluent_kafka import TopicPartition as Place

    wanted = sorted(set(partitions))
    if not wanted:
        return {}
    spec = admin_types().OffsetSpec
    places = [Place(one.topic, one.partition) for one in wanted]
    firsts = _ask(cluster, cluster.admin.list_offsets, {place: spec.earliest() for place in places})
    lasts = _ask(cluster, cluster.admin.list_offsets, {place: spec.latest() for place in places})
    return {
        TopicPartition(place.topic, place.partition): (
            int(_answer(cluster, firsts[place]).offset),
            int(_answer(cluster, lasts[place]).offset),
        )
        for place in places
    }


def list_groups(cluster: Cluster) -> list[str]:
    found: Any = _answer(cluster, _ask(cluster, cluster.admin.list_consumer_groups))
    if found.errors and not found.valid:
        raise found.errors[0]
    return sorted(str(one.group_id) for one in found.valid)


def describe_groups(cluster: Cluster, names: Sequence[str]) -> list[Group]:
    """Raises for the first that cannot be described; one that nobody has heard of is DEAD and has no members."""
    if not names:
        return []
    asked = _ask(cluster, cluster.admin.describe_consumer_groups, list(names))
    return [_group(_answer(cluster, asked[name])) for name in names]


def _group(found: Any) -> Group:
    members = tuple(
        GroupMember(
            one.member_id,
            one.client_id,
            one.group_instance_id or None,
            tuple(
                sorted(
                    TopicPartition(held.topic, held.partition)
                    for held in (one.assignment.topic_partitions if one.assignment is not None else ())
                )
            ),
        )
        for one in found.members
    )
    node = found.coordinator
    return Group(
        found.group_id,
        bool(found.is_simple_consumer_group),
        found.state.name,
        found.partition_assignor or "",
        None if node is None or node.id < 0 else int(node.id),
        members,
    )


def _config(entry: Any) -> Config:
    source = _SOURCES.get(int(entry.source), "UNKNOWN")
    value = None if entry.value is None or entry.is_sensitive else str(entry.value)
    synonyms = tuple(
        (str(one.name), None if one.value is None else str(one.value), _SOURCES.get(int(one.source), "UNKNOWN"))
        for one in entry.synonyms.values()
    )
    return Config(
        entry.name, value, bool(entry.is_default), bool(entry.is_read_only), bool(entry.is_sensitive), source, synonyms
    )


def _ask(cluster: Cluster, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Not Cluster.ask, which puts librdkafka's refusals into words for people: here they must keep their codes."""
    return call(*arguments, request_timeout=cluster.timeout_s, **options)


def _answer(cluster: Cluster, future: Any) -> Any:
    return future.result(cluster.timeout_s + _SLACK_S)
