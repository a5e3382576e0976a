"""The worker process: really started, really killed."""

import asyncio
import os
import pickle
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from penstock.log.clean_job import CleaningFailed, CleanJob, SourceSegment
from penstock.log.cleaner import NICENESS, Cleaner
from penstock.log.segment import file_name
from penstock.records.record import Record, encode_batch

NOW = 1_700_000_000_000


def job(directory: Path, records: int = 10) -> CleanJob:
    """A segment in which every record but the last has been overtaken."""
    directory.mkdir(exist_ok=True)
    content = b"".join(encode_batch([Record(offset, NOW, b"k", b"%d" % offset)]) for offset in range(records))
    (directory / file_name(0, ".log")).write_bytes(content)
    return CleanJob(
        directory=directory,
        segments=(SourceSegment(0, records, len(content)),),
        dirty_start=0,
        dirty_end=records,
        now_ms=NOW,
        delete_retention_ms=0,
        segment_bytes=1 << 20,
        segment_index_bytes=1 << 20,
        index_interval_bytes=4096,
        unpacked_bytes_max=1 << 20,
        dedupe_buffer_bytes=1 << 20,
    )


def endless(directory: Path) -> CleanJob:
    """A job of a million segments, which are all the same: more than any test waits for."""
    short = job(directory)
    return replace(short, segments=short.segments * 1_000_000)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 (processes set no asyncio events)
        await asyncio.sleep(0.01)


async def worker_of(cleaner: Cleaner) -> psutil.Process:
    await until(lambda: cleaner.worker_pid is not None)
    return psutil.Process(cleaner.worker_pid)


async def test_a_job_is_done_in_another_process_of_low_priority(tmp_path: Path) -> None:
    cleaner = Cleaner()
    try:
        assert cleaner.worker_pid is None
        result = await cleaner.clean(job(tmp_path))
        assert [cleaned.replaces for cleaned in result.cleaned] == [(0,)]
        assert (tmp_path / file_name(0, ".log.cleaned")).stat().st_size == result.cleaned[0].size
        worker = await worker_of(cleaner)
        assert worker.pid != os.getpid()
        assert worker.nice() == NICENESS
    finally:
        cleaner.close()


async def test_jobs_share_one_worker_and_take_turns(tmp_path: Path) -> None:
    cleaner = Cleaner()
    try:
        await cleaner.clean(job(tmp_path / "first"))
        pid = cleaner.worker_pid
        await asyncio.gather(*(cleaner.clean(job(tmp_path / str(number))) for number in range(5)))
        assert cleaner.worker_pid == pid
    finally:
        cleaner.close()


async def test_a_job_that_fails_says_why_and_the_worker_goes_on(tmp_path: Path) -> None:
    cleaner = Cleaner()
    try:
        broken = job(tmp_path / "broken")
        (tmp_path / "broken" / file_name(0, ".log")).write_bytes(b"x" * broken.segments[0].size)
        with pytest.raises(CleaningFailed, match=r"broken: CorruptMessage: .*at byte 0"):
            await cleaner.clean(broken)
        pid = cleaner.worker_pid
        await cleaner.clean(job(tmp_path / "sound"))
        assert cleaner.worker_pid == pid
    finally:
        cleaner.close()


async def test_a_worker_that_dies_fails_its_job_and_is_replaced_for_the_next(tmp_path: Path) -> None:
    cleaner = Cleaner()
    try:
        cleaning = asyncio.create_task(cleaner.clean(endless(tmp_path / "endless")))
        worker = await worker_of(cleaner)
        worker.kill()
        with pytest.raises(CleaningFailed, match="died"):
            await cleaning
        assert cleaner.worker_pid is None
        await cleaner.clean(job(tmp_path / "next"))
        assert cleaner.worker_pid != worker.pid
    finally:
        cleaner.close()


async def test_a_worker_that_died_idle_costs_no_job(tmp_path: Path) -> None:
    cleaner = Cleaner()
    try:
        await cleaner.clean(job(tmp_path / "first"))
        worker = await worker_of(cleaner)
        worker.kill()
        # Dead to the last thread, but not taken from the cleaner, whose child it is.
        await asyncio.to_thread(os.waitid, os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
        await cleaner.clean(job(tmp_path / "next"))
    finally:
        cleaner.close()


async def test_a_job_past_its_deadline_is_given_up_with_its_worker(tmp_path: Path) -> None:
    cleaner = Cleaner()
    try:
        with pytest.raises(CleaningFailed, match="not compacted"):
            await cleaner.clean(endless(tmp_path / "endless"), deadline_seconds=0.3)
        await cleaner.clean(job(tmp_path / "next"))
    finally:
        cleaner.close()


async def test_a_cancelled_job_lets_the_next_one_run(tmp_path: Path) -> None:
    cleaner = Cleaner()
    try:
        cleaning = asyncio.create_task(cleaner.clean(endless(tmp_path / "endless")))
        worker = await worker_of(cleaner)
        cleaning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cleaning
        await cleaner.clean(job(tmp_path / "next"))
        assert not worker.is_running()
    finally:
        cleaner.close()


async def test_cancelling_a_job_that_waits_does_not_end_the_one_under_way(tmp_path: Path) -> None:
    cleaner = Cleaner()
    try:
        await cleaner.clean(job(tmp_path / "first"))
        worker = await worker_of(cleaner)
        worker.suspend()
        under_way = asyncio.create_task(cleaner.clean(job(tmp_path / "under way")))
        waiting = asyncio.create_task(cleaner.clean(job(tmp_path / "waiting")))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        worker.resume()
        await under_way
        assert not (tmp_path / "waiting" / file_name(0, ".log.cleaned")).exists()
    finally:
        cleaner.close()


async def test_an_idle_worker_ends_and_the_next_job_has_a_new_one(tmp_path: Path) -> None:
    cleaner = Cleaner(idle_seconds=0.05)
    try:
        await cleaner.clean(job(tmp_path / "first"))
        worker = await worker_of(cleaner)
        await until(lambda: not worker.is_running())
        assert cleaner.worker_pid is None
        await cleaner.clean(job(tmp_path / "next"))
    finally:
        cleaner.close()


async def test_closing_ends_the_worker_amid_its_job(tmp_path: Path) -> None:
    cleaner = Cleaner()
    cleaning = asyncio.create_task(cleaner.clean(endless(tmp_path / "endless")))
    worker = await worker_of(cleaner)
    cleaner.close()
    assert not worker.is_running()
    with pytest.raises(CleaningFailed):
        await cleaning


async def test_a_broker_that_is_killed_takes_its_worker_with_it(tmp_path: Path) -> None:
    script = tmp_path / "broker.py"
    script.write_text(
        "import asyncio, pickle, sys\n"
        "from penstock.log.cleaner import Cleaner\n"
        "async def main():\n"
        "    cleaner = Cleaner()\n"
        "    cleaning = asyncio.create_task(cleaner.clean(pickle.load(sys.stdin.buffer)))\n"
        "    while cleaner.worker_pid is None:\n"
        "        await asyncio.sleep(0.01)\n"
        "    print(cleaner.worker_pid, flush=True)\n"
        "    await cleaning\n"
        # No guard of __main__: starting the worker must not run this file again.
        "asyncio.run(main())\n"
    )
    broker = await asyncio.create_subprocess_exec(
        sys.executable, script, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert broker.stdin is not None
    assert broker.stdout is not None
    endless_job = endless(tmp_path / "endless")
    leftover = tmp_path / "endless" / file_name(0, ".log.cleaned")
    leftover.touch()
    broker.stdin.write(pickle.dumps(endless_job))
    worker = psutil.Process(int(await broker.stdout.readline()))
    await until(lambda: not leftover.exists())  # the first thing a job does
    broker.send_signal(signal.SIGKILL)
    await broker.wait()
    await until(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)
