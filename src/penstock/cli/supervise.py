"""Several brokers as processes of this host, kept running by this one, and stopped with it.

Called by cli.serve (`serve --brokers N`) and cli.cluster_up (`cluster up`).
Laws:
- A broker never outlives this process (cli.held_process).
- A broker that died is started again, at the address it had; one that cannot start the first time ends everything.
- Brokers stop one after another, so that each can hand its partitions over to those that still run.
- They get no signals from the terminal, only from here: Ctrl-C would otherwise stop all of them at once.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from penstock.cli.held_process import HeldProcess, how_it_ended, launch

STOP_DEADLINE_S = 30.0
BACKOFF_S = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
# After so long a life the next death counts as the first again.
STEADY_AFTER_S = 60.0
COMPANION_FAILED = 2

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


class Supervisor:
    """`say` gets a sentence for people whenever something happens that nobody asked for."""

    def __init__(self, plans: Sequence[BrokerPlan], say: Say) -> None:
        self._plans = {plan.node_id: plan for plan in plans}
        self._say = say
        self._running: dict[int, HeldProcess] = {}
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
                running.send(signal.SIGTERM)
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
            running.send(signal.SIGKILL)

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
                ready = await _ready(running)
                if ready is not None:
                    address = _kept_address(ready)
                    if not first.done():
                        first.set_result(ready)
                    elif deaths:
                        self._say(f"broker {node_id} is back (process {ready.process_id})")
                code = await running.wait()
            except asyncio.CancelledError:
                running.send(signal.SIGKILL)
                await running.wait()
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
            self._say(f"broker {node_id} ended ({how_it_ended(code)}) and is started again in {pause_s:g} s")
            await asyncio.sleep(pause_s)


async def _launch(plan: BrokerPlan, address: Mapping[str, str]) -> HeldProcess:
    command = ["serve", *plan.arguments]
    for name, value in {**plan.settings, **address}.items():
        command += ["-o", f"{name}={value}"]
    return await launch(command, plan.log_file)


async def _ready(running: HeldProcess) -> Ready | None:
    """Waits until the broker answers; None if it ends before."""
    told = await running.told()
    return None if told is None else Ready(**told)


def _kept_address(ready: Ready) -> dict[str, str]:
    """Ports that were free when it first started: clients look for it there after its death."""
    address = {"listeners": ready.bound}
    if ready.http is not None:
        address["penstock.http.listen"] = ready.http
    return address


class Companion(Protocol):
    """What was started beside the brokers, and stops before them; without it they shall not run if it has failed."""

    has_failed: asyncio.Event
    failure: str

    async def stop(self) -> None: ...


async def first_of(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for each in waits:
        each.cancel()


async def run_until_stopped(
    supervisor: Supervisor, on_ready: Callable[[list[Ready]], Companion | None], say: Say
) -> int:
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
        companion = on_ready(starting.result())
        if companion is not None:
            await first_of(stopping, companion.has_failed)
            if not stopping.is_set():
                say(companion.failure)
                await supervisor.stop()
                return COMPANION_FAILED
        await waiting
        say("stopping the brokers one after another; a second signal ends at once, without a clean mark")
        if companion is not None:
            await companion.stop()
        await supervisor.stop()
        return 0
    except StartFailed as failure:
        say(str(failure))
        return failure.exit_code if failure.exit_code > 0 else 1
    finally:
        waiting.cancel()
