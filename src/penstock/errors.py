"""Expected failures: facts for the code, and the Kafka error code each becomes on the wire.

Rooms raise them; handlers turn them into the code of a partition, topic or group; server/dispatch.py alone
catches the rest. A bug is an assert, not one of these.
"""

from enum import IntEnum


class ErrorCode(IntEnum):
    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    UNKNOWN_PRODUCER_ID = 59
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    INVALID_UPDATE_VERSION = 95
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    TRANSACTION_ABORTABLE = 120
    INVALID_REGULAR_EXPRESSION = 128


class PenstockError(Exception):
    """A failure somebody planned for. `code` is what a client sees."""

    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR


class OffsetOutOfRange(PenstockError):
    code = ErrorCode.OFFSET_OUT_OF_RANGE

    def __init__(self, asked: int, start: int, end: int) -> None:
        super().__init__(f"offset {asked} is outside [{start}, {end}]")
        self.asked, self.start, self.end = asked, start, end


class CorruptMessage(PenstockError):
    code = ErrorCode.CORRUPT_MESSAGE


class InvalidRecord(PenstockError):
    code = ErrorCode.INVALID_RECORD


class InvalidTimestamp(PenstockError):
    code = ErrorCode.INVALID_TIMESTAMP


class MessageTooLarge(PenstockError):
    code = ErrorCode.MESSAGE_TOO_LARGE


class RecordListTooLarge(PenstockError):
    code = ErrorCode.RECORD_LIST_TOO_LARGE


class UnsupportedForMessageFormat(PenstockError):
    code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class UnsupportedCompressionType(PenstockError):
    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class UnknownTopicOrPartition(PenstockError):
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class UnknownTopicId(PenstockError):
    code = ErrorCode.UNKNOWN_TOPIC_ID


class NotLeaderOrFollower(PenstockError):
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class FencedLeaderEpoch(PenstockError):
    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpoch(PenstockError):
    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class OutOfOrderSequence(PenstockError):
    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def __init__(self, message: str, *, expected: int) -> None:
        super().__init__(message)
        self.expected = expected


class DuplicateSequence(PenstockError):
    code = ErrorCode.DUPLICATE_SEQUENCE_NUMBER


class InvalidProducerEpoch(PenstockError):
    code = ErrorCode.INVALID_PRODUCER_EPOCH


class StorageFailed(PenstockError):
    """A write, fsync or read failed; the log it hit is offline until an operator acts (never retried)."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class StorageUnavailable(StorageFailed):
    """The file system refused what opening a log needs (no space, too many files): the log may well be whole."""


class InvalidRequest(PenstockError):
    code = ErrorCode.INVALID_REQUEST


class InvalidConfig(PenstockError):
    code = ErrorCode.INVALID_CONFIG


class InvalidTopicName(PenstockError):
    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class TopicAlreadyExists(PenstockError):
    code = ErrorCode.TOPIC_ALREADY_EXISTS


class InvalidPartitions(PenstockError):
    code = ErrorCode.INVALID_PARTITIONS


class InvalidReplicationFactor(PenstockError):
    code = ErrorCode.INVALID_REPLICATION_FACTOR


class InvalidReplicaAssignment(PenstockError):
    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT


class MalformedFrame(PenstockError):
    """Bytes that are no Kafka request: the connection that sent them is closed."""

    code = ErrorCode.INVALID_REQUEST


class NotController(PenstockError):
    code = ErrorCode.NOT_CONTROLLER


class PolicyViolation(PenstockError):
    code = ErrorCode.POLICY_VIOLATION


class CoordinatorLoadInProgress(PenstockError):
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class CoordinatorNotAvailable(PenstockError):
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class NotCoordinator(PenstockError):
    code = ErrorCode.NOT_COORDINATOR


class InvalidGroupId(PenstockError):
    code = ErrorCode.INVALID_GROUP_ID


class GroupIdNotFound(PenstockError):
    code = ErrorCode.GROUP_ID_NOT_FOUND


class GroupMaxSizeReached(PenstockError):
    code = ErrorCode.GROUP_MAX_SIZE_REACHED


class UnknownMemberId(PenstockError):
    code = ErrorCode.UNKNOWN_MEMBER_ID


class FencedInstanceId(PenstockError):
    code = ErrorCode.FENCED_INSTANCE_ID


class UnreleasedInstanceId(PenstockError):
    code = ErrorCode.UNRELEASED_INSTANCE_ID


class FencedMemberEpoch(PenstockError):
    code = ErrorCode.FENCED_MEMBER_EPOCH


class UnsupportedAssignor(PenstockError):
    code = ErrorCode.UNSUPPORTED_ASSIGNOR


class InconsistentGroupProtocol(PenstockError):
    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class InvalidRegularExpression(PenstockError):
    code = ErrorCode.INVALID_REGULAR_EXPRESSION


class ApiNotServed(PenstockError):
    """The broker we ask does not know the request, in no version that we know."""

    code = ErrorCode.UNSUPPORTED_VERSION


class RequestTimedOut(PenstockError):
    """The time the client gave is up; what it asked for may still happen."""

    code = ErrorCode.REQUEST_TIMED_OUT


class ThrottlingQuotaExceeded(PenstockError):
    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class TopicDeletionDisabled(PenstockError):
    code = ErrorCode.TOPIC_DELETION_DISABLED


class UnsupportedVersion(PenstockError):
    """The request is whole, but asks for something its version, or this broker, has no word for."""

    code = ErrorCode.UNSUPPORTED_VERSION


class InvalidTxnState(PenstockError):
    code = ErrorCode.INVALID_TXN_STATE


class TransactionalIdNotFound(PenstockError):
    code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


class TransactionCoordinatorFenced(PenstockError):
    """A marker of a coordinator that has been replaced since."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class NotEnoughReplicas(PenstockError):
    code = ErrorCode.NOT_ENOUGH_REPLICAS


class PeerUnreachable(PenstockError):
    """Another broker gave no answer; whether it did what it was asked is not known."""

    code = ErrorCode.NETWORK_EXCEPTION

    def __init__(self, node_id: int, endpoint: object, why: str) -> None:
        super().__init__(f"broker {node_id} at {endpoint}: {why}")
        self.node_id, self.endpoint = node_id, endpoint


class NotEnoughReplicasAfterAppend(PenstockError):
    """Written, but too few replicas are in sync for it to count: the outcome is unknown."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class OffsetNotAvailable(PenstockError):
    """A new leader does not know yet how far the partition is committed."""

    code = ErrorCode.OFFSET_NOT_AVAILABLE


class RegistrationLost(PenstockError):
    """The cluster has taken this broker for gone, so it may change nothing until it has joined again."""

    # The one code on which every admin client looks for another broker and tries again.
    code = ErrorCode.NOT_CONTROLLER


class IneligibleReplica(PenstockError):
    """A broker that is gone, stopping or in another life than the one that caught up: it cannot be in sync."""

    code = ErrorCode.INELIGIBLE_REPLICA

    def __init__(self, node_id: int) -> None:
        super().__init__(f"broker {node_id} is not the one that caught up")
        self.node_id = node_id


class ElectionNotNeeded(PenstockError):
    code = ErrorCode.ELECTION_NOT_NEEDED


class PreferredLeaderNotAvailable(PenstockError):
    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


class EligibleLeadersNotAvailable(PenstockError):
    code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


class NoReassignmentInProgress(PenstockError):
    code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
