"""A broker in a process of its own, which strace kills in the middle of a system call.

What a process has written before it is killed stays in the kernel, so this is the crash of a broker, not of a machine.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

READY = "is ready"
STOP_DEADLINE_S = 30

SETTINGS = {
    "log.segment.bytes": "20000",
    "log.flush.offset.checkpoint.interval.ms": "100",
    "num.partitions": "2",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


def why_not_traced() -> str | None:
    """Why no process can be killed in a system call here; None if it can."""
    strace = shutil.which("strace")
    if strace is None:
        return "strace is not installed"
    tried = subprocess.run([strace, "-qq", "-o", os.devnull, "true"], capture_output=True, text=True)
    return None if tried.returncode == 0 else f"strace may not trace here: {tried.stderr.strip()}"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class BrokerProcess:
    """`penstock serve` on one port and one directory; started as often as it has to be."""

    def __init__(self, data_dir: Path) -> None:
        self.bootstrap = f"127.0.0.1:{free_port()}"
        self._data_dir = data_dir
        self._process: subprocess.Popen[str] | None = None
        self._pid = 0

    def start(self, *, kill_at: tuple[str, int] | None = None) -> bool:
        """Start, and say whether it came up. `kill_at`: the system call, and which one of its kind in a thread."""
        command = [sys.executable, "-m", "penstock.cli.main", "serve", "--http", "", "--log-level", "error"]
        command += ["--data-dir", str(self._data_dir), "--listen", self.bootstrap]
        for name, value in SETTINGS.items():
            command += ["-o", f"{name}={value}"]
        if kill_at is not None:
            call, number = kill_at
            trace = ["-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={number}", "-e", "signal=none"]
            command = ["strace", "-f", "-qq", "-o", os.devnull, *trace, *command]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        is_ready = False
        for line in self._process.stdout:
            is_ready |= READY in line
            if "kill " in line:
                # Not strace's own id: strace would let its child live.
                self._pid = int(line.rpartition("kill ")[2])
                return is_ready
        self._process.wait()
        return False

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait(self) -> None:
        """Until it has died by itself."""
        if self._process is not None:
            self._process.wait()
            self._close()

    def kill(self) -> None:
        if self.is_alive:
            os.kill(self._pid, signal.SIGKILL)
            self.wait()

    def stop(self) -> int:
        """End it cleanly; its exit code."""
        assert self._process is not None
        os.kill(self._pid, signal.SIGTERM)
        code = self._process.wait(STOP_DEADLINE_S)
        self._close()
        return code

    def _close(self) -> None:
        assert self._process is not None
        if self._process.stdout is not None:
            self._process.stdout.close()
