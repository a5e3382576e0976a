"""A penstock process that cannot outlive the one that started it.

Called by cli.supervise (brokers) and cli.gateway_keeper; the started process's side by cli.serve and cli.gateway.
Both hold one end of a pair of sockets. The started one says once over it that it is ready (or why not), in one line of
JSON, and stops when its other end is gone, however that went.
It gets no signals from the terminal, only from here: Ctrl-C would otherwise stop all processes at once.
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
from pathlib import Path
from typing import Any

# How the started process is told its end of the socket.
SOCKET_OPTION = "--supervised-by"
# What it says instead of being ready: why it does not start. Its holder tells that on.
REFUSED = "refused"
_LINE_BYTES_MAX = 64 * 1024


class HeldProcess:
    def __init__(self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: Any) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    async def told(self) -> dict[str, Any] | None:
        """Waits until it says that it is ready, or why it will not be; None if it ends without a word."""
        line = await self._reader.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    async def wait(self) -> int:
        return await self._process.wait()

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def release(self) -> None:
        self._writer.close()


async def launch(arguments: Sequence[str], log_file: Path | None) -> HeldProcess:
    """`penstock ARGUMENTS`; what it prints goes to the file, or to this process's own streams."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "penstock", *arguments, SOCKET_OPTION, str(theirs.fileno())]
    with contextlib.ExitStack() as closing:
        closing.callback(theirs.close)
        printed = None
        if log_file is not None:
            log_file.parent.mkdir(parents=True, exist_ok=True)
            printed = closing.enter_context(log_file.open("ab"))
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    reader, writer = await asyncio.open_connection(sock=ours, limit=_LINE_BYTES_MAX)
    return HeldProcess(process, reader, writer)


def how_it_ended(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


# The started process's side


def watch_holder(number: int, stop: Callable[[], None]) -> socket.socket:
    """Call `stop` when whoever holds the other end is gone, however it went."""
    held = socket.socket(fileno=number)
    held.setblocking(False)
    os.set_inheritable(number, False)  # the compactor's process would keep it open
    asyncio.get_running_loop().add_reader(held, stop)
    return held


def tell_holder(held: socket.socket, ready: Mapping[str, Any]) -> None:
    with contextlib.suppress(OSError):
        held.sendall(json.dumps(ready).encode() + b"\n")
