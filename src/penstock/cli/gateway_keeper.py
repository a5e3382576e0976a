"""The gateway beside the brokers that this process runs or supervises: a process of its own, kept running.

Called by cli.serve, cli.serve_many and cli.cluster_up once their brokers answer.
Laws:
- The brokers never wait for the gateway. Without one that was not asked for they go on: why it is not there is said,
  once and in one line. One that was asked for by name and does not start sets `has_failed`, and the caller ends.
- A gateway that died is started again, at the address it had. One that cannot start the first time is not tried again:
  its port belongs to somebody else, or it cannot be imported, and neither mends itself.
"""

import asyncio
import contextlib
import signal
from collections.abc import Sequence
from pathlib import Path

from penstock.cli.gateway_choice import GatewayChoice
from penstock.cli.held_process import REFUSED, HeldProcess, how_it_ended, launch
from penstock.cli.supervise import BACKOFF_S, STEADY_AFTER_S, Ready, Say
from penstock.config.addresses import parse_endpoint

STOP_DEADLINE_S = 15.0


def start_gateway(
    choice: GatewayChoice | None, ready: Sequence[Ready], say: Say, warn: Say, log_file: Path | None = None
) -> "GatewayKeeper | None":
    """A gateway for brokers that just said that they are ready; None where none is wanted or none can be."""
    if choice is None:
        return None
    why = None if choice.is_asked else choice.why_not()
    if why is not None:
        warn(choice.complaint(why))
        return None
    metrics = [f"--metrics={one.http}" for one in ready if one.http is not None]
    keeper = GatewayKeeper(choice, [one.endpoint for one in ready], metrics, say, warn, log_file)
    keeper.start()
    return keeper


class GatewayKeeper:
    """`say` is told when it is there, `warn` when it is not."""

    def __init__(
        self,
        choice: GatewayChoice,
        bootstrap: Sequence[str],
        arguments: Sequence[str],
        say: Say,
        warn: Say,
        log_file: Path | None = None,
    ) -> None:
        self._choice = choice
        self._listen = choice.listen
        self._arguments = ["--bootstrap", ",".join(bootstrap), *arguments, *choice.arguments]
        self._say = say
        self._warn = warn
        self._log_file = log_file
        self._running: HeldProcess | None = None
        self._is_stopping = False
        self._keeper: asyncio.Task[None] | None = None
        self.has_failed = asyncio.Event()
        self.failure = ""

    def start(self) -> None:
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def stop(self) -> None:
        """Before the brokers: what it was asked to write is still written. Killed if it does not end in time."""
        self._is_stopping = True
        if self._keeper is None:
            return
        if self._running is None:
            self._keeper.cancel()
        else:
            self._running.send(signal.SIGTERM)
        done, _ = await asyncio.wait([self._keeper], timeout=STOP_DEADLINE_S)
        if not done:
            self.kill()
            await asyncio.wait([self._keeper])

    def kill(self) -> None:
        self._is_stopping = True
        if self._running is not None:
            self._running.send(signal.SIGKILL)

    async def _keep(self) -> None:
        deaths, was_there = 0, False
        loop = asyncio.get_running_loop()
        while not self._is_stopping:
            born = loop.time()
            is_ready, end = await self._live(was_there)
            was_there = was_there or is_ready
            if self._is_stopping:
                return
            if not was_there:
                self._give_up(end)
                return
            deaths = 1 if loop.time() - born > STEADY_AFTER_S else deaths + 1
            pause_s = BACKOFF_S[min(deaths, len(BACKOFF_S)) - 1]
            self._warn(f"the gateway ended ({end}) and is started again in {pause_s:g} s")
            await asyncio.sleep(pause_s)

    def _give_up(self, why: str) -> None:
        complaint = self._choice.complaint(why)
        if self._choice.is_asked:
            self.failure = complaint
            self.has_failed.set()
        else:
            self._warn(complaint)

    async def _live(self, was_there: bool) -> tuple[bool, str]:
        """One life: whether it became ready, and how it ended."""
        try:
            running = await launch(["gateway", "--listen", str(self._listen), *self._arguments], self._log_file)
        except OSError as error:
            return False, f"its process cannot be made: {error}"
        self._running = running
        try:
            told = await running.told() or {}
            is_ready = "endpoint" in told
            if is_ready:
                self._listen = parse_endpoint(told["endpoint"])
                self._say(f"gateway is {'back' if was_there else 'ready'}: {told['url']}")
            ended = how_it_ended(await running.wait())
            return is_ready, str(told.get(REFUSED, ended))
        except asyncio.CancelledError:
            running.send(signal.SIGKILL)
            with contextlib.suppress(asyncio.CancelledError):
                await running.wait()
            raise
        finally:
            running.release()
            self._running = None
