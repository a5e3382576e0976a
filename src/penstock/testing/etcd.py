"""A real etcd of one or more members on this machine, to be mistreated: kill, pause, resume, restart.

Called by testing.cluster, by `penstock cluster up --metadata etcd` and by tests. All of it blocks; from a loop, call it
on a thread.
Invariants:
- A member has the same name, ports and directory through all its lives.
- Nothing outlives `stop`, nor this process unless it is killed.
- Whether a member serves is asked of the member itself, never guessed from time passed.
"""

import atexit
import base64
import contextlib
import json
import os
import platform
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.request import HTTPSHandler, OpenerDirector, ProxyHandler, Request, build_opener

from penstock.errors import PenstockError
from penstock.model import Endpoint

START_DEADLINE_S = 60.0
# A leader tries to hand over before it ends; where all end at once it waits for nobody, and killing it loses nothing.
STOP_GRACE_S = 1.0
START_TRIES = 3
ASK_TIMEOUT_S = 2.0
ASK_AGAIN_S = 0.02
# Leases of one second need an election time-out below a second; a loaded machine needs one that is not much below.
HEARTBEAT_MS = 60
ELECTION_MS = 600
QUOTA_BYTES = 2 << 30


class EtcdUnusable(PenstockError):
    """There is no etcd to run, or it did not come up; the message says why."""


@dataclass(frozen=True, slots=True)
class EtcdTls:
    """Certificates for the clients' door: what the server shows, and the CA it asks client certificates of."""

    ca: Path
    cert: Path
    key: Path


def etcd_binary() -> str | None:
    """Where etcd is, or None: tests then skip, and say that Debian's package is etcd-server."""
    return shutil.which("etcd")


class EtcdCluster:
    def __init__(
        self, directory: Path, members: int = 3, *, tls: EtcdTls | None = None, arguments: Sequence[str] = ()
    ) -> None:
        self.directory = directory
        self.members = range(members)
        self.tls = tls
        self._arguments = list(arguments)
        self._ports: list[tuple[int, int]] = []
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def endpoints(self) -> list[Endpoint]:
        return [Endpoint("127.0.0.1", client) for client, _ in self._ports]

    @property
    def url(self) -> str:
        """What a broker calls penstock.metadata."""
        return f"etcd{'s' if self.tls else ''}://{','.join(map(str, self.endpoints))}"

    # The life of the cluster

    def start(self) -> Self:
        """Start all members and return when all serve. Members of an earlier start come back with what they had."""
        binary = etcd_binary()
        if binary is None:
            raise EtcdUnusable("there is no command `etcd` on this machine (Debian: apt-get install etcd-server)")
        atexit.register(self.stop)
        for attempt in range(START_TRIES):
            is_new = not (self.directory / "ports.json").exists()
            self._choose_ports(is_new)
            try:
                for member in self.members:
                    self._spawn(binary, member)
                self.wait_until_healthy(self.members)
                return self
            except BaseException as error:
                self.stop()
                # Another process may have taken a port in the moment between choosing and using it.
                if not (is_new and isinstance(error, EtcdUnusable) and attempt + 1 < START_TRIES):
                    raise
                shutil.rmtree(self.directory)
        raise AssertionError("the last try returns or raises")

    def stop(self) -> None:
        """End every member; data and ports stay for another start."""
        atexit.unregister(self.stop)
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            try:
                process.wait(STOP_GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # What may befall a member

    def is_running(self, member: int) -> bool:
        """Whether there is a process of it, though it may be stopped."""
        return member in self._processes and self._processes[member].poll() is None

    def kill(self, member: int) -> None:
        process = self._processes.pop(member)
        process.kill()
        process.wait()

    def pause(self, member: int) -> None:
        """SIGSTOP: its sockets stay open and say nothing."""
        self._processes[member].send_signal(signal.SIGSTOP)

    def resume(self, member: int) -> None:
        self._processes[member].send_signal(signal.SIGCONT)

    def restart(self, member: int, *, wait: bool = True) -> None:
        """Start a member that was killed, or kill and start it; returns when it serves, which takes a majority."""
        if member in self._processes:
            self.kill(member)
        binary = etcd_binary()
        assert binary is not None, "it was there at the start"
        self._spawn(binary, member)
        if wait:
            self.wait_until_healthy([member])

    # Questions to the members

    def wait_until_healthy(self, members: Sequence[int]) -> None:
        """Return when each of them knows a leader and can commit."""
        ends_at = time.monotonic() + START_DEADLINE_S
        for member in members:
            while not self._is_healthy(member):
                code = self._processes[member].poll()
                if code is not None:
                    raise EtcdUnusable(f"etcd member {member} ended with {code}: {self._last_words(member)}")
                if time.monotonic() > ends_at:
                    words = self._last_words(member)
                    raise EtcdUnusable(f"etcd member {member} not healthy within {START_DEADLINE_S:g} s: {words}")
                time.sleep(ASK_AGAIN_S)

    def leader(self) -> int:
        """The member that leads, as the first one that answers tells it."""
        ids: dict[str, int] = {}
        leader = "0"
        for member in self._processes:
            with contextlib.suppress(OSError):
                status = self.ask(member, "maintenance/status", {})
                ids[status["header"]["member_id"]] = member
                leader = status.get("leader", "0")
        if leader not in ids:
            raise EtcdUnusable("etcd has no leader that answers")
        return ids[leader]

    def ask(self, member: int, method: str, body: Mapping[str, Any], token: str = "") -> dict[str, Any]:
        """One call of etcd's JSON gateway, as "kv/range"; bytes are base64 there, see `encoded`."""
        headers = {"content-type": "application/json"} | ({"authorization": token} if token else {})
        request = Request(f"{self._http(member)}/v3/{method}", json.dumps(body).encode(), headers)
        with self._opener().open(request, timeout=ASK_TIMEOUT_S) as reply:
            return json.load(reply)

    def enable_auth(self, user: str, password: str) -> None:
        """Ask for a password from now on: root has the same one, and `user` may read and write everything."""
        for name in dict.fromkeys(["root", user]):
            self.ask(0, "auth/user/add", {"name": name, "password": password})
            self.ask(0, "auth/role/add", {"name": name})
            everything = {"permType": "READWRITE", "key": encoded(b"\0"), "range_end": encoded(b"\0")}
            self.ask(0, "auth/role/grant", {"name": name, "perm": everything})
            self.ask(0, "auth/user/grant", {"user": name, "role": name})
        self.ask(0, "auth/enable", {})

    # How a member is run

    def _choose_ports(self, is_new: bool) -> None:
        remembered = self.directory / "ports.json"
        if is_new:
            self.directory.mkdir(parents=True, exist_ok=True)
            ports = _free_ports(2 * len(self.members))
            remembered.write_text(json.dumps(list(zip(ports[::2], ports[1::2], strict=True))))
        self._ports = [(client, peer) for client, peer in json.loads(remembered.read_text())]
        assert len(self._ports) == len(self.members), f"{self.directory} holds an etcd of {len(self._ports)} members"

    def _spawn(self, binary: str, member: int) -> None:
        client, peer = self._ports[member]
        peers = ",".join(f"member-{n}=http://127.0.0.1:{port}" for n, (_, port) in enumerate(self._ports))
        scheme = "https" if self.tls else "http"
        command = [
            binary,
            f"--name=member-{member}",
            f"--data-dir={self.directory / f'member-{member}'}",
            f"--listen-client-urls={scheme}://127.0.0.1:{client}",
            f"--advertise-client-urls={scheme}://127.0.0.1:{client}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster={peers}",
            f"--initial-cluster-token={self._ports[0][1]}",
            f"--heartbeat-interval={HEARTBEAT_MS}",
            f"--election-timeout={ELECTION_MS}",
            # Its history would grow for ever otherwise.
            "--auto-compaction-mode=periodic",
            "--auto-compaction-retention=1h",
            f"--quota-backend-bytes={QUOTA_BYTES}",
            "--logger=zap",
            "--log-outputs=stderr",
            *self._arguments,
        ]
        if self.tls:
            command += [f"--cert-file={self.tls.cert}", f"--key-file={self.tls.key}"]
            command += [f"--trusted-ca-file={self.tls.ca}", "--client-cert-auth"]
        # etcd before 3.5 runs on ARM only where it is told to.
        environment = os.environ | ({"ETCD_UNSUPPORTED_ARCH": "arm64"} if platform.machine() == "aarch64" else {})
        with self._log(member).open("ab") as log:
            # A group of its own: Ctrl-C in the terminal is for whoever started us, who then stops the members.
            self._processes[member] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
            )

    def _is_healthy(self, member: int) -> bool:
        try:
            with self._opener().open(f"{self._http(member)}/health", timeout=ASK_TIMEOUT_S) as reply:
                return json.load(reply)["health"] == "true"
        except (OSError, ValueError):
            return False

    def _http(self, member: int) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self._ports[member][0]}"

    def _opener(self) -> OpenerDirector:
        # A proxy named in the environment does not lead to this machine's own ports.
        if self.tls is None:
            return build_opener(ProxyHandler({}))
        context = ssl.create_default_context(cafile=str(self.tls.ca))
        context.load_cert_chain(self.tls.cert, self.tls.key)
        return build_opener(ProxyHandler({}), HTTPSHandler(context=context))

    def _log(self, member: int) -> Path:
        return self.directory / f"member-{member}.log"

    def _last_words(self, member: int) -> str:
        lines = self._log(member).read_text(errors="replace").split("\n")
        return "; ".join([line.strip() for line in lines if line.strip()][-3:]) or "it said nothing"


def encoded(text: bytes) -> str:
    """Bytes as the JSON gateway takes them."""
    return base64.b64encode(text).decode()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
