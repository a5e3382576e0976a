"""Whether a write belongs to an open transaction, asked of the transaction coordinator before the write (KIP-890).

Called by handlers.transactional_produce and handlers.transactions. A late write of a transaction that is over would
otherwise open it again where nobody would ever end it, and hide what comes after it from committed readers for good
(TRAPS P6).
Laws:
- What a coordinator here allows holds for the rest of this turn of the loop and no longer.
- What had to be waited for holds as long as its guard does: since the question was asked, the partition got no marker
  of that producer and is led in the same epoch. A transaction that ended meanwhile has left a marker, or will: that one
  then ends what is written now.
- A coordinator whose successor has written markers here is not believed.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from penstock.errors import ErrorCode, PenstockError
from penstock.handlers.context import HandlerContext
from penstock.handlers.inquiries import Coordinator, TransactionalProducer
from penstock.model import TopicPartition
from penstock.replication.partition import Partition

# Not refused, only not known: whoever asked comes again. Every client of a coordinator takes it so.
ASK_AGAIN = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class Guard(NamedTuple):
    """What may not change in a partition between a question and the write that its answer allows."""

    leader_epoch: int
    last_marker: int  # offset of the producer's last one


class Answered(NamedTuple):
    """What a coordinator, here or elsewhere, said of these partitions, and what they were when it was asked."""

    coordinator: Coordinator
    codes: Mapping[TopicPartition, ErrorCode]
    guards: Mapping[TopicPartition, Guard]


def guard_of(partition: Partition, producer_id: int) -> Guard:
    return Guard(partition.leader_epoch, partition.log.producers.last_marker(producer_id))


def is_outdated(coordinator: Coordinator, partition: Partition, producer_id: int) -> bool:
    """Whether a later coordinator of the producer has written a marker here."""
    producer = partition.log.producers.get(producer_id)
    return producer is not None and producer.coordinator_epoch > coordinator.epoch


def refusals(
    context: HandlerContext, producer: TransactionalProducer, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Those of the partitions that are in no open transaction of this producer, and why, by the coordinator here."""
    if not partitions:
        return {}
    try:
        codes = context.transactions.verify_partitions(*producer, partitions)
    except PenstockError as error:
        return dict.fromkeys(partitions, error.code)
    return {at: code for at, code in codes.items() if code is not ErrorCode.NONE}


async def add(
    context: HandlerContext,
    producer: TransactionalProducer,
    partitions: Collection[TopicPartition],
    connection: int | None = None,
) -> ErrorCode:
    """Make the partitions part of the producer's transaction, which begins with its first. The coordinator is here."""
    try:
        return await context.transactions.add_partitions(*producer, partitions, connection)
    except PenstockError as error:
        return error.code


async def ask(
    context: HandlerContext,
    coordinator: Coordinator,
    producer: TransactionalProducer,
    partitions: Collection[Partition],
    *,
    adds: bool,
) -> Answered:
    """Whether these are in the producer's open transaction, made so first if it `adds`; wherever the coordinator is."""
    guards = {each.at: guard_of(each, producer.producer_id) for each in partitions}
    codes = await context.inquiries.ask(coordinator, producer, guards.keys(), adds=adds)
    return Answered(coordinator, codes, guards)


def code_now(answered: Answered, partition: Partition, producer_id: int) -> ErrorCode:
    """What the answer is worth in this turn of the loop."""
    at = partition.at
    code = answered.codes.get(at, ASK_AGAIN)
    if code is not ErrorCode.NONE:
        return code
    is_guarded = answered.guards[at] == guard_of(partition, producer_id)
    if not is_guarded or is_outdated(answered.coordinator, partition, producer_id):
        return ASK_AGAIN
    return ErrorCode.NONE


def known_to_old_clients(code: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    """A refusal in the words of those who write: only who asks the coordinator itself hears of a fenced producer."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code
