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

# What os.pwritev is to the kernel: a Python that was built on an old system has no flags to give.
APPEND_CALL = "pwritev2" if hasattr(os, "RWF_DSYNC") else "pwritev"
STOP_DEADLINE_S = 30

SETTINGS = {
    "log.segment.bytes": "20000",
    "log.flush.offset.checkpoint.interval.ms": "100",
    "num.partitions": "2",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
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


class Running:
    """One process that serves; strace may stand between it and us."""

    def __init__(self, process: "subprocess.Popen[str]", pid: int) -> None:
        self._process = process
        self._pid = pid

    def wait(self) -> None:
        """Until it has died."""
        self._process.wait()
        self._close()

    def kill(self) -> None:
        if self._process.poll() is None:
            os.kill(self._pid, signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        """End it cleanly; its exit code."""
        os.kill(self._pid, signal.SIGTERM)
        code = self._process.wait(STOP_DEADLINE_S)
        self._close()
        return code

    def _close(self) -> None:
        if self._process.stdout is not None:
            self._process.stdout.close()


def start_broker(bootstrap: str, data_dir: Path, *, kill_at: tuple[str, int] | None = None) -> Running | None:
    """`penstock serve`, ready; None if it died before. `kill_at`: a system call, and which of its kind in a thread."""
    command = [sys.executable, "-m", "penstock.cli.main", "serve", "--no-gateway", "--http", ""]
    command += ["--log-level", "error", "--data-dir", str(data_dir), "--listen", bootstrap]
    for name, value in SETTINGS.items():
        command += ["-o", f"{name}={value}"]
    if kill_at is not None:
        call, number = kill_at
        trace = ["-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={number}", "-e", "signal=none"]
        command = ["strace", "-f", "-qq", "-o", os.devnull, *trace, *command]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if "kill " in line:
            # Its own id and not strace's, which would let its child live. The last thing it says before it serves.
            return Running(process, int(line.rpartition("kill ")[2]))
    Running(process, 0).wait()
    return None
