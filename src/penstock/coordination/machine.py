"""What a coordinator is made of: a state machine, the decisions it takes, the ledger that keeps them.

Called by groups, transactions and queues, whose state machines these are, and by coordination.shard, which drives them.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from penstock.clock import Clock
from penstock.errors import ErrorCode, PenstockError
from penstock.model import TopicPartition
from penstock.records.batch import BatchHeader
from penstock.records.markers import Marker

R = TypeVar("R")


class Now(NamedTuple):
    """One reading of the clock: wall time for what is kept, steady time for deadlines, since wall time may jump."""

    wall_ms: int
    steady_ms: int


def read_clock(clock: Clock) -> Now:
    return Now(clock.now_ms(), int(clock.monotonic() * 1000))


class Ledger(Protocol):
    """One partition of an internal topic, led by this broker."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def leader_epoch(self) -> int: ...

    def append(self, batch: bytes | bytearray) -> Awaitable[int]:
        """Write the batch now; the awaitable gives its base offset once it is committed, as with acks=all.

        Raising here means that nothing was written. The awaitable raises only when the partition is lost to this
        broker (leadership gone, log offline): a slow commit is waited for, since its record may yet be committed.
        """
        ...

    def append_marker(
        self, marker: Marker, producer_id: int, producer_epoch: int, *, is_version_2: bool
    ) -> Awaitable[int]:
        """As append(): the control batch that ends what this producer has open here. Refused if it is a zombie's.

        With `is_version_2` (KIP-890) the epoch is the one after that of the producer's batches.
        """
        ...

    def read_all(self) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
        """Every batch from log start to log end."""
        ...


class Waiter(Protocol):
    """Where a reply goes: an asyncio.Future, though a state machine only carries it about."""

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, exception: PenstockError, /) -> None: ...


Reply = tuple[Waiter, Any]


@dataclass(slots=True)
class Decision(Generic[R]):
    """What a request leads to: records to append, and replies to give once they are committed."""

    records: list[R] = field(default_factory=list[R])
    replies: list[Reply] = field(default_factory=list[Reply])
    # Takes back what was done in expectation of the records, when they are refused; gives the replies that follow.
    undo: Callable[[ErrorCode], Sequence[Reply]] | None = None
    # It took earlier decisions for true whose records are not committed yet: its replies wait for those, and if they
    # are refused, so is it.
    rests_on_earlier: bool = False


class StateMachine(Protocol[R]):
    def encode(self, record: R) -> tuple[bytes, bytes | None]:
        """Key and value; a value of None is a tombstone."""
        ...

    def decode(self, key: bytes, value: bytes | None) -> R | None:
        """None for a record of a newer kind or version, which is not ours to judge. Raises MalformedFrame."""
        ...

    def apply(self, record: R, now: Now) -> Iterable[Reply]: ...

    def apply_in_transaction(self, producer_id: int, record: R, now: Now) -> Iterable[Reply]:
        """Keep the record apart until end_transaction() says whether it counts."""
        ...

    def end_transaction(self, producer_id: int, is_commit: bool, now: Now) -> Iterable[Reply]:
        """A marker was read. It may end nothing: a producer's transaction need not have reached this partition."""
        ...


def call_at(clock: Clock, deadline_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
    """The one place where a deadline on our clock becomes a timer of the loop."""
    # A loop may wake a little early by its own clock; a millisecond's floor keeps that from becoming a spin.
    return asyncio.get_running_loop().call_later(max(deadline_s - clock.monotonic(), 0.001), callback)
