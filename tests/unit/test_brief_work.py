"""Where a sync runs: on the loop while that harms nobody, on a thread otherwise."""

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator

import pytest

from penstock.brief_work import QUICK_S, REST_PER_SLOW_S
from penstock.clock import SystemClock
from penstock.disk import RealDisk

LOOP = threading.main_thread()


class Stopwatch(SystemClock):
    """Stands still until a test says how long its work takes."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Stopwatch:
    return Stopwatch()


@pytest.fixture
async def disk(clock: Stopwatch) -> AsyncIterator[RealDisk]:
    made = RealDisk(clock)
    yield made
    made.close()


async def runs_on(disk: RealDisk, *, is_loop_free: bool = True) -> threading.Thread:
    await asyncio.sleep(0)  # another turn
    return await disk.run_brief(threading.current_thread, is_loop_free=is_loop_free)


async def test_on_a_free_loop_it_runs_at_once(disk: RealDisk) -> None:
    done = disk.run_brief(lambda: "synced", is_loop_free=True)
    assert done.done()
    assert done.result() == "synced"
    assert await runs_on(disk) is LOOP


async def test_where_others_want_the_loop_it_goes_to_a_thread(disk: RealDisk) -> None:
    assert await runs_on(disk, is_loop_free=False) is not LOOP


async def test_the_second_of_a_turn_goes_to_a_thread(disk: RealDisk) -> None:
    first = disk.run_brief(threading.current_thread, is_loop_free=True)
    second = disk.run_brief(threading.current_thread, is_loop_free=True)
    assert await first is LOOP
    assert await second is not LOOP
    assert await runs_on(disk) is LOOP, "a turn later"


async def test_while_a_thread_is_at_work_it_joins_it_there(disk: RealDisk) -> None:
    gate = threading.Event()
    held = disk.run(gate.wait)
    joined = asyncio.ensure_future(runs_on(disk))
    await asyncio.sleep(0)
    gate.set()
    assert await joined is not LOOP
    await held
    assert await runs_on(disk) is LOOP


@pytest.mark.parametrize("was_slow_here", [True, False])
async def test_after_a_slow_one_the_loop_is_spared(disk: RealDisk, clock: Stopwatch, was_slow_here: bool) -> None:
    def slow() -> None:
        clock.now += 3 * QUICK_S

    await disk.run_brief(slow, is_loop_free=was_slow_here)
    assert await runs_on(disk) is not LOOP
    clock.now += 3 * QUICK_S * REST_PER_SLOW_S * 0.99
    assert await runs_on(disk) is not LOOP
    clock.now += 3 * QUICK_S * REST_PER_SLOW_S * 0.02
    assert await runs_on(disk) is LOOP


async def test_a_failure_is_told_as_a_thread_would_tell_it(disk: RealDisk, clock: Stopwatch) -> None:
    def fail() -> None:
        clock.now += 1.0
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output error"):
        await disk.run_brief(fail, is_loop_free=True)
    assert await runs_on(disk) is not LOOP, "it was slow as well"


async def test_until_told_otherwise_the_loop_is_wanted_all_the_time(disk: RealDisk) -> None:
    assert disk.traffic() != disk.traffic()
    disk.traffic = itertools.repeat(7).__next__
    assert disk.traffic() == disk.traffic()


async def test_a_closed_disk_refuses_as_its_threads_do(disk: RealDisk) -> None:
    disk.close()
    with pytest.raises(RuntimeError, match="the disk is closed"):
        disk.run_brief(lambda: None, is_loop_free=True)
