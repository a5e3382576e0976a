"""What every benchmark needs: a broker process of its own, its CPU and memory, a raw connection, percentiles.

Called by the other files here. The broker is started as a user would start it, in a folder that is deleted afterwards.
"""

import contextlib
import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil

from penstock.wire.frame import request_frame
from penstock.wire.messages import decode_response, encode_request

START_DEADLINE_S = 60.0


@dataclass
class RunningBroker:
    address: str
    process: psutil.Process
    started_in_s: float
    data_dir: Path
    command: list[str]

    def cpu_s(self) -> float:
        times = self.process.cpu_times()
        return times.user + times.system

    def rss_bytes(self) -> int:
        return self.process.memory_info().rss

    def connect(self) -> "RawConnection":
        return connect(self.address)


class RawConnection:
    """Whole requests and responses over one socket, with nothing of a client in between."""

    def __init__(self, channel: socket.socket) -> None:
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.channel = channel

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()

    def call(self, api_key: int, version: int, body: Mapping[str, Any]) -> Any:
        self.channel.sendall(request_frame(api_key, version, 1, "bench", encode_request(api_key, version, body)))
        answer = self.read_frame()
        # Flexible responses, except ApiVersions, have one byte of tagged fields after the correlation id.
        for skipped in (4, 5):
            with contextlib.suppress(Exception):
                return decode_response(api_key, version, answer[skipped:])
        raise ValueError("unreadable response")

    def read_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def _read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            part = self.channel.recv(min(size, 1 << 20))
            if not part:
                raise ConnectionError("the broker hung up")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def connect(address: str) -> RawConnection:
    host, _, port = address.partition(":")
    return RawConnection(socket.create_connection((host, int(port))))


@contextlib.contextmanager
def broker(*settings: str, data_dir: Path | None = None) -> Iterator[RunningBroker]:
    """A fresh `penstock serve`; `settings` are name=value."""
    with contextlib.ExitStack() as stack:
        folder = data_dir or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
        port = free_port()
        os.sync()  # what the benchmark before left dirty is not this one's to wait for
        began = time.perf_counter()
        child = start_command(folder / "data", port, settings)
        try:
            wait_for_answer(port, child)
            started_in_s = time.perf_counter() - began
            running = RunningBroker(f"127.0.0.1:{port}", psutil.Process(child.pid), started_in_s, folder, child.args)
            yield running
        finally:
            child.terminate()
            child.wait(60)


def start_command(data_dir: Path, port: int, settings: Sequence[str]) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "penstock", "serve", "--no-gateway", "--data-dir", str(data_dir)]
    command += ["--listen", f"127.0.0.1:{port}", "--http", f"127.0.0.1:{free_port()}", "--log-level", "warning"]
    for setting in settings:
        command += ["-o", setting]
    # Byte code is cached for a user; an environment that forbids it would measure the compiler.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)


def wait_for_answer(port: int, child: "subprocess.Popen[bytes]") -> None:
    """Until an ApiVersions request has been answered."""
    deadline = time.perf_counter() + START_DEADLINE_S
    request = struct.pack(">ihhih", 10, 18, 0, 1, -1)
    while time.perf_counter() < deadline:
        assert child.poll() is None, "the broker ended by itself"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as channel:
            channel.sendall(request)
            if channel.recv(4):
                return
        time.sleep(0.001)
    raise TimeoutError("the broker did not answer")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def chosen(names: Sequence[str], known: Mapping[str, object]) -> list[str]:
    """Which benchmarks to run: those named, or all there are. A name that is none ends the program."""
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.stderr.write(f"no benchmark {', '.join(unknown)}; there are {', '.join(known)}\n")
        sys.exit(2)
    return list(names or known)


def spread(name: str, rounds: Sequence[float]) -> dict[str, Any]:
    """The median of several rounds, with the lowest, the highest and all of them beside it."""
    middle = statistics.median(rounds)
    return {name: middle, f"{name}_min": min(rounds), f"{name}_max": max(rounds), f"{name}_rounds": list(rounds)}


def percentile(sorted_values: Sequence[float], share: float) -> float:
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * share))]


def create_topic(running: RunningBroker, name: str, partitions: int = 1, **configs: str) -> None:
    connection = running.connect()
    settings = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    answer = connection.call(
        19,
        5,
        {
            "topics": [{"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": settings}],
            "timeout": 30_000,
        },
    )
    assert answer.topics[0].error_code == 0, answer
    connection.channel.close()
