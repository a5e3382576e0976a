"""One batch of a Produce request: checked and appended, or refused with what its producer is to be told.

Called by handlers.produce and handlers.one_batch; the walk goes on in replication.partition and log.partition_log.
"""

from uuid import UUID

from penstock.errors import ErrorCode, InvalidRecord, InvalidTopicName, PenstockError, UnsupportedCompressionType
from penstock.handlers.context import HandlerContext
from penstock.handlers.final_refusals import FINAL
from penstock.handlers.leader_hints import leader_hint
from penstock.handlers.produce_answers import counted_refusal, refusal
from penstock.handlers.produce_waits import Wait
from penstock.handlers.validated_produce import Admitted
from penstock.log.intake import admit
from penstock.log.partition_log import PartitionLog
from penstock.model import INTERNAL_TOPICS
from penstock.records.batch import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    read_header,
)
from penstock.records.compression import Codec
from penstock.replication.partition import ACKS_ALL
from penstock.replication.replicas import HostedTopic
from penstock.wire.produce import ProducePartitionResult

COMPRESSION_MAX = max(Codec).value
# Refused for now, and nothing was written: the client sends the batch again, to us or to who leads then.
PASSING = frozenset({ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT})
# Base offset, append time and log start, for the answer; and what the answer waits for: a sync, or that the log, which
# gathers small batches, is settled. A plain tuple, since naming its parts would cost every request more than it says.
Written = tuple[int, int, int, Wait | PartitionLog | None]


class _NoTransaction(PenstockError):
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    def __init__(self) -> None:
        super().__init__("a batch of a transaction in a request that does not say of which")


def find_topic(context: HandlerContext, name: str | None, topic_id: UUID | None) -> HostedTopic | PenstockError | None:
    """None if the topic is not here; in the cluster it may be."""
    if name is not None:
        topic = context.replicas.topics.get(name)
    else:
        assert topic_id is not None
        topic = context.replicas.topics_by_id.get(topic_id)
    if topic is not None and topic.name in INTERNAL_TOPICS:
        # Read back as the state of groups and transactions: only their coordinators write there.
        return InvalidTopicName(f"{topic.name} is written by brokers alone")
    return topic


def append_batch(
    context: HandlerContext,
    topic: HostedTopic,
    index: int,
    records: memoryview | None,
    acks: int,
    now_ms: int,
    *,
    has_transaction: bool = False,
    admitted: Admitted | None = None,
) -> Written:
    """`admitted`: the batch as it was judged before, in place of what was sent."""
    partition = context.replicas.partition_of(topic, index)
    if records is None:
        raise InvalidRecord("a partition without records")
    if acks == ACKS_ALL:
        partition.check_in_sync()
    batch, header = admit(records, topic.config, now_ms) if admitted is None else admitted
    attributes = header.attributes
    if attributes & COMPRESSION_MASK > COMPRESSION_MAX:
        raise UnsupportedCompressionType(f"compression {header.compression} is none of Kafka's")
    if attributes & TRANSACTIONAL_MASK:
        if not has_transaction:
            raise _NoTransaction
        if header.producer_id < 0:
            raise InvalidRecord("a batch of a transaction needs a producer id")
    # Not with acks=0: that a batch was not written can only be told now, by hanging up.
    appended = partition.append(batch, header, now_ms, may_gather=acks != 0)
    if not appended.is_duplicate:
        traffic = topic.traffic
        traffic.messages_in.value += header.record_count
        traffic.batches_in.value += 1
        traffic.bytes_in.value += len(batch)
    # Asked also for acks=0: flush.messages and flush.ms hold whatever the producer wants to hear.
    wait: Wait | PartitionLog | None = partition.safe(appended, acks)
    append_time = header.max_timestamp if attributes & TIMESTAMP_TYPE_MASK else -1
    log = partition.log
    if wait is None and log.gathering.batches:
        wait = log
    return appended.base_offset, append_time, log.log_start, wait


def refuse(
    context: HandlerContext,
    topic: HostedTopic | PenstockError | None,
    key: str | UUID,
    index: int,
    records: memoryview | None,
    error: PenstockError,
) -> tuple[ProducePartitionResult, Wait | None]:
    """What the producer is told, and what has to be asked first where it would take that for final."""
    partition = topic.partitions.get(index) if isinstance(topic, HostedTopic) else None
    if partition is not None and error.code in PASSING and records is not None and len(records) >= HEADER_BYTES:
        header = read_header(records)
        if header.producer_id >= 0 and header.base_sequence >= 0:
            partition.note_refused(header)
    if partition is not None and partition.is_leader and error.code in FINAL:
        # Counted when it is told, if it is.
        return refusal(index, error), context.final_refusals.make_sure(context, partition, error)
    return counted_refusal(context, index, error, leader_hint(context, key, index, error)), None
