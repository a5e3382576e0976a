"""Several brokers as processes of this host, kept running by this one, and stopped with it.

Called by cli.serve (`serve --brokers N`) and cli.cluster_up (`cluster up`).
Laws:
- A broker never outlives this process: it holds one end of a socket whose other end is here, and stops when that ends.
- A broker that died is started again, at the address it had; one that cannot start the first time ends everything.
- Brokers stop one after another, so that each can hand its partitions over to those that still run.
- They get no signals from the terminal, only from here: Ctrl-C would otherwise stop all of them at once.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# A supervised broker is told its end of the socket by this option of `serve`.
SOCKET_OPTION = "--supervised-by"

STOP_DEADLINE_S = 30.0
BACKOFF_S = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
# After so long a life the next death counts as the first again.
STEADY_AFTER_S = 60.0
_READY_BYTES_MAX = 64 * 1024

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    """A broker to be run: what `serve` is told, and what differs from its neighbours, which wins over that."""

    node_id: int
    arguments: tuple[str, ...]
    settings: dict[str, str]
    data_dir: Path
    log_file: Path | None = None  # None: this process's own stderr


@dataclass(frozen=True, slots=True)
class Ready:
    """What a broker says of itself once it answers clients."""

    node_id: int
    process_id: int
    endpoint: str
    bound: str
    http: str | None

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


class StartFailed(Exception):
    """A broker that never answered; it has said why itself."""

    def __init__(self, node_id: int, exit_code: int, log_file: Path | None) -> None:
        where = "" if log_file is None else f"; {log_file} says why"
        super().__init__(f"broker {node_id} did not start (exit code {exit_code}){where}")
        self.exit_code = exit_code


class _Running:
    """One process and the socket it is held by."""

    def __init__(self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: Any) -> None:
        self.process = process
        self._reader = reader
        self._writer = writer

    async def ready(self) -> Ready | None:
        """Waits until the broker answers; None if it ends before."""
        line = await self._reader.readline()
        return Ready(**json.loads(line)) if line.endswith(b"\n") else None

    def release(self) -> None:
        self._writer.close()


class Supervisor:
    """`say` gets a sentence for people whenever something happens that nobody asked for."""

    def __init__(self, plans: Sequence[BrokerPlan], say: Say) -> None:
        self._plans = {plan.node_id: plan for plan in plans}
        self._say = say
        self._running: dict[int, _Running] = {}
        self._keepers: dict[int, asyncio.Task[None]] = {}
        self._first: dict[int, asyncio.Future[Ready]] = {}
        self._stopping: set[int] = set()

    async def start(self) -> list[Ready]:
        """All brokers at once; returns when every one of them answers. Raises StartFailed."""
        loop = asyncio.get_running_loop()
        for node_id in self._plans:
            self._first[node_id] = loop.create_future()
            self._keepers[node_id] = loop.create_task(self._keep(node_id))
        try:
            return list(await asyncio.gather(*self._first.values()))
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """The youngest first. One that does not end in time is killed."""
        for node_id in sorted(self._plans, reverse=True):
            self._stopping.add(node_id)
            keeper = self._keepers.get(node_id)
            if keeper is None:
                continue
            running = self._running.get(node_id)
            if running is None:
                # Between two lives, or before the first.
                keeper.cancel()
            else:
                _signal(running.process, signal.SIGTERM)
            done, _ = await asyncio.wait([keeper], timeout=STOP_DEADLINE_S)
            if not done:
                self._say(f"broker {node_id} did not stop within {STOP_DEADLINE_S:g} s and is killed")
                self._kill(node_id)
                await asyncio.wait([keeper])
        for future in self._first.values():
            if future.done() and not future.cancelled():
                future.exception()
            future.cancel()

    def kill_all(self) -> None:
        """At once, as a crash would."""
        for node_id in self._plans:
            self._stopping.add(node_id)
            self._kill(node_id)

    def _kill(self, node_id: int) -> None:
        running = self._running.get(node_id)
        if running is not None:
            _signal(running.process, signal.SIGKILL)

    async def _keep(self, node_id: int) -> None:
        """One broker's lives, until it is to stop."""
        plan, first = self._plans[node_id], self._first[node_id]
        address: dict[str, str] = {}
        deaths = 0
        loop = asyncio.get_running_loop()
        while node_id not in self._stopping:
            born = loop.time()
            try:
                running = self._running[node_id] = await _launch(plan, address)
            except OSError as error:
                # No process, no descriptor or no room for the log: as bad as a broker that cannot start.
                if first.done():
                    self._say(f"broker {node_id} cannot be started: {error}; trying again in {BACKOFF_S[-1]:g} s")
                    await asyncio.sleep(BACKOFF_S[-1])
                    continue
                first.set_exception(error)
                return
            try:
                ready = await running.ready()
                if ready is not None:
                    address = _kept_address(ready)
                    if not first.done():
                        first.set_result(ready)
                    elif deaths:
                        self._say(f"broker {node_id} is back (process {ready.process_id})")
                code = await running.process.wait()
            except asyncio.CancelledError:
                _signal(running.process, signal.SIGKILL)
                await running.process.wait()
                raise
            finally:
                running.release()
                self._running.pop(node_id, None)
            if node_id in self._stopping:
                return
            if not first.done():
                first.set_exception(StartFailed(node_id, code, plan.log_file))
                return
            deaths = 1 if loop.time() - born > STEADY_AFTER_S else deaths + 1
            pause_s = BACKOFF_S[min(deaths, len(BACKOFF_S)) - 1]
            self._say(f"broker {node_id} ended ({_how(code)}) and is started again in {pause_s:g} s")
            await asyncio.sleep(pause_s)


async def _launch(plan: BrokerPlan, address: Mapping[str, str]) -> _Running:
    ours, theirs = socket.socketpair()
    settings = {**plan.settings, **address}
    command = [sys.executable, "-m", "penstock", "serve", *plan.arguments, SOCKET_OPTION, str(theirs.fileno())]
    for name, value in settings.items():
        command += ["-o", f"{name}={value}"]
    with contextlib.ExitStack() as closing:
        closing.callback(theirs.close)
        errors = None
        if plan.log_file is not None:
            plan.log_file.parent.mkdir(parents=True, exist_ok=True)
            errors = closing.enter_context(plan.log_file.open("ab"))
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    reader, writer = await asyncio.open_connection(sock=ours, limit=_READY_BYTES_MAX)
    return _Running(process, reader, writer)


def _kept_address(ready: Ready) -> dict[str, str]:
    """Ports that were free when it first started: clients look for it there after its death."""
    address = {"listeners": ready.bound}
    if ready.http is not None:
        address["penstock.http.listen"] = ready.http
    return address


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


# The broker's side


def watch_supervisor(number: int, stop: Callable[[], None]) -> socket.socket:
    """In the broker: call `stop` when whoever holds the other end is gone, however it went."""
    held = socket.socket(fileno=number)
    held.setblocking(False)
    os.set_inheritable(number, False)  # the compactor's process would keep it open
    asyncio.get_running_loop().add_reader(held, stop)
    return held


def tell_supervisor(held: socket.socket, ready: Ready) -> None:
    with contextlib.suppress(OSError):
        held.sendall(json.dumps(ready.as_json()).encode() + b"\n")


async def run_until_stopped(supervisor: Supervisor, on_ready: Callable[[list[Ready]], None], say: Say) -> int:
    """Start, wait for SIGINT or SIGTERM, stop in order; a second signal kills at once. Gives the exit code."""
    stopping = asyncio.Event()

    def stop(number: int) -> None:
        if stopping.is_set():
            supervisor.kill_all()
            os._exit(128 + number)
        stopping.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    starting = loop.create_task(supervisor.start())
    waiting = loop.create_task(stopping.wait())
    await asyncio.wait([starting, waiting], return_when=asyncio.FIRST_COMPLETED)
    try:
        if not starting.done():
            say("stopping before all brokers are ready; a second signal ends at once")
            starting.cancel()
            await asyncio.wait([starting])
            return 0
        on_ready(starting.result())
        await waiting
        say("stopping the brokers one after another; a second signal ends at once, without a clean mark")
        await supervisor.stop()
        return 0
    except StartFailed as failure:
        say(str(failure))
        return failure.exit_code if failure.exit_code > 0 else 1
    finally:
        waiting.cancel()
