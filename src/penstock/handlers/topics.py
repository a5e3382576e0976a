"""Topics made, grown and removed: CreateTopics, DeleteTopics, CreatePartitions.

Called by server.dispatch; the controller decides and writes. The error of one topic leaves the others alone. A client's
time-out is the longest it waits, not a promise that nothing happens afterwards.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from penstock.cluster.image import Topic
from penstock.cluster.topic_plan import NewTopic
from penstock.config import BrokerConfig, describe_topic
from penstock.errors import (
    InvalidReplicaAssignment,
    InvalidRequest,
    InvalidTopicName,
    PenstockError,
    RequestTimedOut,
    ThrottlingQuotaExceeded,
    TopicDeletionDisabled,
)
from penstock.handlers.context import HandlerContext, Request
from penstock.model import INTERNAL_TOPICS, NO_TOPIC_ID
from penstock.wire.apis import ApiKey

Body = Mapping[str, Any]

# The broker's own topics are made by the broker, with the settings its coordinators rely on. Kafka lets clients make
# them, and whoever does so by mistake loses committed offsets to retention. The last has no log here but is as taken.
RESERVED_TOPICS = INTERNAL_TOPICS | {"__cluster_metadata"}
BROKERS_CHOICE = -1
DELETION_DISABLED_FROM = 3
CONFIGS_FROM = 5
# From these versions on a client knows THROTTLING_QUOTA_EXCEEDED and tries again later (KIP-599).
STRICT_FROM = {ApiKey.CREATE_TOPICS: 6, ApiKey.DELETE_TOPICS: 5, ApiKey.CREATE_PARTITIONS: 3}


class _Allowance:
    """How many partitions a client may still create or delete, by its controller_mutation_rate (KIP-599)."""

    def __init__(self, context: HandlerContext, request: Request) -> None:
        self._context = context
        self._request = request
        self._quota = context.quotas.controller
        self._is_strict = request.version >= STRICT_FROM[request.api_key]
        self._throttle_ms = 0

    def spend(self, partitions: int) -> None:
        """Count a change, or raise: old clients, which do not know the error, are slowed down instead."""
        if self._quota is None:
            return
        who = self._request.principal, self._request.client_id
        now = self._context.clock.monotonic()
        if self._is_strict:
            wait_ms = self._quota.exceeded_ms(*who, now)
            if wait_ms > 0:
                self._throttle_ms = max(self._throttle_ms, wait_ms)
                raise ThrottlingQuotaExceeded(f"the quota for changes of topics is used up for {wait_ms} ms")
            self._quota.record(*who, partitions, now)
        else:
            self._throttle_ms = max(self._throttle_ms, self._quota.record(*who, partitions, now))

    def throttle(self) -> int:
        self._request.connection.throttle(self._throttle_ms, "controller", self._context.metrics)
        return self._throttle_ms


async def handle_create_topics(context: HandlerContext, request: Request) -> Body:
    body = request.body
    validate_only: bool = body.validate_only
    allowance = _Allowance(context, request)
    times = Counter(topic.name for topic in body.topics)
    results: dict[str, Topic | PenstockError] = {}
    wanted: list[NewTopic] = []
    for topic in body.topics:
        try:
            new = _new_topic(context.config, topic, times[topic.name])
            if not validate_only and new.name not in context.image.topics:
                allowance.spend(new.partitions if new.assignment is None else len(new.assignment))
            results[new.name] = RequestTimedOut(f"topic {new.name!r} was not created in time; it may still be")
            wanted.append(new)
        except PenstockError as error:
            results[topic.name] = error
    if wanted:
        try:
            async with asyncio.timeout(body.timeout.total_seconds()):
                made = await context.controller.create_topics(wanted, validate_only=validate_only)
            results.update((new.name, result) for new, result in zip(wanted, made, strict=True))
        except TimeoutError:
            pass
        except PenstockError as error:
            results.update((new.name, error) for new in wanted)
    described: dict[tuple[tuple[str, str], ...], list[Body]] = {}
    answers: list[Body] = []
    for name, result in results.items():
        if isinstance(result, PenstockError):
            answers.append({"name": name, **_error(result), "configs": []})
            continue
        configs: list[Body] = []
        if request.version >= CONFIGS_FROM:
            # Of many topics most have the same settings, and describing them takes longer than making them.
            key = tuple(sorted(result.configs.items()))
            configs = described.get(key) or described.setdefault(key, _describe(context.config, result.configs))
        answers.append({
            "name": name,
            "topic_id": NO_TOPIC_ID if validate_only else result.id,
            "num_partitions": len(result.partitions),
            "replication_factor": len(result.partitions[0].replicas),
            "configs": configs,
        })  # fmt: skip
    return {"topics": answers, "throttle_time": allowance.throttle()}


def _new_topic(config: BrokerConfig, asked: Any, times: int) -> NewTopic:
    if times > 1:
        raise InvalidRequest(f"topic {asked.name!r} is named twice in one request")
    _refuse_reserved(asked.name)
    configs = {entry.name: entry.value for entry in asked.configs}
    if asked.assignments:
        assignment = {entry.partition_index: tuple(entry.broker_ids) for entry in asked.assignments}
        if len(assignment) != len(asked.assignments):
            raise InvalidReplicaAssignment(f"a partition of topic {asked.name!r} is assigned twice")
        return NewTopic(asked.name, asked.num_partitions, asked.replication_factor, configs, assignment)
    return NewTopic(
        asked.name,
        config.num_partitions if asked.num_partitions == BROKERS_CHOICE else asked.num_partitions,
        config.default_replication_factor if asked.replication_factor == BROKERS_CHOICE else asked.replication_factor,
        configs,
    )


def _describe(config: BrokerConfig, overrides: Mapping[str, str]) -> list[Body]:
    return [
        {
            "name": entry.name,
            "value": entry.value,
            "read_only": entry.read_only,
            "config_source": entry.source,
            "is_sensitive": entry.is_sensitive,
        }
        for entry in describe_topic(config, overrides)
    ]


async def handle_delete_topics(context: HandlerContext, request: Request) -> Body:
    body = request.body
    allowance = _Allowance(context, request)
    asked = _asked_for_deletion(request)
    times = Counter(asked)
    results: dict[tuple[str | None, UUID], Topic | PenstockError] = {}
    wanted: dict[tuple[str | None, UUID], str | UUID] = {}
    for name, topic_id in times:
        try:
            if not context.config.delete_topic_enable:
                raise _deletion_disabled(request.version)
            if (name is None) == (topic_id == NO_TOPIC_ID):
                raise InvalidRequest("a topic is deleted by its name or by its id: give one of them")
            if times[name, topic_id] > 1:
                raise InvalidRequest(f"topic {name or topic_id} is named twice in one request")
            image = context.image
            known = image.topics.get(name) if name is not None else image.topics_by_id.get(topic_id)
            if known is not None:
                allowance.spend(len(known.partitions))
            results[name, topic_id] = RequestTimedOut(f"topic {name or topic_id} was not deleted in time")
            wanted[name, topic_id] = name if name is not None else topic_id
        except PenstockError as error:
            results[name, topic_id] = error
    if wanted:
        try:
            async with asyncio.timeout(body.timeout.total_seconds()):
                deleted = await context.controller.delete_topics(list(wanted.values()))
            results.update(zip(wanted, deleted, strict=True))
        except TimeoutError:
            pass
        except PenstockError as error:
            results.update(dict.fromkeys(wanted, error))
    responses: list[Body] = []
    for (name, topic_id), result in results.items():
        if isinstance(result, PenstockError):
            responses.append({"name": name, "topic_id": topic_id, **_error(result)})
        else:
            responses.append({"name": result.name, "topic_id": result.id})
    return {"responses": responses, "throttle_time": allowance.throttle()}


def _asked_for_deletion(request: Request) -> list[tuple[str | None, UUID]]:
    names: Sequence[str] | None = getattr(request.body, "topic_names", None)
    if names is not None:
        return [(name, NO_TOPIC_ID) for name in names]
    return [(topic.name, topic.topic_id or NO_TOPIC_ID) for topic in request.body.topics]


def _deletion_disabled(version: int) -> PenstockError:
    message = "this broker deletes no topics: delete.topic.enable is false"
    return TopicDeletionDisabled(message) if version >= DELETION_DISABLED_FROM else InvalidRequest(message)


async def handle_create_partitions(context: HandlerContext, request: Request) -> Body:
    body = request.body
    deadline = asyncio.get_running_loop().time() + body.timeout.total_seconds()
    allowance = _Allowance(context, request)
    times = Counter(topic.name for topic in body.topics)
    results: dict[str, Body] = {}
    for topic in body.topics:
        try:
            if times[topic.name] > 1:
                raise InvalidRequest(f"topic {topic.name!r} is named twice in one request")
            _refuse_reserved(topic.name)
            known = context.image.topics.get(topic.name)
            if known is not None and topic.count > len(known.partitions) and not body.validate_only:
                allowance.spend(topic.count - len(known.partitions))
            assignment = None if topic.assignments is None else [entry.broker_ids for entry in topic.assignments]
            async with asyncio.timeout_at(deadline):
                await context.controller.create_partitions(
                    topic.name, topic.count, assignment, validate_only=body.validate_only
                )
            results[topic.name] = {"name": topic.name}
        except TimeoutError:
            late = RequestTimedOut(f"topic {topic.name!r} was not grown in time; it may still be")
            results[topic.name] = {"name": topic.name, **_error(late)}
        except PenstockError as error:
            results[topic.name] = {"name": topic.name, **_error(error)}
    return {"results": list(results.values()), "throttle_time": allowance.throttle()}


def _refuse_reserved(name: str) -> None:
    if name in RESERVED_TOPICS:
        raise InvalidTopicName(f"{name!r} is the broker's own: it is created when it is first needed")


def _error(error: PenstockError) -> dict[str, Any]:
    return {"error_code": error.code, "error_message": str(error)}
