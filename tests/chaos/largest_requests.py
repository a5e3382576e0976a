"""The largest requests that are still legal, one for each array a client may fill: what would a reply cost?

Used by test_hostile_frames. Elements that repeat are cheap to send and may be dear to answer.
"""

from typing import Any
from uuid import UUID

from penstock.wire.apis import DESCRIBED_ELEMENTS_MAX, ELEMENTS_MAX, ApiKey

Body = dict[str, Any]

MANY = ELEMENTS_MAX - 10
DESCRIBED = DESCRIBED_ELEMENTS_MAX - 10
WIDE_PARTITIONS = 2000


def topic(name: str, partitions: int = 1) -> Body:
    return {"name": name, "num_partitions": partitions, "replication_factor": 1}


def metadata(*topics: Body) -> Body:
    return {"topics": list(topics) * (DESCRIBED // len(topics)), "allow_auto_topic_creation": False}


def describe_configs(broker_id: str, times: int) -> Body:
    resource = {"resource_type": 4, "resource_name": broker_id, "configuration_keys": None}
    return {"resources": [resource] * times, "include_synonyms": True, "include_documentation": True}


def session(first: int) -> Body:
    """A fetch that opens a session for topics that do not exist."""
    partitions = [{"partition": index, "fetch_offset": 0, "partition_max_bytes": 1} for index in range(9)]
    topics = [{"topic": f"no-{number}", "partitions": partitions} for number in range(first, first + MANY // 20)]
    return {"min_bytes": 0, "max_bytes": 2**31 - 1, "session_epoch": 0, "topics": topics}


def largest_requests(wide: UUID) -> list[tuple[ApiKey, int, Body]]:
    """`wide` is the id of a topic named "wide" with WIDE_PARTITIONS partitions."""
    offsets = [{"partition_index": index % WIDE_PARTITIONS, "timestamp": -1} for index in range(MANY)]
    commits = [{"partition_index": 1, "committed_offset": 1, "committed_metadata": "m" * 40}] * MANY
    config = {"name": "retention.ms", "config_operation": 0, "value": "1"}
    quota = {
        "entity": [{"entity_type": "client-id", "entity_name": "x"}],
        "ops": [{"key": "producer_byte_rate", "value": 1.0}],
    }
    key = ApiKey
    return [
        (key.METADATA, 12, metadata({"name": "wide"})),
        (key.METADATA, 12, metadata({"name": None, "topic_id": wide})),
        (key.METADATA, 12, metadata(*({"name": f"no-{n}"} for n in range(DESCRIBED)))),
        (key.METADATA, 12, metadata(*({"name": "x" * 180 + f" {n}"} for n in range(DESCRIBED)))),
        (key.DESCRIBE_TOPIC_PARTITIONS, 0, {
            "topics": [{"name": "wide"}] * DESCRIBED, "response_partition_limit": 2**31 - 1}),
        (key.CREATE_TOPICS, 7, {
            "topics": [topic(f"v-{n}") for n in range(10_000)], "timeout": 1000, "validate_only": True}),
        (key.CREATE_TOPICS, 7, {"topics": [topic("same")] * MANY, "timeout": 1000}),
        (key.CREATE_TOPICS, 7, {"topics": [topic("v", 2**31 - 1)], "timeout": 1000}),
        (key.CREATE_PARTITIONS, 3, {"topics": [{"name": "wide", "count": 2**31 - 1, "assignments": None}]}),
        (key.DELETE_TOPICS, 6, {"topics": [{"name": f"no-{n}"} for n in range(10_000)], "timeout": 1000}),
        (key.LIST_OFFSETS, 9, {"replica_id": -1, "topics": [{"name": "wide", "partitions": offsets}]}),
        (key.OFFSET_FOR_LEADER_EPOCH, 4, {
            "topics": [{"topic": "wide", "partitions": [{"partition": 1, "leader_epoch": 0}] * MANY}]}),
        (key.DELETE_RECORDS, 2, {
            "topics": [{"name": "wide", "partitions": [{"partition_index": 1, "offset": 0}] * MANY}]}),
        (key.OFFSET_COMMIT, 9, {
            "group_id": "g", "generation_id_or_member_epoch": -1, "topics": [{"name": "wide", "partitions": commits}]}),
        (key.OFFSET_FETCH, 9, {"groups": [{"group_id": "g", "topics": None}] * MANY}),
        (key.OFFSET_FETCH, 9, {
            "groups": [{"group_id": "g", "topics": [{"name": "wide", "partition_indexes": [1] * MANY}]}]}),
        (key.FIND_COORDINATOR, 4, {"coordinator_keys": ["g"] * MANY}),
        (key.DESCRIBE_GROUPS, 5, {"groups": ["g"] * DESCRIBED}),
        (key.DELETE_GROUPS, 2, {"groups_names": [f"g-{n}" for n in range(MANY)]}),
        (key.LEAVE_GROUP, 5, {"group_id": "g", "members": [{"member_id": f"m-{n}"} for n in range(MANY)]}),
        (key.JOIN_GROUP, 9, {
            "group_id": "j", "session_timeout": 10_000, "protocol_type": "consumer",
            "protocols": [{"name": f"p-{n}", "metadata": b""} for n in range(MANY)]}),
        (key.SYNC_GROUP, 5, {
            "group_id": "g", "member_id": "m",
            "assignments": [{"member_id": f"m-{n}", "assignment": b""} for n in range(MANY)]}),
        (key.DESCRIBE_LOG_DIRS, 4, {"topics": [{"topic": "wide", "partitions": [1] * MANY}]}),
        (key.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [{"entity_type": "user", "match_type": 2}] * 20_000}),
        (key.ALTER_CLIENT_QUOTAS, 1, {"entries": [quota] * 10_000, "validate_only": True}),
        (key.INCREMENTAL_ALTER_CONFIGS, 1, {
            "resources": [{"resource_type": 2, "resource_name": "wide", "configs": [config] * MANY}]}),
        (key.LIST_CONFIG_RESOURCES, 1, {"resource_types": [2] * 40_000}),
        (key.LIST_GROUPS, 5, {"states_filter": ["x"] * 20_000}),
        *((key.FETCH, 12, session(number)) for number in range(0, 100_000, 10_000)),
        (key.PRODUCE, 9, {
            "acks": 1, "topic_data": [
                {"name": "wide", "partition_data": [{"index": n % 9, "records": b""} for n in range(MANY)]}]}),
    ]  # fmt: skip
