"""The frame of a driver written in Python: commands in, answers and events out; and a consumer that polls by itself.

Called by the drivers beside it. The vocabulary is told in ../driver.py; a driver is an object with a method for each
command it knows.
"""

import json
import logging
import queue
import sys
import threading
import traceback
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, NamedTuple

POLL_S = 0.05  # how long a consumer waits for records before it looks for commands

_writing = threading.Lock()


class Told(NamedTuple):
    """A record on its way out."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: str | None
    value: str | None
    headers: list[tuple[str, str | None]]


def serve(driver: object) -> None:
    """Answer commands until stdin ends."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    for line in sys.stdin:
        threading.Thread(target=_obey, args=(driver, json.loads(line)), daemon=True).start()


def tell(**event: Any) -> None:
    with _writing:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()


def encoded(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode("ascii")


def decoded(value: str | None) -> bytes | None:
    return None if value is None else b64decode(value)


class PollingConsumer:
    """A client's consumer on a thread of its own, since most may be touched by one thread only.

    `poll` gives what has come within POLL_S. Other work is handed to the thread with `run` and done between two polls.
    """

    def __init__(self, name: str, poll: Callable[[], Iterable[Told]]) -> None:
        self._name = name
        self._poll = poll
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._is_open = True
        self._thread = threading.Thread(target=self._live, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def run(self, work: Callable[[], Any]) -> Any:
        done: Future[Any] = Future()
        self._work.put((work, done))
        return done.result()

    def close(self, close: Callable[[], Any]) -> None:
        def end() -> None:
            self._is_open = False
            close()

        self.run(end)
        self._thread.join()

    def _live(self) -> None:
        has_failed = False
        while self._is_open:
            if has_failed or not self._work.empty():
                self._do_one()
                continue
            try:
                records = list(self._poll())
            except Exception as error:
                traceback.print_exc()
                has_failed = True  # polls no more, and waits to be closed
                tell(consumer=self._name, failed=f"{type(error).__name__}: {error}")
                continue
            if records:
                tell(consumer=self._name, records=records)

    def _do_one(self) -> None:
        work, done = self._work.get()
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)


def _obey(driver: object, command: dict[str, Any]) -> None:
    try:
        result = getattr(driver, command["do"])(**command["with"])
        tell(id=command["id"], result=result)
    except BaseException as error:
        traceback.print_exc()
        tell(id=command["id"], error=f"{type(error).__name__}: {error}")
