"""The APIs served: one row each, with its versions and how large a request may be.

Called by wire.frame, wire.messages, server.dispatch, the ApiVersions handler and scripts/protocol_table.py.
Invariants:
- advertised_low <= low <= high; a version outside [low, high] is answered UNSUPPORTED_VERSION.
- The largest legal request of any API but Produce grows the process by less than 64 MiB.
"""

from dataclasses import dataclass
from enum import IntEnum

KIB = 1024
MIB = 1024 * KIB

NEVER_FLEXIBLE = 2**15  # above every version a header can name

# Decoding turns bytes into objects, and the small ones grow most: a topic of three bytes becomes 100 to 250 bytes of
# Python, and text with one wide character takes four bytes for each. So two limits hold together: elements (array
# members at any depth) for the small, bytes for the long. The worst frames found at these limits, over every API and
# array, grew the process by 31 MiB for 4 MiB (LeaveGroup, 45,000 members with three short wide names each) and by
# 42 MiB for 8 MiB (JoinGroup, 49,000 protocols with wide names), the frame itself included; the rest of the 64 MiB is
# for the reply. Ten thousand topics with names of full length and three settings each are 3.5 MiB and 40,000
# elements, and pass.
ELEMENTS_MAX = 50_000
DESCRIBED_ELEMENTS_MAX = 20_000  # where each name asked for is answered by a description many times its size
WIDE_BYTES_MAX = 4 * MIB  # requests that name many topics, partitions, groups or settings
OPAQUE_BYTES_MAX = 8 * MIB  # group metadata and assignments: bytes we carry and never look into
NARROW_BYTES_MAX = 256 * KIB  # a handful of strings, of 32 KiB at most


class ApiKey(IntEnum):
    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_QUORUM = 55
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75

    @property
    def package(self) -> str:
        """The name of kio's package of this API: list_offsets."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Api:
    key: ApiKey
    name: str  # Kafka's own: ListOffsets
    low: int
    high: int
    advertised_low: int
    request_bytes_max: int | None  # None: the broker's socket.request.max.bytes
    flexible_from: int  # the first version with compact lengths and tagged fields
    request_elements_max: int = ELEMENTS_MAX  # array members at any depth; checked by whoever decodes the body

    def serves(self, version: int) -> bool:
        return self.low <= version <= self.high

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_from


def _api(key: ApiKey, low: int, high: int, bytes_max: int, flexible_from: int, elements_max: int = ELEMENTS_MAX) -> Api:
    name = "".join(word.title() for word in key.name.split("_"))
    return Api(key, name, low, high, low, bytes_max, flexible_from, elements_max)


APIS: tuple[Api, ...] = (
    # Clients read "from 0" as "knows compression": librdkafka stops compressing at anything higher (KAFKA-18659).
    Api(ApiKey.PRODUCE, "Produce", 3, 13, 0, None, 9),
    _api(ApiKey.FETCH, 4, 18, WIDE_BYTES_MAX, 12),
    _api(ApiKey.LIST_OFFSETS, 1, 11, WIDE_BYTES_MAX, 6),
    _api(ApiKey.METADATA, 0, 13, WIDE_BYTES_MAX, 9, DESCRIBED_ELEMENTS_MAX),
    _api(ApiKey.OFFSET_COMMIT, 2, 10, WIDE_BYTES_MAX, 8),
    _api(ApiKey.OFFSET_FETCH, 1, 10, WIDE_BYTES_MAX, 6),
    _api(ApiKey.FIND_COORDINATOR, 0, 6, WIDE_BYTES_MAX, 3),
    _api(ApiKey.JOIN_GROUP, 0, 9, OPAQUE_BYTES_MAX, 6),
    _api(ApiKey.HEARTBEAT, 0, 4, NARROW_BYTES_MAX, 4),
    _api(ApiKey.LEAVE_GROUP, 0, 5, WIDE_BYTES_MAX, 4),
    _api(ApiKey.SYNC_GROUP, 0, 5, OPAQUE_BYTES_MAX, 4),
    _api(ApiKey.DESCRIBE_GROUPS, 0, 6, WIDE_BYTES_MAX, 5, DESCRIBED_ELEMENTS_MAX),
    _api(ApiKey.LIST_GROUPS, 0, 5, NARROW_BYTES_MAX, 3),
    _api(ApiKey.API_VERSIONS, 0, 4, NARROW_BYTES_MAX, 3),
    _api(ApiKey.CREATE_TOPICS, 2, 7, WIDE_BYTES_MAX, 5),
    _api(ApiKey.DELETE_TOPICS, 1, 6, WIDE_BYTES_MAX, 4),
    _api(ApiKey.DELETE_RECORDS, 0, 2, WIDE_BYTES_MAX, 2),
    _api(ApiKey.INIT_PRODUCER_ID, 0, 5, NARROW_BYTES_MAX, 2),
    _api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, WIDE_BYTES_MAX, 4),
    _api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, WIDE_BYTES_MAX, 3),
    _api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, NARROW_BYTES_MAX, 3),
    _api(ApiKey.END_TXN, 0, 5, NARROW_BYTES_MAX, 3),
    _api(ApiKey.WRITE_TXN_MARKERS, 1, 2, WIDE_BYTES_MAX, 1),
    _api(ApiKey.TXN_OFFSET_COMMIT, 0, 5, WIDE_BYTES_MAX, 3),
    _api(ApiKey.DESCRIBE_CONFIGS, 1, 4, WIDE_BYTES_MAX, 4, DESCRIBED_ELEMENTS_MAX),
    _api(ApiKey.ALTER_CONFIGS, 0, 2, WIDE_BYTES_MAX, 2),
    _api(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, WIDE_BYTES_MAX, 2),
    _api(ApiKey.CREATE_PARTITIONS, 0, 3, WIDE_BYTES_MAX, 2),
    _api(ApiKey.DELETE_GROUPS, 0, 2, WIDE_BYTES_MAX, 2),
    _api(ApiKey.ELECT_LEADERS, 0, 2, WIDE_BYTES_MAX, 2),
    _api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, WIDE_BYTES_MAX, 1),
    _api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, WIDE_BYTES_MAX, 0),
    _api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, WIDE_BYTES_MAX, 0),
    _api(ApiKey.OFFSET_DELETE, 0, 0, WIDE_BYTES_MAX, NEVER_FLEXIBLE),
    _api(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, NARROW_BYTES_MAX, 1),
    _api(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, WIDE_BYTES_MAX, 1),
    _api(ApiKey.DESCRIBE_QUORUM, 0, 2, NARROW_BYTES_MAX, 0),
    _api(ApiKey.DESCRIBE_CLUSTER, 0, 2, NARROW_BYTES_MAX, 0),
    _api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, WIDE_BYTES_MAX, 0, DESCRIBED_ELEMENTS_MAX),
    _api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, WIDE_BYTES_MAX, 0, DESCRIBED_ELEMENTS_MAX),
    _api(ApiKey.LIST_TRANSACTIONS, 0, 2, NARROW_BYTES_MAX, 0),
    _api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, WIDE_BYTES_MAX, 0),
    _api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, WIDE_BYTES_MAX, 0, DESCRIBED_ELEMENTS_MAX),
    _api(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, 0, NARROW_BYTES_MAX, 0),
    # Twice what telemetry.max.bytes can be, so that who pushes too much is told so.
    _api(ApiKey.PUSH_TELEMETRY, 0, 0, OPAQUE_BYTES_MAX, 0),
    _api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, NARROW_BYTES_MAX, 0),
    _api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, WIDE_BYTES_MAX, 0, DESCRIBED_ELEMENTS_MAX),
)

BY_KEY: dict[int, Api] = {api.key.value: api for api in APIS}
