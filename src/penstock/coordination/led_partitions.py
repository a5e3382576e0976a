"""The partitions of one internal topic that this broker leads, and what is kept in each.

Called by groups.coordinator and transactions.coordinator, which the broker tells what it leads.
Invariants:
- Of each partition at most one leadership is here, the latest: to begin another ends the one before it, also while that
  is still being read, and what comes of the old one afterwards changes nothing.
- Whoever asks is served, told to wait while the partition is loaded, or told that it is not here; never left waiting.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import lru_cache
from struct import iter_unpack
from typing import Any, Generic, TypeVar

from penstock.clock import Clock
from penstock.coordination.machine import Ledger, StateMachine
from penstock.coordination.shard import Shard, ShardState
from penstock.errors import CoordinatorLoadInProgress, NotCoordinator, PenstockError

R = TypeVar("R")
M = TypeVar("M", bound=StateMachine[Any])  # of records R, which Python's types cannot say


class Led(Generic[R, M]):
    """One partition of the topic, in one epoch of its leadership."""

    __slots__ = ("_tasks", "leader_epoch", "machine", "partition", "shard")

    def __init__(self, machine: M, shard: Shard[R]) -> None:
        self.machine = machine
        self.shard = shard
        self.partition = shard.ledger.topic_partition.partition
        self.leader_epoch = shard.ledger.leader_epoch
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_active(self) -> bool:
        return self.shard.state is ShardState.ACTIVE

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it beside all else, for as long as this is led."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def end(self, error: PenstockError) -> None:
        self.shard.close(error)
        for task in list(self._tasks):
            task.cancel()


class LedPartitions(Generic[R, M]):
    def __init__(
        self, clock: Clock, on_end: Callable[[Led[R, M], PenstockError], None], reply_timeout_ms: int = 5_000
    ) -> None:
        """`on_end` hears of every leadership that ends, once its shard is closed."""
        self._clock = clock
        self._on_end = on_end
        self._reply_timeout_ms = reply_timeout_ms
        self._led: dict[int, Led[R, M]] = {}

    def begin(self, ledger: Ledger, machine: M) -> Led[R, M]:
        """Lead a partition from now on; `load` is to follow."""
        self.resign(ledger.topic_partition.partition)
        led: Led[R, M] = Led(
            machine, Shard(ledger, machine, self._clock, lambda error: self._end(led, error), self._reply_timeout_ms)
        )
        self._led[led.partition] = led
        return led

    async def load(self, led: Led[R, M]) -> int | None:
        """The number of records read; None if this leadership ended meanwhile. Raises what the log says of itself."""
        try:
            count = await led.shard.load()
        except BaseException as error:
            self._end(led, NotCoordinator(f"{led.shard.ledger.topic_partition} could not be loaded: {error!r}"))
            raise
        return count if led.is_active else None

    def resign(self, partition: int) -> None:
        """It is led elsewhere now, or by us in a new epoch: forget it, and say so to all who wait."""
        led = self._led.get(partition)
        if led is not None:
            self._end(led, NotCoordinator(f"partition {partition} is no longer led here"))

    def close(self) -> None:
        for partition in list(self._led):
            self.resign(partition)

    def at(self, partition: int, what: str) -> Led[R, M]:
        """Raises NotCoordinator and CoordinatorLoadInProgress, which say it of `what`."""
        led = self._led.get(partition)
        if led is None or led.shard.state is ShardState.CLOSED:
            raise NotCoordinator(f"{what} is not kept here")
        if led.shard.state is ShardState.LOADING:
            raise CoordinatorLoadInProgress(f"{what} is still being loaded")
        return led

    def __iter__(self) -> Iterator[Led[R, M]]:
        """Also those that are being loaded."""
        return iter(list(self._led.values()))

    def active(self) -> Iterator[Led[R, M]]:
        return (led for led in self if led.is_active)

    def check_loaded(self, what: str) -> None:
        """Raises CoordinatorLoadInProgress while some of it is not known yet."""
        if any(led.shard.state is ShardState.LOADING for led in self._led.values()):
            raise CoordinatorLoadInProgress(f"some {what} are still being loaded")

    def _end(self, led: Led[R, M], error: PenstockError) -> None:
        if self._led.get(led.partition) is not led:
            return  # ended before
        del self._led[led.partition]
        led.end(error)
        self._on_end(led, error)


@lru_cache(maxsize=16_384)
def partition_of(name: str, partition_count: int) -> int:
    """As Kafka does it, so that a group or transactional id is found where a Kafka tool looks for it: Java's hash."""
    hashed = 0
    for (unit,) in iter_unpack(">H", name.encode("utf-16-be", "surrogatepass")):
        hashed = (31 * hashed + unit) & 0xFFFF_FFFF
    signed = hashed - 2**32 if hashed >= 2**31 else hashed
    # The one number whose absolute value does not fit an int; Java's Math.abs would leave it negative.
    return 0 if signed == -(2**31) else abs(signed) % partition_count
