"""The worker process that compacts, and the broker's end of the pipe to it.

Called by log.directory. Compaction unpacks every record, which would stop the event loop for seconds, so it runs in a
process of its own at the lowest priority: one job at a time, started with the first, ended when none has come for a
while, so that an idle broker is one process. Whatever happens to the worker, the log keeps its old segments.

Both directions carry frames: a length, then a pickle. A plain interpreter is started instead of multiprocessing's
spawn, which would run the main script of whoever embeds a broker a second time.
"""

import asyncio
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from struct import Struct
from typing import IO, Any

from penstock.disk import RealDisk
from penstock.log.clean_job import CleaningFailed, CleanJob, CleanResult

IDLE_SECONDS = 30.0
JOB_SECONDS_MAX = 3600.0
NICENESS = 19

_LENGTH = Struct(">Q")
_COMMAND = "from penstock.log.cleaner import run_worker; run_worker()"


class Cleaner:
    def __init__(self, idle_seconds: float = IDLE_SECONDS) -> None:
        self._idle_seconds = idle_seconds
        # One thread, which waits for the worker: that is what makes it one job at a time.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-cleaner")
        self._worker: subprocess.Popen[bytes] | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._jobs = 0
        self._closed = False

    @property
    def worker_pid(self) -> int | None:
        return None if self._worker is None else self._worker.pid

    async def clean(self, job: CleanJob, deadline_seconds: float = JOB_SECONDS_MAX) -> CleanResult:
        """Compact in the worker; the result waits as `.cleaned` files for log.swap. CleaningFailed if it could not.

        Cancelled or past its deadline, the worker is killed: it has no effect on the log before the swap.
        """
        assert not self._closed
        loop = asyncio.get_running_loop()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        self._jobs += 1
        given_up = threading.Event()
        working = self._thread.submit(self._work, job, given_up)
        try:
            async with asyncio.timeout(deadline_seconds):
                answer = await asyncio.wrap_future(working)
        except TimeoutError:
            self._give_up(working, given_up)
            raise CleaningFailed(f"{job.directory.name}: not compacted in {deadline_seconds:.0f} s") from None
        except asyncio.CancelledError:
            self._give_up(working, given_up)
            raise
        finally:
            self._jobs -= 1
            if not self._jobs and not self._closed:
                self._idle_timer = loop.call_later(self._idle_seconds, self._retire)
        if isinstance(answer, str):
            raise CleaningFailed(f"{job.directory.name}: {answer}")
        return answer

    def close(self) -> None:
        """End the worker, with whatever it is doing. Blocks for as long as that takes: milliseconds."""
        self._closed = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._kill()
        self._thread.shutdown(wait=True)
        worker, self._worker = self._worker, None
        if worker is not None:
            _end(worker)

    def _work(self, job: CleanJob, given_up: threading.Event) -> CleanResult | str:
        """On the thread: hand the job over, wait for the answer. A string says what went wrong."""
        worker = self._worker
        if worker is None or worker.poll() is not None:
            try:
                worker = self._worker = _start_worker()
            except OSError as error:
                return f"no worker process: {error}"
        # Asked after the worker is where _kill finds it: whoever gives up now is seen here, or kills it.
        if given_up.is_set() or self._closed:
            return "given up"
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            _write_frame(worker.stdin, job)
            answer = _read_frame(worker.stdout)
        except (OSError, ValueError, pickle.UnpicklingError):
            answer = None
        if answer is None:
            self._worker = None
            _end(worker)
            return f"the worker process died (exit code {worker.returncode})"
        return answer

    def _give_up(self, working: "Future[CleanResult | str]", given_up: threading.Event) -> None:
        given_up.set()
        # A job that still stands in the queue must not cost the one before it its worker.
        if not working.cancel() and not working.done():
            self._kill()

    def _kill(self) -> None:
        # The thread that waits for an answer sees the pipe close and reaps the process.
        worker = self._worker
        if worker is not None:
            worker.kill()

    def _retire(self) -> None:
        self._idle_timer = None
        worker, self._worker = self._worker, None
        if worker is not None:
            self._thread.submit(_end, worker)


def run_worker() -> None:
    """The worker process: jobs from standard input, answers to what was standard output, until either ends."""
    # Only here: the broker itself never compacts.
    from penstock.log.compaction import clean_segments

    os.nice(NICENESS)
    # Ctrl-C reaches every process of the terminal; this one ends with its broker.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    # Nothing that prints may get between the frames.
    os.dup2(2, 1)
    jobs: queue.SimpleQueue[CleanJob] = queue.SimpleQueue()
    threading.Thread(target=_receive_jobs, args=(jobs,), daemon=True).start()
    disk = RealDisk()
    while True:
        job = jobs.get()
        try:
            answer: CleanResult | str = clean_segments(disk, job)
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        _write_frame(answers, answer)


def _receive_jobs(jobs: "queue.SimpleQueue[CleanJob]") -> None:
    job = _read_frame(sys.stdin.buffer)
    while job is not None:
        jobs.put(job)
        job = _read_frame(sys.stdin.buffer)
    # The broker has closed the pipe or is dead. At once, even amid a job: the next broker on this directory may
    # already be looking at the files we would go on writing.
    os._exit(0)


def _start_worker() -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _COMMAND], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )


def _end(worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    worker.communicate()


def _write_frame(pipe: IO[bytes], value: Any) -> None:
    content = pickle.dumps(value)
    pipe.write(_LENGTH.pack(len(content)) + content)
    pipe.flush()


def _read_frame(pipe: IO[bytes]) -> Any | None:
    """The next value, None at the end of the pipe. Only ever read from our own other half."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    content = pipe.read(length)
    return None if len(content) < length else pickle.loads(content)
