"""The crash points of the scripted life, each run and judged; spread over the cores by plain processes.

A point is the number of an effect on the disk (a write, a sync, a rename …) at which the process dies. What dies is
everything: nothing that happens later in the same run touches the disk any more.
"""

import asyncio
import contextlib
import logging
import multiprocessing
import os
import shutil
import tempfile
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tests.chaos.workload import Life
from tests.simulation.disk import SimulatedDisk
from tests.simulation.watched_disk import Crash, CrashAt, WatchedDisk

from penstock.disk import Disk, RealDisk
from penstock.errors import PenstockError

SIMULATED_ROOT = Path("/data")


class Point(NamedTuple):
    """Where to die: at this effect; with a seed, the power fails as well."""

    number: int
    seed: int | None = None
    is_real: bool = False


class Outcome(NamedTuple):
    point: Point
    # What the process was about to do; None if it got to the end of the script alive.
    died_at: str | None
    trouble: str | None


def count_effects() -> int:
    watch = CrashAt(None)
    asyncio.run(Life(SIMULATED_ROOT).run(WatchedDisk(SimulatedDisk(), watch)))
    return watch.count


def sweep(points: Sequence[Point]) -> list[Outcome]:
    """All points, in as many processes as there are cores."""
    workers = min(os.cpu_count() or 1, 4)
    shares = [points[start::workers] for start in range(workers)]
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        return [outcome for share in pool.map(run_points, shares) for outcome in share]


def run_points(points: Sequence[Point]) -> list[Outcome]:
    logging.disable(logging.CRITICAL)
    return [run_point(point) for point in points]


def run_point(point: Point) -> Outcome:
    watch = CrashAt(point.number)
    try:
        if point.is_real:
            with tempfile.TemporaryDirectory(prefix="penstock-crash-") as directory:
                _run_real(Path(directory), watch)
        else:
            asyncio.run(_run_simulated(point, watch))
    except (Exception, AssertionError):
        return Outcome(point, _describe(watch), traceback.format_exc())
    return Outcome(point, _describe(watch), None)


def _describe(watch: CrashAt) -> str | None:
    return f"{watch.last.kind} {watch.last.path}" if watch.is_dead and watch.last is not None else None


async def _run_simulated(point: Point, watch: CrashAt) -> None:
    disk = SimulatedDisk(point.seed or 0)
    life = Life(SIMULATED_ROOT)
    await _live(life, WatchedDisk(disk, watch))
    if point.seed is not None:
        disk.power_loss()
    await life.judge(disk)


def _run_real(directory: Path, watch: CrashAt) -> None:
    life = Life(directory / "data")
    disk = RealDisk()
    asyncio.run(_live(life, WatchedDisk(disk, watch)))
    disk.close()
    life.replicas.logs.release()
    again = RealDisk()
    asyncio.run(life.judge(again))
    again.close()
    shutil.rmtree(directory / "data")


async def _live(life: Life, disk: Disk) -> None:
    living = asyncio.ensure_future(life.run(disk))

    def heard(_: asyncio.AbstractEventLoop, told: dict[str, Any]) -> None:
        """What a dead process would have said, nobody hears; one that dies in a callback of its loop is as dead."""
        if isinstance(told.get("exception"), Crash):
            living.cancel()

    asyncio.get_running_loop().set_exception_handler(heard)
    # A sync that died told its waiters that it failed: whoever hears that knows as little as of a dead broker.
    with contextlib.suppress(Crash, PenstockError, asyncio.CancelledError):
        await living
    life.note_retention()
