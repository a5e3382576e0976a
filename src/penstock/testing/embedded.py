"""A real broker inside the current process, on a thread and an event loop of its own.

Called by testing.plugin and by anyone who wants a broker without a second process:

    with EmbeddedBroker(tmp_path) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})

It is the broker that `penstock serve` runs: same sockets, same files, same fsync.
"""

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop

from penstock.broker import Broker
from penstock.config import BrokerConfig

T = TypeVar("T")

START_DEADLINE_S = 30.0

# What a test wants otherwise than a server: no port of its own choosing, no waiting for stragglers in a group of one.
TEST_SETTINGS = {
    "listeners": "127.0.0.1:0",
    "penstock.http.listen": "127.0.0.1:0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}


class EmbeddedBroker:
    def __init__(self, data_dir: Path, settings: Mapping[str, str] | None = None) -> None:
        self.data_dir = data_dir
        self._settings = {**TEST_SETTINGS, **(settings or {}), "log.dirs": str(data_dir)}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._broker: Broker | None = None

    @property
    def broker(self) -> Broker:
        """The broker itself, for looking into; it lives on its own thread, so call it through `run`."""
        assert self._broker is not None, "the broker is not running"
        return self._broker

    @property
    def bootstrap(self) -> str:
        """What a client calls `bootstrap.servers`. The same after `restart` and `crash`."""
        return self._settings["listeners"]

    @property
    def http(self) -> str:
        """Where /metrics and /health are, as http://host:port."""
        return f"http://{self.broker.http_endpoint}"

    def start(self) -> Self:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="penstock-broker", daemon=True)
        self._thread.start()
        self._broker = Broker(BrokerConfig(self._settings))
        try:
            self.run(self._broker.start())
        except BaseException:
            self._end_loop()
            raise
        # The port we got is kept, so that clients find the broker again after a restart.
        self._settings["listeners"] = str(self._broker.bound)
        return self

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the broker's loop and wait for it."""
        assert self._loop is not None, "the broker is not running"
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(START_DEADLINE_S)

    def stop(self) -> None:
        """End it as SIGTERM would: everything durable, a clean mark left."""
        if self._broker is not None:
            self.run(self._broker.stop())
            self._end_loop()

    def crash(self) -> None:
        """End it as SIGKILL would: connections gone, nothing flushed or said. The kernel keeps what was written."""
        if self._broker is not None:
            self.run(self._broker.crash())
            self._end_loop()

    def restart(self, settings: Mapping[str, str] | None = None) -> None:
        """Stop, if it runs, and start again on the same data and port."""
        self.stop()
        self._settings.update(settings or {})
        self.start()

    def crash_and_restart(self) -> None:
        self.crash()
        self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _end_loop(self) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_DEADLINE_S)
        self._loop.close()
        self._loop = self._thread = self._broker = None
