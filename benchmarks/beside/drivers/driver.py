"""The frame of every client process: prepare, say so, wait for the word, work, tell what it took.

A driver calls main() with its acts. An act gets the Job, connects and warms up, and gives back the work to be timed.
Its own CPU is counted around the work alone; the process that asked counts the broker's meanwhile. Every driver has
the acts `create` and `clear`, done before and after by the same process, which saves two that only start.
"""

import asyncio
import contextlib
import json
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping

from job import Job, Outcome, percentiles

Work = Callable[[], Outcome]
Act = Callable[[Job], Work]
Prepared = Callable[[], Awaitable[Outcome]]
AsyncAct = Callable[[Job], Awaitable[Prepared]]

READY, CREATE, CLEAR = "ready", "create", "clear"
LOOK_EVERY_S = 0.005


def main(acts: Mapping[str, Act]) -> None:
    job = Job(**json.loads(sys.argv[1]))
    if job.act not in acts:
        sys.exit(f"this client has no act {job.act}; it has {', '.join(acts)}")
    if job.creates:
        acts[CREATE](job)()
    work = acts[job.act](job)
    print(READY, flush=True)
    sys.stdin.readline()
    cpu_s, began = time.process_time(), time.perf_counter()
    outcome = work()
    seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu_s
    if outcome.verify is not None:
        outcome.verify()
    answer = {
        "messages": outcome.messages,
        "size_bytes": outcome.size_bytes,
        "seconds": seconds,
        "client_cpu_s": cpu_s,
        "figures": {**outcome.figures, **percentiles(outcome.latencies_ms)},
    }
    print(json.dumps(answer), flush=True)
    # What it holds (connections, memberships) may be looked at now; the other side ends it.
    for line in sys.stdin:
        if line.strip() == CLEAR:
            acts[CLEAR](job)()
            print(CLEAR, flush=True)


def wait_until_listening(address: str, deadline_s: float) -> None:
    """For clients that wait long before they try again, while the start of a server is timed."""
    host, _, port = address.partition(":")
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
            return
        time.sleep(LOOK_EVERY_S)
    raise TimeoutError(f"nobody listened at {address} within {deadline_s:.0f} s")


def on_a_loop(act: AsyncAct) -> Act:
    """An act of coroutines as one that main() knows: prepared and run on one loop."""

    def prepare(job: Job) -> Work:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)

        async def prepared() -> Prepared:
            return await act(job)

        work = loop.run_until_complete(prepared())

        async def worked() -> Outcome:
            return await work()

        return lambda: loop.run_until_complete(worked())

    return prepare
