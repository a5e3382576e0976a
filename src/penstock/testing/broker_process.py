"""One broker of a test cluster in a process of its own, and what can be done to a process.

Used by testing.cluster. `penstock serve` as users run it; its log goes to a file that outlives it, and a socket to us
tells it when we are gone, so that no broker outlives a test that was killed.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

START_DEADLINE_S = 60.0
STOP_DEADLINE_S = 60.0


class BrokerDidNotStart(AssertionError):
    """The process ended, or said nothing in time. The end of its log is in the message."""


class BrokerProcess:
    def __init__(self, node_id: int, data_dir: Path, log_path: Path) -> None:
        self.node_id = node_id
        self.data_dir = data_dir
        self.log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"broker {self.node_id} was never started"
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.poll()

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def spawn(self, listen: str, settings: Mapping[str, str], prefix: Sequence[str], extra: Mapping[str, str]) -> None:
        """Begin to start; `wait_ready` tells when it serves. `extra` goes to its environment."""
        assert not self.is_alive, f"broker {self.node_id} runs already"
        command = [*prefix, sys.executable, "-m", "penstock", "serve", "--node-id", str(self.node_id)]
        command += ["--no-gateway", "--data-dir", str(self.data_dir), "--listen", listen]
        for name, value in settings.items():
            command += ["-o", f"{name}={value}"]
        self._line, theirs = socket.socketpair()
        command += ["--supervised-by", str(theirs.fileno())]
        with theirs, self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, **extra},
                pass_fds=[theirs.fileno()],
            )

    def wait_ready(self) -> None:
        assert self._process is not None
        assert self._line is not None
        self._line.settimeout(START_DEADLINE_S)
        try:
            is_ready = self._line.recv(1) != b""
        except TimeoutError:
            is_ready = False
        if not is_ready:
            self.kill()
            raise BrokerDidNotStart(
                f"broker {self.node_id} did not start (exit code {self.exit_code}):\n{self.log[-4000:]}"
            )

    def kill(self) -> None:
        """SIGKILL. What it has written stays in the kernel, so this is the crash of a process, not of a machine."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
        self._close()

    def ask_to_stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def terminate(self) -> int:
        """SIGTERM, and the exit code of the stop."""
        if self.is_alive:
            self.resume()
            self.ask_to_stop()
        assert self._process is not None
        try:
            return self._process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        finally:
            self._close()

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        if self.is_alive:
            os.kill(self.pid, signal.SIGCONT)

    def _close(self) -> None:
        if self._process is not None:
            self._process.wait(STOP_DEADLINE_S)
        if self._line is not None:
            self._line.close()
            self._line = None
