"""What this machine can do at all: loopback TCP, writes into the page cache, syncs, librdkafka without a broker.

Called by command.py. The figures a broker's are held against. Those that a target names are measured once in each
round of its workload, beside the peers; all of them together, with `--only limits`, tell about the machine.
"""

import os
import socket
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..peers.model import HOST, Driver, Node, Plan, free_port
from ..peers.running import running
from . import driving
from .drivers.job import TICKS_PER_S, Job, percentiles, schedule
from .rounds import Say, scratch
from .workloads import LIMIT

BLOCK = b"x" * (1 << 20)
TCP_BYTES = 4 << 30
REPLY_BYTES = 8 << 20  # what kafka_raw asks for at once
WRITE_BYTES = 1 << 30
SYNCS = 500
SYNC_BYTES = 4_096
MESSAGES = 2_000_000
LATENCY_RATE, LATENCY_MESSAGES, MESSAGE_BYTES = 10_000, 100_000, 100
QUICK_DIVISOR = 100
NULL_BROKER = Path(__file__).parent / "null_broker.py"


def loopback_tcp(divisor: int) -> dict[str, float]:
    """One connection, large blocks: two threads, both of which wait in the kernel and not for each other."""
    total = TCP_BYTES // divisor
    with socket.create_server((HOST, 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        receiver, _ = listener.accept()

    def send() -> None:
        left = total
        while left > 0:
            sender.sendall(BLOCK)
            left -= len(BLOCK)
        sender.shutdown(socket.SHUT_WR)

    with sender, receiver:
        buffer = bytearray(len(BLOCK))
        began = time.perf_counter()
        thread = threading.Thread(target=send)
        thread.start()
        got = 0
        while more := receiver.recv_into(buffer):
            got += more
        thread.join()
    return {"mb_per_s": got / (time.perf_counter() - began) / 1e6}


def loopback_replies(divisor: int) -> dict[str, float]:
    """The same for a client that asks for 8 MB, waits for all of it and asks again, as one that fetches does."""
    rounds = max(1, TCP_BYTES // REPLY_BYTES // divisor)
    with socket.create_server((HOST, 0)) as listener:
        asker = socket.create_connection(listener.getsockname())
        answerer, _ = listener.accept()
    content = bytes(REPLY_BYTES)

    def answer() -> None:
        while answerer.recv(1):
            answerer.sendall(content)

    with asker, answerer:
        asker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        thread = threading.Thread(target=answer)
        thread.start()
        view = memoryview(bytearray(REPLY_BYTES))
        began = time.perf_counter()
        for _ in range(rounds):
            asker.sendall(b"?")
            got = 0
            while got < REPLY_BYTES:
                got += asker.recv_into(view[got:])
        took_s = time.perf_counter() - began
        asker.shutdown(socket.SHUT_WR)
        thread.join()
    return {"mb_per_s": rounds * REPLY_BYTES / took_s / 1e6}


def page_cache_write(divisor: int) -> dict[str, float]:
    blocks = max(1, WRITE_BYTES // divisor // len(BLOCK))
    with scratch() as folder, (folder / "file").open("wb", buffering=0) as file:
        began = time.perf_counter()
        for _ in range(blocks):
            file.write(BLOCK)
        return {"mb_per_s": blocks * len(BLOCK) / (time.perf_counter() - began) / 1e6}


def fsync(divisor: int) -> dict[str, float]:
    """A small append and a sync of it, one after another."""
    taken_ms: list[float] = []
    with scratch() as folder, (folder / "file").open("wb", buffering=0) as file:
        for _ in range(max(10, SYNCS // divisor)):
            file.write(BLOCK[:SYNC_BYTES])
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            taken_ms.append((time.perf_counter() - began) * 1000)
    return {"syncs_per_s": len(taken_ms) / sum(taken_ms) * 1000, **percentiles(taken_ms)}


def fsync_at_rate(divisor: int) -> dict[str, float]:
    """The latency workload with nothing in it but the disk: whatever is due is written and synced, again and again.

    Each message counts from when it was due. So a sync that takes long is felt by all that fell due meanwhile, as a
    broker's clients would feel it; one sync after another counts it once.
    """
    due_s = [after_s for after_s, _ in schedule(LATENCY_RATE, LATENCY_MESSAGES // divisor)]
    content = BLOCK[: MESSAGE_BYTES * LATENCY_RATE // TICKS_PER_S]
    taken_ms: list[float] = []
    with scratch() as folder, (folder / "file").open("wb", buffering=0) as file:
        began = time.monotonic()
        while (first := len(taken_ms)) < len(due_s):
            time.sleep(max(0, began + due_s[first] - time.monotonic()))
            end = max(first + 1, bisect_right(due_s, time.monotonic() - began))
            file.write(content * (end - first))
            os.fdatasync(file.fileno())
            done_s = time.monotonic() - began
            taken_ms += [(done_s - at_s) * 1000 for at_s in due_s[first:end]]
    return percentiles(taken_ms[len(due_s) // 10 :])


def null_broker(divisor: int) -> dict[str, float]:
    """The produce workload of 100-byte messages against a server that throws them away."""
    worked, cpu_s = _against_nobody(Job("produce-only", "", count=MESSAGES // divisor, acks="1"))
    return {
        "messages_per_s": worked.messages / worked.seconds,
        "client_cpu_us_per_message": worked.client_cpu_s / worked.messages * 1e6,
        "broker_cpu_us_per_message": cpu_s / worked.messages * 1e6,
    }


def null_broker_latency(divisor: int) -> dict[str, float]:
    """The latency workload at 10,000 messages/s against the same server: what the client alone makes of it."""
    worked, _ = _against_nobody(Job("latency", "", count=LATENCY_MESSAGES // divisor, rate=LATENCY_RATE, acks="1"))
    return worked.figures


def _against_nobody(job: Job) -> tuple[driving.Worked, float]:
    """How the client fared, and the CPU seconds of the server."""
    port = free_port()
    with scratch() as folder:
        node = Node((sys.executable, str(NULL_BROKER), str(port)), port, folder)
        with (
            running(Plan(f"{HOST}:{port}", (node,)), folder / "log") as server,
            driving.ready_clients(Driver.KAFKA, [replace(job, address=server.address)]) as clients,
        ):
            before = server.usage()
            worked = driving.work(clients)[0]
            return worked, server.usage().since(before).cpu_s


LIMITS: dict[str, Callable[[int], dict[str, float]]] = {
    "loopback-tcp": loopback_tcp,
    "loopback-replies": loopback_replies,
    "page-cache-write": page_cache_write,
    "fsync": fsync,
    "fsync-10k": fsync_at_rate,
    "librdkafka-null-broker": null_broker,
    "librdkafka-null-broker-10k": null_broker_latency,
}


def beside(names: Sequence[str], is_quick: bool) -> dict[str, Callable[[], dict[str, float]]]:
    """Those that a workload is held against, to be measured in its rounds; each gives the workload's own figure."""
    divisor = QUICK_DIVISOR if is_quick else 1
    return {f"{LIMIT}{name}": partial(LIMITS[name], divisor) for name in names}


def measure(rounds: int, is_quick: bool, say: Say) -> dict[str, list[dict[str, float]]]:
    found: dict[str, list[dict[str, float]]] = {name: [] for name in LIMITS}
    for number in range(rounds):
        for name, limit in LIMITS.items():
            say(f"limit {name}, round {number + 1}")
            found[name].append(limit(QUICK_DIVISOR if is_quick else 1))
    return found
