"""Whether a write belongs to an open transaction, asked of the transaction coordinator before the write (KIP-890).

Called by handlers.produce and handlers.transactions. A late write of a transaction that is over would otherwise open
it again where nobody would ever end it, and hide what comes after it from committed readers for good (TRAPS P6).
Law: what `refusals` allowed holds for the rest of this turn of the loop and no longer, so it is asked in the turn that
writes, again after every wait.
"""

from collections.abc import Collection
from typing import NamedTuple

from penstock.errors import ErrorCode, PenstockError
from penstock.handlers.context import HandlerContext
from penstock.model import TopicPartition


class TransactionalProducer(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int


def refusals(
    context: HandlerContext, producer: TransactionalProducer, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Those of the partitions that are not in an open transaction of this producer, and why."""
    if not partitions:
        return {}
    try:
        codes = context.transactions.verify_partitions(*producer, partitions)
    except PenstockError as error:
        return dict.fromkeys(partitions, error.code)
    return {at: code for at, code in codes.items() if code is not ErrorCode.NONE}


async def add(
    context: HandlerContext, producer: TransactionalProducer, partitions: Collection[TopicPartition]
) -> ErrorCode:
    """Make the partitions part of the producer's transaction, which begins with its first."""
    try:
        return await context.transactions.add_partitions(*producer, partitions)
    except PenstockError as error:
        return error.code


def known_to_old_clients(code: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    """A refusal in the words of those who write: only who asks the coordinator itself hears of a fenced producer."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code
