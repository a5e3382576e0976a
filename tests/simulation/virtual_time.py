"""Time that passes at once, and a ledger in memory: hours of a coordinator in milliseconds, and nothing sleeps.

Called by the tests of groups and of transactions.
"""

import asyncio
import selectors
from collections.abc import AsyncIterator
from typing import Any

from penstock.errors import PenstockError
from penstock.model import TopicPartition
from penstock.records.batch import BatchHeader, read_header, stamp
from penstock.records.markers import Marker, encode_marker


class _InstantSelector(selectors.DefaultSelector):
    """Instead of waiting for time to pass, lets it have passed."""

    now = 1_000.0

    def select(self, timeout: float | None = None) -> Any:
        events = super().select(0)
        if not events:
            assert timeout is not None, "everybody waits, and nothing will ever happen"
            self.now += timeout
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.virtual = _InstantSelector()
        super().__init__(self.virtual)

    def time(self) -> float:
        return self.virtual.now

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        # A timer that fails would otherwise be a line in the log, and the test would pass.
        raise AssertionError(context) from context.get("exception")


class VirtualClock:
    wall_start_ms = 1_700_000_000_000

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def now_ms(self) -> int:
        return self.wall_start_ms + round(self.monotonic() * 1000)


class MemoryLedger:
    """A partition of an internal topic that commits in the next turn, unless it is told to hold or to refuse."""

    def __init__(self, topic: str, leader_epoch: int) -> None:
        self.topic_partition = TopicPartition(topic, 0)
        self.leader_epoch = leader_epoch
        self.batches: list[bytearray] = []
        self.held: list[asyncio.Future[int]] | None = None
        self.refusal: PenstockError | None = None
        self._next_offset = 0

    def append(self, batch: bytes | bytearray) -> asyncio.Future[int]:
        if self.refusal is not None:
            raise self.refusal
        kept = bytearray(batch)
        stamp(memoryview(kept), self._next_offset, self.leader_epoch)
        self._next_offset = read_header(kept).next_offset
        self.batches.append(kept)
        committed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if self.held is None:
            committed.set_result(read_header(kept).base_offset)
        else:
            self.held.append(committed)
        return committed

    def append_marker(
        self, marker: Marker, producer_id: int, producer_epoch: int, *, is_version_2: bool = False
    ) -> asyncio.Future[int]:
        ids = {"producer_id": producer_id, "producer_epoch": producer_epoch}
        return self.append(encode_marker(marker, offset=0, timestamp=0, **ids))

    def release(self) -> None:
        assert self.held is not None
        held, self.held = self.held, None
        for committed in held:
            committed.set_result(0)

    async def read_all(self) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
        for batch in list(self.batches):
            await asyncio.sleep(0)
            yield read_header(batch), memoryview(batch)
