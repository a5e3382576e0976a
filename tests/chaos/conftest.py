"""A broker in a process of its own, to be mistreated from outside: its address, its memory, its log."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.model import Endpoint

# The parts that tests share lie beside them.
sys.path.insert(0, str(Path(__file__).parent))

START_DEADLINE_S = 30.0
STOP_DEADLINE_S = 30.0
SAMPLE_S = 0.02


class BrokerProcess:
    """`penstock serve` on free ports."""

    def __init__(self, data_dir: Path, *settings: str) -> None:
        self._data_dir = data_dir
        self._settings = settings
        self._process: subprocess.Popen[str] | None = None
        self.endpoint = Endpoint("", 0)
        self.http = ""
        self.log_path = data_dir.with_suffix(".log")

    async def start(self) -> None:
        async with asyncio.timeout(START_DEADLINE_S):
            await asyncio.to_thread(self._start)

    def _start(self) -> None:
        options = [part for setting in self._settings for part in ("-o", setting)]
        command = [sys.executable, "-m", "penstock", "serve", "--no-gateway", "--data-dir", str(self._data_dir)]
        command += ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", *options]
        with self.log_path.open("w") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            words = line.split()
            if words[:1] == ["clients"]:
                host, _, port = words[1].rpartition(":")
                self.endpoint = Endpoint(host, int(port))
            elif words[:1] == ["http"]:
                self.http = words[1].removesuffix("/metrics")
            elif words[:1] == ["stop"]:
                return
        raise AssertionError(f"the broker did not start: {self.log}")

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def resident_bytes(self) -> int:
        assert self._process is not None
        return psutil.Process(self._process.pid).memory_info().rss

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    async def stop(self) -> int:
        """SIGTERM; the exit code of a clean stop."""
        assert self._process is not None
        if self.is_alive:
            self._process.send_signal(signal.SIGTERM)
        try:
            return await asyncio.to_thread(self._process.wait, STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        finally:
            if self._process.stdout is not None:
                self._process.stdout.close()


class MemoryWatch:
    """The most memory a process had while this ran."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self.before = self.peak = broker.resident_bytes
        self._task = asyncio.get_running_loop().create_task(self._sample())

    @property
    def growth(self) -> int:
        return self.peak - self.before

    async def _sample(self) -> None:
        while True:
            self.peak = max(self.peak, self._broker.resident_bytes)
            await asyncio.sleep(SAMPLE_S)

    async def stop(self) -> None:
        self.peak = max(self.peak, self._broker.resident_bytes)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@pytest.fixture
async def start_broker(tmp_path: Path) -> AsyncIterator[Any]:
    """Starts brokers with these settings; all are stopped when the test ends."""
    started: list[BrokerProcess] = []

    async def start(*settings: str) -> BrokerProcess:
        broker = BrokerProcess(tmp_path / f"broker-{len(started)}", *settings)
        started.append(broker)
        await broker.start()
        return broker

    yield start
    for broker in started:
        if broker.is_alive:
            await broker.stop()


@pytest.fixture
def watch_memory() -> type[MemoryWatch]:
    return MemoryWatch
