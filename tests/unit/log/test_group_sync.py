"""Many appends, one fsync; and no fsync after one that failed."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock.disk import RealDisk
from penstock.errors import StorageFailed
from penstock.log.group_sync import TURNS_MAX, GroupSync, SyncWork
from penstock.model import Offset


class Written:
    """Stands where a log stands: how far it is written, and what its syncs do."""

    def __init__(self, jobs: "list[Callable[[], None]] | None" = None) -> None:
        self.next_offset = Offset(0)
        self.syncs: list[Offset] = []
        self.gates: list[asyncio.Event] = []
        self._jobs = jobs or []
        self.failures: list[BaseException] = []
        self.sync = GroupSync(HeldDisk(self), Offset(0), self.prepare, self.failed)

    def prepare(self) -> SyncWork:
        self.syncs.append(self.next_offset)
        job = self._jobs.pop(0) if self._jobs else lambda: None
        return SyncWork(self.next_offset, job)

    def failed(self, error: BaseException) -> BaseException:
        self.failures.append(error)
        return StorageFailed(str(error))

    def write(self, count: int = 1) -> "asyncio.Future[None]":
        self.next_offset = Offset(self.next_offset + count)
        return self.sync.wait_for(self.next_offset)


class HeldDisk(RealDisk):
    """Every job waits on the loop until the test opens its gate."""

    def __init__(self, written: Written) -> None:
        super().__init__()
        self._written = written

    def run(self, work: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]":
        gate = asyncio.Event()
        self._written.gates.append(gate)

        async def held() -> Any:
            await gate.wait()
            return work(*arguments)

        return asyncio.ensure_future(held())


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class FreeLoop(RealDisk):
    """Says what a sync was told of the loop, and runs it at once."""

    def __init__(self) -> None:
        super().__init__()
        self.requests = 0
        self.traffic = lambda: self.requests
        self.told: list[bool] = []

    def run_brief(self, work: Callable[[], Any], *, is_loop_free: bool) -> "asyncio.Future[Any]":
        self.told.append(is_loop_free)
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            done.set_result(work())
        except OSError as error:
            done.set_exception(error)
        return done


def brief(disk: FreeLoop, job: Callable[[], None] = lambda: None) -> GroupSync:
    return GroupSync(disk, Offset(0), lambda: SyncWork(Offset(1), job, is_brief=True), lambda error: error)


def fail() -> None:
    raise OSError(5, "Input/output error")


async def test_all_appends_of_a_turn_share_one_sync() -> None:
    log = Written()
    waits = [log.write() for _ in range(50)]
    await turns()
    assert log.syncs == [50]
    assert not any(wait.done() for wait in waits)
    log.gates[0].set()
    await asyncio.gather(*waits)
    assert log.sync.durable_offset == 50
    assert log.syncs == [50]


async def test_who_is_alone_waits_for_one_turn_in_which_somebody_might_have_come() -> None:
    log = Written()
    log.write()
    await turns(2)
    assert log.syncs == [1]


async def test_whoever_comes_turn_after_turn_shares_the_sync_of_the_first() -> None:
    log = Written()
    waits = [log.write(), log.write()]
    for _ in range(TURNS_MAX - 2):
        await turns(1)
        waits.append(log.write())
    assert log.syncs == []
    await turns(3)  # of which the first brings the last of them, and the second nobody
    assert log.syncs == [len(waits)]
    log.gates[0].set()
    await asyncio.gather(*waits)


async def test_a_sync_is_not_put_off_for_ever() -> None:
    log = Written()
    log.write()
    for _ in range(2 * TURNS_MAX):
        log.write()
        await turns(1)
    assert len(log.syncs) == 1
    assert log.syncs[0] < log.next_offset


async def test_those_who_come_again_share_the_sync_of_those_who_waited_meanwhile() -> None:
    log = Written()
    first = log.write()
    await turns()
    log.write()
    first.add_done_callback(lambda _: log.write())
    log.gates[0].set()
    await first
    await turns(TURNS_MAX)
    assert log.syncs == [1, 3]


async def test_what_comes_during_a_sync_shares_the_next() -> None:
    log = Written()
    first = log.write(10)
    await turns()
    later = [log.write() for _ in range(5)]
    await turns()
    assert log.syncs == [10], "one at a time"
    log.gates[0].set()
    await first
    assert not any(wait.done() for wait in later), "their bytes may have come after the first sync had begun"
    assert log.sync.durable_offset == 10
    await turns()
    assert log.syncs == [10, 15]
    log.gates[1].set()
    await asyncio.gather(*later)
    assert log.sync.durable_offset == 15


async def test_what_is_durable_is_not_waited_for() -> None:
    log = Written()
    wait = log.write(3)
    await turns()
    log.gates[0].set()
    await wait
    assert log.sync.wait_for(Offset(2)).done()
    await turns()
    assert log.syncs == [3]


async def test_a_failed_sync_fails_everyone_and_is_never_tried_again() -> None:
    log = Written([fail])
    first = log.write()
    await turns()
    second = log.write()
    log.gates[0].set()
    for wait in (first, second):
        with pytest.raises(StorageFailed, match="Input/output error"):
            await wait
    assert log.sync.durable_offset == 0
    with pytest.raises(StorageFailed):
        await log.write()
    await turns()
    assert log.syncs == [1]
    assert len(log.failures) == 1


async def test_whoever_waits_is_told_when_the_log_is_stopped_and_no_sync_begins() -> None:
    log = Written()
    wait = log.write()
    log.sync.stop(StorageFailed("the write after it failed"))
    with pytest.raises(StorageFailed, match="the write after it"):
        await wait
    await turns()
    assert log.syncs == []


async def test_a_sync_that_was_under_way_when_the_log_stopped_still_counts() -> None:
    log = Written()
    wait = log.write(4)
    await turns()
    log.sync.stop(StorageFailed("a later write failed"))
    with pytest.raises(StorageFailed):
        await wait
    log.gates[0].set()
    await turns()
    assert log.sync.durable_offset == 4
    assert log.sync.wait_for(Offset(4)).exception() is None


async def test_whoever_gives_up_waiting_behind_a_shield_disturbs_nobody() -> None:
    log = Written()
    wait = log.write()
    await turns()
    impatient = asyncio.ensure_future(asyncio.wait_for(asyncio.shield(wait), 0))
    with pytest.raises(TimeoutError):
        await impatient
    log.gates[0].set()
    await wait
    assert log.sync.durable_offset == 1


async def test_a_failure_nobody_waits_for_any_more_is_not_reported_as_lost() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    log = Written([fail])
    log.write()
    await turns()
    log.gates[0].set()
    await turns()
    del log
    await turns()
    assert told == []


async def test_how_long_a_sync_took_is_told() -> None:
    log = Written()
    seen: list[float] = []
    log.sync.observe_ms = seen.append
    wait = log.write()
    await turns()
    log.gates[0].set()
    await wait
    assert len(seen) == 1
    assert seen[0] >= 0


async def test_the_loop_is_free_when_a_turn_brought_nothing_for_anybody() -> None:
    disk = FreeLoop()
    sync = brief(disk)
    disk.requests = 1  # its own
    await sync.wait_for(Offset(1))
    assert disk.told == [True]
    assert sync.durable_offset == 1


async def test_the_loop_is_not_free_while_others_ask_for_something() -> None:
    disk = FreeLoop()

    def ask() -> None:
        disk.requests += 1
        asyncio.get_running_loop().call_soon(ask)

    ask()
    await brief(disk).wait_for(Offset(1))
    assert disk.told == [False]


async def test_a_sync_that_ran_at_once_and_failed_is_final_too() -> None:
    disk = FreeLoop()
    sync = brief(disk, fail)
    with pytest.raises(OSError, match="Input/output error"):
        await sync.wait_for(Offset(1))
    with pytest.raises(OSError, match="Input/output error"):
        await sync.wait_for(Offset(1))
    assert len(disk.told) == 1
    assert sync.durable_offset == 0


async def test_how_long_a_sync_on_the_loop_took_is_told() -> None:
    now = [5.0]
    seen: list[float] = []

    def take_a_while() -> None:
        now[0] += 0.25

    sync = brief(FreeLoop(), take_a_while)
    sync.monotonic, sync.observe_ms = lambda: now[0], seen.append
    await sync.wait_for(Offset(1))
    assert seen == [250.0]


async def test_what_is_not_brief_is_for_a_thread_however_free_the_loop_is() -> None:
    disk = FreeLoop()
    await GroupSync(disk, Offset(0), lambda: SyncWork(Offset(1), lambda: None), lambda error: error).wait_for(Offset(1))
    assert disk.told == []
    disk.close()
