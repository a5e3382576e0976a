"""A peer that runs: its processes, what they use, and their certain end.

Called by beside/. Laws:
- Every node is a process group of its own; leaving `running()`, however it is left, ends the whole group.
- Usage is that of all processes of all nodes together: a node may be several.
"""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import psutil

from .model import HOST, Node, Plan

CHECKOUT = Path(__file__).resolve().parents[2]
START_DEADLINE_S = 300.0
STOP_DEADLINE_S = 60.0
LOOK_EVERY_S = 0.002


@dataclass(frozen=True, slots=True)
class Usage:
    cpu_s: float = 0.0
    rss_bytes: int = 0
    written_bytes: int = 0  # handed to the storage layer, as /proc/PID/io counts it

    def since(self, before: "Usage") -> "Usage":
        """CPU and bytes of the time between; memory as it is now."""
        return Usage(self.cpu_s - before.cpu_s, self.rss_bytes, self.written_bytes - before.written_bytes)


class PeerDied(Exception):
    """A node ended by itself, or did not come up; says what its log said last."""


class Running:
    def __init__(self, plan: Plan, log: Path) -> None:
        self.plan = plan
        self.address = plan.address
        self._log = log
        self._children: list[subprocess.Popen[bytes]] = []

    def prepare(self) -> None:
        for command in self.plan.prepare:
            with self._log.open("ab") as log:
                subprocess.run(command, stdout=log, stderr=log, check=True, timeout=START_DEADLINE_S)

    def start(self) -> None:
        """Give the commands; `wait_until_up` waits."""
        for node in self.plan.nodes:
            with self._log.open("ab") as log:
                child = subprocess.Popen(
                    node.command,
                    env=_environment(node),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            self._children.append(child)

    def wait_until_up(self) -> None:
        deadline = time.monotonic() + START_DEADLINE_S
        for node, child in zip(self.plan.nodes, self._children, strict=True):
            while not _accepts(node.port):
                if child.poll() is not None:
                    raise PeerDied(f"{Path(node.command[0]).name} ended with {child.returncode}: {self.last_words()}")
                if time.monotonic() > deadline:
                    raise PeerDied(f"{Path(node.command[0]).name} did not listen within {START_DEADLINE_S:.0f} s")
                time.sleep(LOOK_EVERY_S)

    def usage(self) -> Usage:
        cpu_s, rss, written = 0.0, 0, 0
        for process in self._processes():
            # One that ended in between has nothing more to tell.
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                cpu_s += times.user + times.system
                rss += process.memory_info().rss
                written += process.io_counters().write_bytes
        return Usage(cpu_s, rss, written)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def last_words(self) -> str:
        """Without the name of the folder that we are in, which is nobody's business in a report."""
        said = self._log.read_text(errors="replace")[-500:] if self._log.exists() else ""
        return said.replace(f"{CHECKOUT}/", "")

    def _processes(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for child in self._children:
            with contextlib.suppress(psutil.Error):
                first = psutil.Process(child.pid)
                found += [first, *first.children(recursive=True)]
        return found

    def _end(self, how: signal.Signals) -> None:
        tree = self._processes()
        children, self._children = self._children, []
        for child in children:
            _signal_group(child.pid, how)
        try:
            for child in children:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(STOP_DEADLINE_S)
        finally:
            # What is left: a node that does not stop, or that we no longer wait for; what it started; and, through the
            # tree, those that made a group of their own.
            for child in children:
                _signal_group(child.pid, signal.SIGKILL)
                child.wait()
            for process in tree:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
                while _lives(process):
                    time.sleep(LOOK_EVERY_S)


@contextlib.contextmanager
def running(plan: Plan, log: Path) -> Generator[Running]:
    """Prepared, started and listening; ended at the end."""
    peer = Running(plan, log)
    try:
        peer.prepare()
        peer.start()
        peer.wait_until_up()
        yield peer
    finally:
        peer.stop()


def _environment(node: Node) -> dict[str, str]:
    # Byte code is cached for a user; an environment that forbids it would measure the compiler.
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**own, **node.environment}


def _accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
        return True
    return False


def _lives(process: psutil.Process) -> bool:
    """One that ended and that nobody asked for its exit code no longer does."""
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _signal_group(pid: int, how: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, how)
