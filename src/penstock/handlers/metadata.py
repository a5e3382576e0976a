"""Who is in the cluster and who leads what: ApiVersions, Metadata, DescribeCluster, DescribeTopicPartitions.

Called by server.dispatch. Answers come from the cluster image; only a topic that has to be created first waits.
"""

import re
from collections.abc import Awaitable, Mapping
from typing import Any
from uuid import UUID

from penstock.cluster.image import PartitionState, Topic
from penstock.cluster.topic_plan import NewTopic, check_name
from penstock.errors import ErrorCode, InvalidTopicName, PenstockError
from penstock.handlers.context import HandlerContext, Request
from penstock.model import INTERNAL_TOPICS, NO_TOPIC_ID
from penstock.wire.apis import APIS, ApiKey

Body = Mapping[str, Any]

NAME_NULLABLE_FROM = 12
AUTO_CREATED_PER_REQUEST_MAX = 100
UNKNOWN_OPERATIONS = -(2**31)  # "not asked for" in a set of authorised operations
SOFTWARE_PATTERN = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

# Everything is allowed until a listener authenticates: bits of read, write, create, delete, alter, describe,
# describe configs and alter configs; for the cluster also cluster action and idempotent write.
_TOPIC_OPERATIONS = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
_CLUSTER_OPERATIONS = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))

_API_KEYS = [{"api_key": api.key, "min_version": api.advertised_low, "max_version": api.high} for api in APIS]
_TELEMETRY = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)
_API_KEYS_WITHOUT_TELEMETRY = [row for row in _API_KEYS if row["api_key"] not in _TELEMETRY]

# What clients ask for by feature: epochs that rise with every transaction (KIP-890), and the consumer protocol.
FEATURES = {"group.version": 1, "transaction.version": 2}
FEATURES_FROM_0_SINCE = 4  # older clients cannot read a feature whose lowest version is 0
_FINALIZED = [
    {"name": name, "min_version_level": level, "max_version_level": level} for name, level in FEATURES.items()
]
_SUPPORTED = [{"name": name, "min_version": 0, "max_version": level} for name, level in FEATURES.items()]


def handle_api_versions(context: HandlerContext, request: Request) -> Body:
    name = getattr(request.body, "client_software_name", None)
    if name is not None:
        version: str = request.body.client_software_version
        if not (SOFTWARE_PATTERN.fullmatch(name) and SOFTWARE_PATTERN.fullmatch(version)):
            return {"error_code": ErrorCode.INVALID_REQUEST}
        request.connection.software_name, request.connection.software_version = name, version
    return {
        "api_keys": _API_KEYS if context.telemetry.is_offered else _API_KEYS_WITHOUT_TELEMETRY,
        "supported_features": _SUPPORTED if request.version >= FEATURES_FROM_0_SINCE else (),
        "finalized_features": _FINALIZED,
        "finalized_features_epoch": 0,
    }


def handle_describe_cluster(context: HandlerContext, request: Request) -> Body:
    if getattr(request.body, "endpoint_type", 1) != 1:
        return {"error_code": ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, "error_message": "only brokers can be described"}
    wants_operations = request.body.include_cluster_authorized_operations
    return {
        "cluster_id": context.cluster_id,
        "controller_id": context.image.controller_id,
        "brokers": [
            {"broker_id": broker.id, "host": broker.endpoint.host, "port": broker.endpoint.port, "rack": broker.rack}
            for broker in context.image.brokers.values()
        ],
        "cluster_authorized_operations": _CLUSTER_OPERATIONS if wants_operations else UNKNOWN_OPERATIONS,
    }


def handle_metadata(context: HandlerContext, request: Request) -> Body | Awaitable[Body]:
    body, image = request.body, context.image
    asked = body.topics
    if asked is None or (request.version == 0 and not asked):
        return _metadata(context, request, [_topic(context, topic, request) for topic in image.topics.values()])
    answers, missing = _asked_topics(context, request)
    # Versions before 4 have no say in it: their topics are created if the broker allows it at all.
    if missing and context.config.auto_create_topics_enable and getattr(body, "allow_auto_topic_creation", True):
        return _create_first(context, request, answers, missing)
    # Answered at once, so that a client that asks much and reads little is held up by what it has not read.
    return _metadata(context, request, list(answers.values()))


async def _create_first(
    context: HandlerContext, request: Request, answers: dict[str | UUID, Body], missing: list[str]
) -> Body:
    answers.update(await _create(context, missing, request))
    return _metadata(context, request, list(answers.values()))


def _metadata(context: HandlerContext, request: Request, topics: list[Body]) -> Body:
    wants_operations = getattr(request.body, "include_cluster_authorized_operations", False)
    return {
        "brokers": [
            {"node_id": broker.id, "host": broker.endpoint.host, "port": broker.endpoint.port, "rack": broker.rack}
            for broker in context.image.brokers.values()
        ],
        "cluster_id": context.cluster_id,
        "controller_id": context.image.controller_id,
        "topics": topics,
        "cluster_authorized_operations": _CLUSTER_OPERATIONS if wants_operations else UNKNOWN_OPERATIONS,
    }


def _asked_topics(context: HandlerContext, request: Request) -> tuple[dict[str | UUID, Body], list[str]]:
    """What is known of the topics asked for, each once; and the names of those that are not there."""
    image = context.image
    answers: dict[str | UUID, Body] = {}
    missing: list[str] = []
    for asked in request.body.topics:
        topic_id: UUID | None = getattr(asked, "topic_id", None)
        name: str | None = asked.name
        # A topic named twice is described once: it may have thousands of partitions, and be named thousands of times.
        if (name if name is not None else topic_id or NO_TOPIC_ID) in answers:
            continue
        if name is None:
            answers[topic_id or NO_TOPIC_ID] = _topic_with_id(context, topic_id or NO_TOPIC_ID, request)
        elif name in image.topics:
            answers[name] = _topic(context, image.topics[name], request)
        else:
            answers[name] = _missing(name)
            missing.append(name)
    return answers, missing


async def _create(context: HandlerContext, names: list[str], request: Request) -> dict[str | UUID, Body]:
    config = context.config
    wanted: list[NewTopic] = []
    answers: dict[str | UUID, Body] = {}
    for name in names:
        if name in INTERNAL_TOPICS:
            answers[name] = _missing(name)
            continue
        if len(wanted) == AUTO_CREATED_PER_REQUEST_MAX:
            # Clients ask again; one request must not fill the metadata store by the way.
            answers[name] = {"error_code": ErrorCode.LEADER_NOT_AVAILABLE, "name": name}
            continue
        wanted.append(NewTopic(name, config.num_partitions, config.default_replication_factor))
    for new, made in zip(wanted, await context.controller.create_topics(wanted), strict=True):
        topic = context.image.topics.get(new.name)
        if topic is not None:  # made by us, or by somebody else in the meantime
            answers[new.name] = _topic(context, topic, request)
        elif isinstance(made, PenstockError):
            code = made.code
            if code is ErrorCode.TOPIC_ALREADY_EXISTS:
                code = ErrorCode.LEADER_NOT_AVAILABLE
            answers[new.name] = {"error_code": code, "name": new.name}
        else:
            answers[new.name] = {"error_code": ErrorCode.LEADER_NOT_AVAILABLE, "name": new.name}
    return answers


def _topic_with_id(context: HandlerContext, topic_id: UUID, request: Request) -> Body:
    topic = context.image.topics_by_id.get(topic_id)
    if topic is not None:
        return _topic(context, topic, request)
    name = None if request.version >= NAME_NULLABLE_FROM else ""
    return {"error_code": ErrorCode.UNKNOWN_TOPIC_ID, "topic_id": topic_id, "name": name}


def _missing(name: str) -> Body:
    try:
        check_name(name)
    except InvalidTopicName as error:
        return {"error_code": error.code, "name": name}
    return {"error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "name": name}


def _topic(context: HandlerContext, topic: Topic, request: Request) -> Body:
    wants_operations = getattr(request.body, "include_topic_authorized_operations", False)
    return {
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": topic.name in INTERNAL_TOPICS,
        "partitions": [_partition(context, index, state) for index, state in enumerate(topic.partitions)],
        "topic_authorized_operations": _TOPIC_OPERATIONS if wants_operations else UNKNOWN_OPERATIONS,
    }


def _partition(context: HandlerContext, index: int, state: PartitionState) -> Body:
    brokers = context.image.brokers
    has_leader = state.leader in brokers
    return {
        "error_code": ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
        "partition_index": index,
        "leader_id": state.leader if has_leader else -1,
        "leader_epoch": state.leader_epoch,
        "replica_nodes": state.replicas,
        "isr_nodes": state.isr,
        "offline_replicas": [replica for replica in state.replicas if replica not in brokers],
    }


def handle_describe_topic_partitions(context: HandlerContext, request: Request) -> Body:
    """Metadata in pages: topics in order of name, from the cursor on, up to so many partitions."""
    body, image = request.body, context.image
    limit = max(1, min(body.response_partition_limit, context.config.max_request_partition_size_limit))
    names = sorted({asked.name for asked in body.topics} or image.topics)
    first_name, first_index = "", 0
    if body.cursor is not None:
        first_name, first_index = body.cursor.topic_name, max(0, body.cursor.partition_index)
    topics: list[Body] = []
    for name in names:
        if name < first_name:
            continue
        topic = image.topics.get(name)
        if topic is None:
            # A topic that vanished under a cursor was not asked for by name; only the latter is an error.
            if body.topics:
                topics.append(_missing(name))
            continue
        start = first_index if name == first_name else 0
        if limit == 0:
            return _page(topics, name, start)
        page = topic.partitions[start : start + limit]
        answer = dict(_topic(context, topic, request))
        answer["partitions"] = [
            # Null would be allowed where there is nothing to say, but Java's Admin dies of it.
            {
                **_partition(context, start + offset, state),
                "eligible_leader_replicas": state.elr,
                "last_known_elr": (),
            }
            for offset, state in enumerate(page)
        ]
        answer["topic_authorized_operations"] = _TOPIC_OPERATIONS
        topics.append(answer)
        limit -= len(page)
        if start + len(page) < len(topic.partitions):
            return _page(topics, name, start + len(page))
    return {"topics": topics}


def _page(topics: list[Body], name: str, index: int) -> Body:
    return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": index}}
