"""One event loop for a whole cluster: virtual time, every callback known to belong to one host, nothing left to chance.

Called by cluster, which builds a `World` for each seed, and by the network, the disks and the store of that world.
Laws:
- Time passes only when nobody has anything left to do; a seed of half a minute takes as long as its work.
- Whatever runs, runs in the context of the host that asked for it (`HOST`). A host that is stopped (SIGSTOP) keeps its
  callbacks until it goes on; those of a host's earlier life are never run again, as nothing of a killed process is.
- Whatever could differ between two runs of a seed comes from `World.chance`, and leaves its mark in `World.trace`:
  two runs of a seed with the same trace did the same.
"""

import asyncio
import contextlib
import contextvars
import heapq
import random
import zlib
from collections import deque
from collections.abc import Callable
from typing import Any

START_S = 1_000.0
# More turns without time passing than any honest burst of work takes: two tasks that keep waking each other.
TURNS_AT_ONE_TIME_MAX = 200_000


class Host:
    """One life of one machine's process, or a client, or the world itself. A restarted broker is a new Host."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.is_dead = False
        self.is_stopped = False
        self.held: deque[asyncio.Handle] = deque()
        # Tasks are kept: one collected while it waits would run its `finally` at a moment nobody chose.
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.context = contextvars.copy_context()
        self.context.run(HOST.set, self)

    def __repr__(self) -> str:
        return self.name


HOST: contextvars.ContextVar[Host] = contextvars.ContextVar("host")


def current_host() -> Host:
    return HOST.get()


def _may_run(handle: asyncio.Handle) -> bool:
    host = handle._context.get(HOST)
    if host is None:
        return True
    if host.is_stopped and not host.is_dead:
        host.held.append(handle)
    return not (host.is_dead or host.is_stopped)


class _Handle(asyncio.Handle):
    __slots__ = ()

    def _run(self) -> None:
        if _may_run(self):
            super()._run()


class _TimerHandle(asyncio.TimerHandle):
    __slots__ = ()

    def _run(self) -> None:
        if _may_run(self):
            super()._run()


class _Future(asyncio.Future[Any]):
    """Sets of futures are walked in the order of their hashes: those must not be addresses of memory."""

    __slots__ = ("serial",)

    def __init__(self, serial: int, *, loop: asyncio.AbstractEventLoop) -> None:
        self.serial = serial
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.serial


class _Task(asyncio.Task[Any]):
    __slots__ = ("serial",)

    def __init__(self, serial: int, coroutine: Any, **options: Any) -> None:
        self.serial = serial
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self.serial


class _InstantSelector:
    """Instead of waiting for time to pass, lets it have passed."""

    def __init__(self) -> None:
        self.now = START_S
        self.turns = 0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise AssertionError("everybody waits, and nothing will ever happen")
        if timeout > 0:
            self.now += timeout
            self.turns = 0
        else:
            self.turns += 1
            assert self.turns < TURNS_AT_ONE_TIME_MAX, "somebody is busy for ever"
        return []


class SimulatedLoop(asyncio.BaseEventLoop):
    def __init__(self, world: "World") -> None:
        super().__init__()
        self._selector = _InstantSelector()
        self.world = world
        self._serial = 0
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        return self._selector.now

    def create_future(self) -> asyncio.Future[Any]:
        self._serial += 1
        return _Future(self._serial, loop=self)

    def _make_task(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        self._serial += 1
        task = _Task(self._serial, coroutine, loop=loop, **options)
        host = HOST.get(None)
        if host is not None:
            host.tasks[task] = None
            task.add_done_callback(lambda done: host.tasks.pop(done, None))
        return task

    # Every callback goes through one of these two. They are asyncio's own, with our handles.

    def _call_soon(self, callback: Any, args: Any, context: contextvars.Context | None) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        self._check_closed()
        timer = _TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True
        return timer

    # The network is simulated: what asyncio.open_connection and the listener call.

    async def create_connection(self, protocol_factory: Any, host: str, port: int, **_: Any) -> Any:
        return await self.world.network.connect(protocol_factory, host, port)

    async def create_server(
        self, protocol_factory: Any, host: str, port: int, *, start_serving: bool = True, **_: Any
    ) -> Any:
        return self.world.network.listen(protocol_factory, host, port, start_serving=start_serving)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.world.unexpected(context)

    def run_in_executor(self, *_: Any) -> Any:
        raise AssertionError("there are no threads in a simulation")

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        pass

    def _process_events(self, event_list: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


class World:
    """What all of one seed share: the loop, chance, the trace, and what went wrong."""

    network: Any

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.loop = SimulatedLoop(self)
        # Not of any broker: timers of the network and of the store, which nobody can stop.
        self.nature = Host("nature", "")
        self.trace = 0
        # What differs between two runs and means nothing, a temporary directory, is left out of what is told.
        self.hidden = "\0"
        self.events: list[tuple[float, str]] = []
        self.problems: list[str] = []
        self.buried: list[Host] = []

    @property
    def elapsed_s(self) -> float:
        return self.loop.time() - START_S

    def now(self) -> float:
        return self.loop.time()

    def mark(self, *what: object) -> None:
        """Leave a mark in the trace, in which any two runs of this seed must agree."""
        self.trace = zlib.crc32(repr((self.elapsed_s, *what)).encode(), self.trace)

    def tell(self, what: str) -> None:
        """One line of what happened, for people."""
        what = what.replace(self.hidden, "")
        self.events.append((self.elapsed_s, what))
        self.mark(what)

    def problem(self, what: str) -> None:
        self.problems.append(f"{self.elapsed_s:.3f}: {what}")
        self.tell(f"PROBLEM {what}")

    def unexpected(self, context: dict[str, Any]) -> None:
        host = HOST.get(None)
        if host is not None and host.is_dead:
            return
        error = context.get("exception")
        self.problem(f"{host}: {context.get('message')}: {error!r}")

    def after(self, delay_s: float, act: Callable[..., object], *arguments: Any) -> asyncio.TimerHandle:
        """Something that happens by itself, whoever is dead or stopped by then."""
        return self.loop.call_later(delay_s, act, *arguments, context=self.nature.context)

    def soon_on(self, host: Host, act: Callable[..., object], *arguments: Any) -> None:
        """Something the kernel hands to a host: it waits while that is stopped, and is lost where it is dead."""
        self.loop.call_soon(act, *arguments, context=host.context)

    def spawn(self, host: Host, work: Any) -> asyncio.Task[Any]:
        """A task of this host's, whoever starts it."""
        return host.context.copy().run(self.loop.create_task, work)

    def stop_host(self, host: Host) -> None:
        host.is_stopped = True

    def continue_host(self, host: Host) -> None:
        host.is_stopped = False
        while host.held:
            handle = host.held.popleft()
            if not handle.cancelled():
                self.loop._ready.append(handle)

    def bury(self, host: Host) -> None:
        """End a host's life at once, in the middle of whatever it does. Its memory is kept until the seed is over."""
        host.is_dead = True
        host.held.clear()
        self.buried.append(host)

    def close(self) -> None:
        """Let everything go, quietly: what was killed must not speak at its own funeral."""
        self.loop.call_exception_handler = lambda context: None
        for host in (*self.buried, self.nature):
            host.is_dead = True
            for task in tuple(host.tasks):
                task._log_destroy_pending = False
                # Its `finally` blocks run now, while there is a loop to run them on; what they ask for never happens.
                with contextlib.suppress(BaseException):
                    task.get_coro().close()
        self.loop._ready.clear()
        self.loop._scheduled.clear()
        self.loop.close()
