"""What a client takes for final is told by a leader that has made sure it leads.

Called by handlers.produce for a batch whose sequence or epoch does not fit, and by handlers.fetch for an offset that is
not there. A leader that was cut off goes by a log that ended when it was deposed: there a batch that the next leader
waits for looks out of order, and what a consumer has read from that one looks as if it never was. A producer that hears
so begins a new epoch and sends again what was acknowledged elsewhere, and it is stored twice; a consumer begins anew at
one end of the log. So the store is asked first; who cannot ask says that it may not lead, and the client looks for who
does.
"""

import asyncio

from penstock.cluster.store import Ambiguous, Unavailable
from penstock.errors import ErrorCode, NotLeaderOrFollower, PenstockError
from penstock.handlers.context import HandlerContext
from penstock.replication.partition import Partition

FINAL = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
ASKING_MAX = 32  # a client that sends nonsense must not keep the store busy
ASKING_S_MAX = 2.0


class FinalRefusals:
    def __init__(self) -> None:
        self._asking: set[asyncio.Task[None]] = set()

    def make_sure(self, context: HandlerContext, partition: Partition, refusal: PenstockError) -> asyncio.Future[None]:
        """Fails with `refusal` if this broker leads, else with NotLeaderOrFollower."""
        if len(self._asking) >= ASKING_MAX:
            unsure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            unsure.set_exception(_unsure(partition))
            unsure.exception()  # as below
            return unsure
        asking = asyncio.ensure_future(_ask(context, partition, partition.leader_epoch, refusal))
        self._asking.add(asking)
        asking.add_done_callback(self._answered)
        return asking

    def _answered(self, asking: asyncio.Task[None]) -> None:
        self._asking.discard(asking)
        if not asking.cancelled():
            asking.exception()  # a client that waited no longer is not there to hear it


async def _ask(context: HandlerContext, partition: Partition, leader_epoch: int, refusal: PenstockError) -> None:
    changes = context.partition_changes
    try:
        async with asyncio.timeout(ASKING_S_MAX):
            leads = await changes.still_leads(partition.topic_id, partition.at.partition, leader_epoch)
    except (Unavailable, Ambiguous, TimeoutError):
        leads = False
    raise refusal if leads else _unsure(partition)


def _unsure(partition: Partition) -> NotLeaderOrFollower:
    return NotLeaderOrFollower(f"{partition.at}: this broker could not make sure that it still leads")
