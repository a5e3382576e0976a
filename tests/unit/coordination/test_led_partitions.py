"""What a coordinator leads: taken, lost, and taken again in a later epoch, also in the middle of a load."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.unit.coordination.test_shard import Counting, MemoryLedger, batch_of

from penstock.clock import SystemClock
from penstock.coordination import Decision, Led, LedPartitions
from penstock.errors import CoordinatorLoadInProgress, NotCoordinator, NotLeaderOrFollower, PenstockError, StorageFailed
from penstock.records.batch import BatchHeader


class EpochLedger(MemoryLedger):
    """One leadership of a log; reading it waits for the gate."""

    def __init__(self, epoch: int, batches: Any = ()) -> None:
        super().__init__(batches)
        self.leader_epoch = epoch
        self.gate = asyncio.Event()
        self.failure: PenstockError | None = None

    async def read_all(self) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        async for header, batch in super().read_all():
            yield header, batch

    def opened(self) -> "EpochLedger":
        self.gate.set()
        return self


class Ends:
    def __init__(self) -> None:
        self.heard: list[tuple[int, str]] = []

    def __call__(self, led: Led[Any, Any], error: PenstockError) -> None:
        self.heard.append((led.leader_epoch, type(error).__name__))


@pytest.fixture
def ends() -> Ends:
    return Ends()


@pytest.fixture
def led(ends: Ends) -> LedPartitions[Any, Counting]:
    return LedPartitions(SystemClock(), ends)


async def lead(led: LedPartitions[Any, Counting], ledger: EpochLedger) -> int | None:
    return await led.load(led.begin(ledger, Counting()))


async def test_a_partition_is_served_once_it_is_loaded_and_no_longer_than_it_is_led(led: Any) -> None:
    ledger = EpochLedger(3)
    with pytest.raises(NotCoordinator):
        led.at(0, "g")
    loading = asyncio.ensure_future(lead(led, ledger))
    await asyncio.sleep(0)
    with pytest.raises(CoordinatorLoadInProgress, match="g is still"):
        led.at(0, "g")
    with pytest.raises(CoordinatorLoadInProgress, match="some groups"):
        led.check_loaded("groups")
    assert (list(led.active()), len(list(led))) == ([], 1)
    ledger.gate.set()
    assert await loading == 0
    assert led.at(0, "g").leader_epoch == 3
    led.check_loaded("groups")
    led.resign(0)
    with pytest.raises(NotCoordinator):
        led.at(0, "g")


async def test_what_is_lost_is_led_again_in_a_later_epoch(led: Any, ends: Ends) -> None:
    for epoch in (1, 2, 5):
        assert await lead(led, EpochLedger(epoch).opened()) == 0
        assert led.at(0, "g").leader_epoch == epoch
        led.resign(0)
        led.resign(0)
    assert ends.heard == [(1, "NotCoordinator"), (2, "NotCoordinator"), (5, "NotCoordinator")]


async def test_a_later_epoch_takes_over_while_the_earlier_is_still_being_loaded(led: Any, ends: Ends) -> None:
    earlier, later = EpochLedger(1, [batch_of(b"1")]), EpochLedger(2, [batch_of(b"1"), batch_of(b"2")])
    loading = asyncio.ensure_future(lead(led, earlier))
    await asyncio.sleep(0)
    assert await lead(led, later.opened()) == 2
    earlier.gate.set()
    assert await loading is None, "nothing came of the first"
    assert led.at(0, "g").leader_epoch == 2
    assert ends.heard == [(1, "NotCoordinator")]


async def test_a_load_that_fails_leaves_nothing_behind_and_may_be_tried_again(led: Any, ends: Ends) -> None:
    broken = EpochLedger(1).opened()
    broken.failure = NotLeaderOrFollower("it moved")
    with pytest.raises(NotLeaderOrFollower):
        await lead(led, broken)
    with pytest.raises(NotCoordinator):
        led.at(0, "g")
    led.check_loaded("groups")
    assert await lead(led, EpochLedger(1).opened()) == 0
    assert ends.heard == [(1, "NotCoordinator")]


async def test_an_earlier_load_that_is_given_up_does_not_touch_the_later(led: Any, ends: Ends) -> None:
    loading = asyncio.ensure_future(lead(led, EpochLedger(1)))
    await asyncio.sleep(0)
    await lead(led, EpochLedger(2).opened())
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    assert led.at(0, "g").leader_epoch == 2
    assert ends.heard == [(1, "NotCoordinator")], "told once"


async def test_an_append_that_the_log_lost_ends_the_leadership_and_its_work(led: Any, ends: Ends) -> None:
    ledger = EpochLedger(1).opened()
    await lead(led, ledger)
    held = led.at(0, "g")
    working = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            working.set()

    held.run(work())
    await asyncio.sleep(0)
    reply: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    held.shard.perform(Decision(["1"], [(reply, "done")]))
    await asyncio.sleep(0)
    ledger.commits[-1].set_exception(StorageFailed("the disk is gone"))
    with pytest.raises(NotCoordinator):
        await reply
    await working.wait()
    assert ends.heard == [(1, "NotCoordinator")]
    with pytest.raises(NotCoordinator):
        led.at(0, "g")


async def test_a_log_that_is_led_elsewhere_sends_clients_to_look_for_their_coordinator(led: Any) -> None:
    ledger = EpochLedger(1).opened()
    await lead(led, ledger)
    ledger.refusal = NotLeaderOrFollower("led by broker 2")
    reply: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    led.at(0, "g").shard.perform(Decision(["1"], [(reply, "done")]))
    with pytest.raises(NotCoordinator):
        await reply
