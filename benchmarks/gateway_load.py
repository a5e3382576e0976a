"""A gateway process, and load on it over plain sockets: requests encoded beforehand, answers checked, for little CPU.

Called by gateway and gateway_console.
Laws:
- A record counts when its own report says that it was delivered; any other report ends the run.
- Reads are due at fixed times whatever became of those before, and each is timed from when it was due: a gateway that
  stalls is charged for every read that would have come meanwhile.
"""

import asyncio
import contextlib
import json
import random
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from harness import RunningBroker, free_port

ROUNDS = 5
READY_DEADLINE_S = 60.0
READ_CONNECTIONS = 20
ANSWER_DEADLINE_S = 30.0


@contextlib.contextmanager
def gateway(running: RunningBroker) -> Generator[tuple[str, psutil.Process]]:
    """A fresh `penstock gateway` at this broker, ready; its charts are fed by the broker's metrics."""
    address = f"127.0.0.1:{free_port()}"
    metrics = running.command[running.command.index("--http") + 1]
    command = [sys.executable, "-m", "penstock", "gateway", "--bootstrap", running.address, "--listen", address]
    child = subprocess.Popen([*command, "--metrics", metrics, "--log-level", "warning"], stdout=subprocess.DEVNULL)
    try:
        deadline = time.perf_counter() + READY_DEADLINE_S
        while not _is_ready(address):
            assert child.poll() is None, "the gateway ended by itself"
            assert time.perf_counter() < deadline, "the gateway did not get ready"
            time.sleep(0.05)
        yield address, psutil.Process(child.pid)
    finally:
        child.terminate()
        child.wait(60)


def get(address: str, path: str) -> Any:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as answer:
        return json.load(answer)


def register(address: str, subject: int) -> int:
    """A schema of some length, for a subject of its own; gives its id."""
    fields = [{"name": f"field{one}", "type": ["null", "string"], "default": None} for one in range(15)]
    schema = json.dumps({"type": "record", "name": f"Row{subject}", "fields": fields})
    request = urllib.request.Request(
        f"http://{address}/subjects/topic-{subject}-value/versions",
        json.dumps({"schema": schema}).encode(),
        {"Content-Type": "application/vnd.schemaregistry.v1+json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)["id"]


@dataclass(frozen=True, slots=True)
class Post:
    """One request, sent over and over: `body` has `records`, and each answers with `delivered` in its report."""

    path: str
    content_type: str
    body: bytes
    records: int
    delivered: bytes
    is_streamed: bool = False  # the body is one chunk of a request that ends only with the run

    @property
    def head(self) -> bytes:
        length = "Transfer-Encoding: chunked" if self.is_streamed else f"Content-Length: {len(self.body)}"
        lines = (f"POST {self.path} HTTP/1.1", "Host: localhost", f"Content-Type: {self.content_type}", length)
        return "\r\n".join([*lines, "", ""]).encode()


async def post(address: str, what: Post, connections: int, seconds: float) -> tuple[int, float]:
    """Records delivered, and in how many seconds; every connection sends its next request after its last answer."""
    began = time.perf_counter()
    send = _stream if what.is_streamed else _repeat
    counts = await asyncio.gather(*(send(address, what, began + seconds) for _ in range(connections)))
    return sum(counts), time.perf_counter() - began


async def read(address: str, paths: Sequence[bytes], rate: int, seconds: float, seed: int) -> list[float]:
    """Sorted milliseconds of `rate` reads a second, each from when it was due."""
    due: asyncio.Queue[tuple[float, bytes] | None] = asyncio.Queue()
    taken_ms: list[float] = []
    readers = [asyncio.create_task(_read_due(address, due, taken_ms)) for _ in range(READ_CONNECTIONS)]
    rng = random.Random(seed)
    began, sent, count = time.perf_counter(), 0, int(rate * seconds)
    while sent < count:
        now = time.perf_counter() - began
        while sent < count and sent / rate <= now:
            due.put_nowait((began + sent / rate, rng.choice(paths)))
            sent += 1
        await asyncio.sleep(max(0.0, sent / rate - (time.perf_counter() - began)))
    for _ in readers:
        due.put_nowait(None)
    await asyncio.gather(*readers)
    assert len(taken_ms) == count
    return sorted(taken_ms)


async def _repeat(address: str, what: Post, until: float) -> int:
    reader, writer = await _connect(address)
    request, delivered = what.head + what.body, 0
    while time.perf_counter() < until:
        writer.write(request)
        body = await _answer(reader)
        assert body.count(what.delivered) == what.records, body[:500]
        delivered += what.records
    writer.close()
    return delivered


async def _stream(address: str, what: Post, until: float) -> int:
    """One request whose body goes on for the whole run, while its reports are read."""
    reader, writer = await _connect(address)
    chunk = b"%x\r\n%b\r\n" % (len(what.body), what.body)
    counting = asyncio.create_task(_count_reports(reader, what.delivered))
    writer.write(what.head)
    sent = 0
    while time.perf_counter() < until:
        writer.write(chunk)
        sent += what.records
        await writer.drain()  # waits when the gateway reads no further: that is how it holds a fast caller back
        await asyncio.sleep(0)
    writer.write(b"0\r\n\r\n")
    delivered = await asyncio.wait_for(counting, ANSWER_DEADLINE_S)
    assert delivered == sent, f"{sent} records sent, {delivered} delivered"
    writer.close()
    return delivered


async def _count_reports(reader: asyncio.StreamReader, delivered: bytes) -> int:
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in head[:20], head
    count = 0
    while size := int(await reader.readline(), 16):
        piece = await reader.readexactly(size + 2)
        count += piece.count(delivered)
    await reader.readline()
    return count


async def _read_due(address: str, due: "asyncio.Queue[tuple[float, bytes] | None]", taken_ms: list[float]) -> None:
    reader, writer = await _connect(address)
    while (next_one := await due.get()) is not None:
        at, path = next_one
        writer.write(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path)
        await _answer(reader)
        taken_ms.append((time.perf_counter() - at) * 1000)
    writer.close()


async def _answer(reader: asyncio.StreamReader) -> bytes:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    _, _, rest = head.partition(b"\r\ncontent-length:")
    body = await reader.readexactly(int(rest.partition(b"\r\n")[0]))
    assert b" 200 " in head[:20], head + body[:500]
    return body


async def _connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.partition(":")
    return await asyncio.open_connection(host, int(port), limit=1 << 20)


def _is_ready(address: str) -> bool:
    try:
        return bool(get(address, "/health/ready"))
    except (OSError, urllib.error.HTTPError):
        return False
