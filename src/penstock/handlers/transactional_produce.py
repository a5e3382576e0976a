"""Transactional batches of a Produce request: which may be appended, which are refused, which have to wait.

Called by handlers.produce, for requests that name a transactional id. Old clients add a partition to their transaction
before they write to it; those of version 12 leave it to us (KIP-890). Either way nothing is appended unless the
coordinator knows of it, but for what continues a transaction that the partition's log has seen begin. A coordinator
here is asked in the turn that writes; one elsewhere, or one that has to write first, is waited for.
"""

from collections.abc import Mapping
from typing import NamedTuple

from penstock.errors import ErrorCode, PenstockError
from penstock.handlers.context import HandlerContext
from penstock.handlers.inquiries import Coordinator, TransactionalProducer
from penstock.handlers.verification import (
    ASK_AGAIN,
    Answered,
    ask,
    code_now,
    is_outdated,
    known_to_old_clients,
    refusals,
)
from penstock.model import INTERNAL_TOPICS, TopicPartition
from penstock.records.batch import HEADER_BYTES, MAGIC, BatchHeader, read_header
from penstock.replication.partition import Partition
from penstock.wire.produce import ProduceRequest

ABORTABLE_FROM = 11  # clients know TRANSACTION_ABORTABLE
ADDS_FROM = 12  # clients leave it to the partition's leader to add it to the transaction

# What passes, in words that clients older than this check retry without looking for another leader.
_PASSING = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.OPERATION_NOT_ATTEMPTED,  # it was asked of a partition, too, that the coordinator has yet to hear of
    }
)


class Refused(PenstockError):
    """A batch that its transaction does not cover."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class AskFirst(NamedTuple):
    """Before anything is appended, the coordinator has to say that these are in the transaction, or to add them."""

    coordinator: Coordinator
    producer: TransactionalProducer
    partitions: tuple[Partition, ...]
    adds: bool


def verify(
    context: HandlerContext, version: int, produce: ProduceRequest, answered: Answered | None = None
) -> Mapping[TopicPartition, Refused] | AskFirst:
    """What may not be appended in this turn. `answered`: what the coordinator said, once it was asked."""
    assert produce.transactional_id is not None
    named: list[TopicPartition] = []
    producers: set[tuple[int, int]] = set()
    unseen: dict[TopicPartition, Partition] = {}  # each once, though a partition may be named twice
    late: dict[TopicPartition, Refused] = {}
    for name, topic_id, partitions in produce.topics:
        replicas = context.replicas
        topic = replicas.topics.get(name) if name is not None else None
        if topic_id is not None:
            topic = replicas.topics_by_id.get(topic_id)
        if topic is None or topic.name in INTERNAL_TOPICS:
            continue
        for index, records in partitions:
            at = TopicPartition(topic.name, index)
            named.append(at)
            header = _transactional_header(records)
            if header is None:
                continue
            producer_id, producer_epoch = producer = header.producer_id, header.producer_epoch
            producers.add(producer)
            partition = topic.partitions.get(index)
            # A partition that is not here is refused where it is looked for to append.
            if at in unseen or partition is None or partition.log.has_open_transaction(producer_id, producer_epoch):
                continue
            unseen[at] = partition
            if version >= ADDS_FROM and header.base_sequence != 0 and partition.log.producers.get(producer_id) is None:
                # Every transaction has an epoch of its own, hence begins with sequence 0: something before is missing.
                late[at] = Refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"{at}: the start of the epoch is missing")
    if len(producers) > 1:
        why = "batches of several producers in one transaction"
        return {at: Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, why) for at in named}
    if not unseen:
        return {}
    (identity,) = producers
    producer = TransactionalProducer(produce.transactional_id, *identity)
    if answered is None:
        coordinator = context.inquiries.find(producer.transactional_id)
        if coordinator is None:
            codes = dict.fromkeys(unseen, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif (codes := _refused_here(context, coordinator, producer, unseen)) is None or (
            codes and version >= ADDS_FROM
        ):
            return AskFirst(coordinator, producer, tuple(unseen.values()), adds=version >= ADDS_FROM)
    else:
        codes = {at: code_now(answered, partition, producer.producer_id) for at, partition in unseen.items()}
    return late | {at: _refused(code, at, version) for at, code in codes.items() if code is not ErrorCode.NONE}


async def ask_first(context: HandlerContext, wanted: AskFirst) -> Answered:
    """A client that hangs up meanwhile gives up its batches; what the coordinator has begun to write goes on."""
    coordinator, producer, partitions, adds = wanted
    return await ask(context, coordinator, producer, partitions, adds=adds)


def _refused_here(
    context: HandlerContext,
    coordinator: Coordinator,
    producer: TransactionalProducer,
    unseen: Mapping[TopicPartition, Partition],
) -> dict[TopicPartition, ErrorCode] | None:
    """What the coordinator, if it is here, says at once; None if it is elsewhere."""
    if not context.inquiries.is_here(coordinator):
        return None
    outdated = [at for at, each in unseen.items() if is_outdated(coordinator, each, producer.producer_id)]
    return refusals(context, producer, unseen.keys()) | dict.fromkeys(outdated, ASK_AGAIN)


def _transactional_header(records: memoryview | None) -> BatchHeader | None:
    """Of a batch in a transaction. What is no batch at all is for whoever appends to judge."""
    if records is None or len(records) < HEADER_BYTES:
        return None
    header = read_header(records)
    if header.magic != MAGIC or not header.is_transactional or header.producer_id < 0:
        return None
    return header


def _refused(code: ErrorCode, at: TopicPartition, version: int) -> Refused:
    said = known_to_old_clients(code, knows_abortable=version >= ABORTABLE_FROM)
    # Common between two transactions: new clients know it, and retry.
    is_passing = code in _PASSING or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_FROM)
    if is_passing:
        said = ErrorCode.NOT_ENOUGH_REPLICAS
    return Refused(said, f"{at} is not in an open transaction of this producer: {code.name}")
