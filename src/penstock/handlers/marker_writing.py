"""Transaction markers written to the partitions this broker leads.

Called by handlers.marker_sending and by handlers.transactions for WriteTxnMarkers.
Invariants:
- Markers for the partitions of `__consumer_offsets` go through the group coordinator, which learns from them that
  pending offsets have become committed, or will never be.
- A partition's code is NONE only once its marker is committed.
- What takes longer than COMMIT_TIMEOUT_S is REQUEST_TIMED_OUT: written, and to be asked for again. A second marker
  finds nothing open and does no harm; to wait on would keep those of other partitions from being heard of.
"""

import asyncio
from collections.abc import Awaitable, Sequence

from penstock.clock import Clock
from penstock.errors import ErrorCode, PenstockError
from penstock.groups.coordinator import GroupCoordinator
from penstock.model import GROUP_OFFSETS_TOPIC, TopicPartition
from penstock.replication.replicas import Replicas
from penstock.transactions.markers import MarkerToWrite

ACKS_ALL = -1
COMMIT_TIMEOUT_S = 4.0

# Whoever asks for a marker looks for the partition's leader, and has never heard of the group coordinator.
_LEADER_CODES = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}


class MarkerWriter:
    def __init__(self, replicas: Replicas, groups: GroupCoordinator, clock: Clock) -> None:
        self._replicas = replicas
        self._groups = groups
        self._clock = clock

    async def write(self, markers: Sequence[MarkerToWrite]) -> dict[TopicPartition, ErrorCode]:
        """The outcome for each partition. A partition may be named once: the next marker of it has the next call."""
        codes: dict[TopicPartition, ErrorCode] = {}
        waits: dict[asyncio.Future[None], TopicPartition] = {}
        # All are appended before the first is waited for, so that those of one log directory share a sync.
        for wanted in markers:
            try:
                codes[wanted.partition] = ErrorCode.NONE
                wait = self._append(wanted)
                if wait is not None:
                    waits[asyncio.ensure_future(wait)] = wanted.partition
            except PenstockError as error:
                codes[wanted.partition] = _code(error)
        if waits:
            await self._wait(waits, codes)
        return codes

    async def _wait(
        self, waits: dict[asyncio.Future[None], TopicPartition], codes: dict[TopicPartition, ErrorCode]
    ) -> None:
        try:
            done, _ = await asyncio.wait(waits, timeout=COMMIT_TIMEOUT_S)
            for wait, at in waits.items():
                if wait not in done:
                    codes[at] = ErrorCode.REQUEST_TIMED_OUT
                elif wait.cancelled():
                    codes[at] = ErrorCode.NOT_LEADER_OR_FOLLOWER
                elif isinstance(error := wait.exception(), PenstockError):
                    codes[at] = _code(error)
                elif error is not None:
                    raise error
        finally:
            for wait in waits:
                wait.cancel()

    def _append(self, wanted: MarkerToWrite) -> Awaitable[None] | None:
        """Write the marker now; what has to be waited for until it is durable."""
        at, marker, producer_id, producer_epoch, is_version_2 = wanted
        partition = self._replicas.find(at.topic, at.partition)
        if at.topic == GROUP_OFFSETS_TOPIC:
            groups = self._groups
            return groups.write_marker(at.partition, marker, producer_id, producer_epoch, is_version_2=is_version_2)
        now_ms = self._clock.now_ms()
        appended = partition.append_marker(marker, producer_id, producer_epoch, now_ms, is_version_2=is_version_2)
        durable = partition.safe(appended, ACKS_ALL)
        # Shared with everyone who waits for that sync: when our coordinator resigns, they must not be cancelled too.
        return None if durable is None else asyncio.shield(durable)


def _code(error: PenstockError) -> ErrorCode:
    return _LEADER_CODES.get(error.code, error.code)
