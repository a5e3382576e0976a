"""Markers on their way: every partition of a prepared transaction gets one, however often it has to be tried.

Called by transactions.coordinator, with the one function that can write to partitions here and elsewhere.
Invariants:
- deliver() returns only when every partition has its marker, is gone, or has moved past this producer's epoch.
- A coordinator that was replaced delivers nothing more: its successor sends the markers.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from penstock.clock import Clock
from penstock.coordination import call_at
from penstock.errors import ErrorCode, PenstockError
from penstock.model import TopicPartition
from penstock.records.markers import ControlType, Marker
from penstock.transactions.transaction import VERSION_2, State, Transaction

log = logging.getLogger(__name__)

BACKOFF_FIRST_S = 0.02
BACKOFF_MAX_S = 1.0


class MarkerToWrite(NamedTuple):
    partition: TopicPartition
    marker: Marker
    producer_id: int
    producer_epoch: int
    # KIP-890: the epoch is above that of the batches, so that a late marker cannot end what came after its own.
    is_version_2: bool = False


# A code for each partition. UNKNOWN_TOPIC_OR_PARTITION says that there is no such partition (any more), not that it is
# led elsewhere; TRANSACTION_COORDINATOR_FENCED that a later coordinator wrote there.
WriteMarkers = Callable[[Sequence[MarkerToWrite]], Awaitable[dict[TopicPartition, ErrorCode]]]


class CoordinatorReplaced(PenstockError):
    """A later coordinator of this transactional id has written markers."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


def markers_of(transaction: Transaction, coordinator_epoch: int) -> list[MarkerToWrite]:
    assert transaction.state.is_prepared
    is_commit = transaction.state is State.PREPARE_COMMIT
    marker = Marker(ControlType.COMMIT if is_commit else ControlType.ABORT, coordinator_epoch)
    producer_id, producer_epoch = transaction.producer_id, transaction.producer_epoch
    is_version_2 = transaction.client_version == VERSION_2
    return [
        MarkerToWrite(at, marker, producer_id, producer_epoch, is_version_2) for at in sorted(transaction.partitions)
    ]


async def deliver(markers: Sequence[MarkerToWrite], write: WriteMarkers, clock: Clock) -> None:
    """Raises CoordinatorReplaced."""
    backoff = Backoff(clock)
    rest = list(markers)
    while rest:
        try:
            codes = await write(rest)
        except PenstockError as error:
            codes = {marker.partition: error.code for marker in rest}
        except Exception:
            # A bug, and readers of every one of these partitions wait for it: better tried again than never.
            log.exception("markers of producer %d could not be written", rest[0].producer_id)
            codes = {marker.partition: ErrorCode.UNKNOWN_SERVER_ERROR for marker in rest}
        rest = [marker for marker in rest if not _is_settled(marker, codes[marker.partition])]
        if rest:
            await backoff.wait()


class Backoff:
    """Waits a little longer each time."""

    __slots__ = ("_clock", "_wait_s")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wait_s = BACKOFF_FIRST_S

    async def wait(self) -> None:
        await pause(self._clock, self._wait_s)
        self._wait_s = min(self._wait_s * 2, BACKOFF_MAX_S)


async def pause(clock: Clock, seconds: float) -> None:
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = call_at(clock, clock.monotonic() + seconds, lambda: None if over.done() else over.set_result(None))
    try:
        await over
    finally:
        timer.cancel()


def _is_settled(marker: MarkerToWrite, code: ErrorCode) -> bool:
    at = marker.partition
    match code:
        case ErrorCode.NONE | ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return True
        case ErrorCode.INVALID_PRODUCER_EPOCH:
            # What may be open there is of a later epoch, and has an end of its own.
            log.error("%s is past epoch %d of producer %d already", at, marker.producer_epoch, marker.producer_id)
            return True
        case ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            raise CoordinatorReplaced(f"{at} has a marker of a later coordinator")
        case _:
            return False
