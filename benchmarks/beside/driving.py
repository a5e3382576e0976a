"""One client process, as the harness sees it: started, ready, told to go, its outcome; always ended.

Called by rounds.py and alone.py. The other side is drivers/driver.py. Every wait has a deadline: a client that hangs is
killed and its last words are the error.
"""

import contextlib
import json
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from ..peers import getting
from ..peers.model import Driver, Missing
from .drivers.job import Job

DRIVERS = Path(__file__).parent / "drivers"
READY_DEADLINE_S = 300.0
WORK_DEADLINE_S = 1_200.0
READY, CLEAR = "ready", "clear"
LAST_WORDS_MAX = 400


class ClientFailed(Exception):
    """A client process ended without an outcome, or took too long; says its last words."""


@dataclass(frozen=True, slots=True)
class Worked:
    messages: int
    size_bytes: int
    seconds: float
    client_cpu_s: float
    figures: dict[str, float]


class Client:
    def __init__(self, process: "subprocess.Popen[str]", act: str, complaints: IO[str]) -> None:
        self._process = process
        self._act = act
        self._complaints = complaints

    def wait_until_ready(self) -> None:
        line = self._line(READY_DEADLINE_S)
        if line != READY:
            raise ClientFailed(f"{self._act}: {line}")

    def go(self) -> None:
        self._tell("go")

    def outcome(self) -> Worked:
        return Worked(**json.loads(self._line(WORK_DEADLINE_S)))

    def clear(self) -> None:
        """Delete the topic; after the outcome."""
        self._tell(CLEAR)
        answer = self._line(READY_DEADLINE_S)
        if answer != CLEAR:
            raise ClientFailed(f"{self._act}: {answer}")

    def _tell(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def _line(self, deadline_s: float) -> str:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(deadline_s):
                raise ClientFailed(f"{self._act}: no answer within {deadline_s:.0f} s")
        line = self._process.stdout.readline().strip()
        if not line:
            self._complaints.seek(0)
            # Of a traceback the last line says what happened; the others tell where this machine has its files.
            last = (self._complaints.read().strip().splitlines() or ["it ended without a word"])[-1]
            raise ClientFailed(f"{self._act}: {last[-LAST_WORDS_MAX:]}")
        return line


@contextlib.contextmanager
def client(driver: Driver, job: Job) -> Generator[Client]:
    python = _python(driver)
    command = [str(python), str(DRIVERS / f"{driver}.py"), json.dumps(asdict(job))]
    with tempfile.TemporaryFile("w+") as complaints:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints, text=True, start_new_session=True
        )
        try:
            yield Client(process, job.act, complaints)
        finally:
            # It has said all it will say; some clients take seconds to close what nobody needs any more.
            process.kill()
            process.communicate()


@contextlib.contextmanager
def ready_clients(driver: Driver, jobs: Sequence[Job]) -> Generator[list[Client]]:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(client(driver, job)) for job in jobs]
        for one in clients:
            one.wait_until_ready()
        yield clients


def work(clients: Sequence[Client]) -> list[Worked]:
    """All at once, until the last has finished."""
    for one in clients:
        one.go()
    return [one.outcome() for one in clients]


def do(driver: Driver, job: Job) -> Worked:
    """A job whose cost to the broker nobody asks for."""
    with ready_clients(driver, [job]) as clients:
        return work(clients)[0]


def _python(driver: Driver) -> Path:
    if driver is Driver.KAFKA:
        return Path(sys.executable)
    found = getting.client_python()
    if isinstance(found, Missing):
        raise ClientFailed(found.reason)
    return found
