"""Network namespaces: every broker a host of its own on a bridge, and lines between them that go silent.

Built by testing.cluster when asked for and when root allows it. What a cut does here no proxy can do: packets vanish,
also those that would open or end a connection, and TCP finds out by itself.

    clients .1    store .100    broker n .(10 + n)    all on one bridge of this cluster's own

A line is cut by giving the sender a hardware address for its peer that nobody has: the packets go out and no one takes
them. A blackhole route would not do, since it tells the sender.
"""

import ctypes
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from penstock.testing.fault_proxy import CLIENTS, STORE, Party, plain_socket

_NOBODY = "02:00:00:00:00:01"
_CLONE_NEWNET = 0x40000000
_FIRST_NODE = 10
_LINK = "eth0"


def why_no_namespaces() -> str | None:
    """Why brokers cannot have namespaces here; None if they can."""
    if os.geteuid() != 0:
        return "network namespaces take root"
    if shutil.which("ip") is None or shutil.which("nsenter") is None:
        return "ip(8) or nsenter(1) is not installed"
    tried = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True)
    return None if tried.returncode == 0 else f"no network namespace can be made here: {tried.stderr.strip()}"


class Namespaces:
    def __init__(self, nodes: Sequence[int]) -> None:
        # The name of a device has 15 characters at most.
        self._bridge = f"pk{os.getpid():x}{os.urandom(2).hex()}"
        self._subnet = f"10.{200 + os.urandom(1)[0] % 50}.{os.urandom(1)[0]}"
        self._nodes = nodes
        self._cuts: list[list[str]] = []

    def open(self) -> None:
        bridge = self._bridge
        _ip("link", "add", bridge, "type", "bridge")
        for party in (CLIENTS, STORE):
            _ip("address", "add", f"{self.address(party)}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for node in self._nodes:
            inside, outside = self._namespace(node), f"{bridge}{node}"
            _ip("netns", "add", inside)
            _ip("link", "add", outside, "type", "veth", "peer", "name", _LINK, "netns", inside)
            _ip("link", "set", outside, "master", bridge, "up")
            _ip("-n", inside, "address", "add", f"{self.address(node)}/24", "dev", _LINK)
            _ip("-n", inside, "link", "set", _LINK, "up")
            _ip("-n", inside, "link", "set", "lo", "up")

    def close(self) -> None:
        for node in self._nodes:
            subprocess.run(["ip", "netns", "del", self._namespace(node)], capture_output=True)
        subprocess.run(["ip", "link", "del", self._bridge], capture_output=True)

    def address(self, party: Party) -> str:
        if party == CLIENTS:
            return f"{self._subnet}.1"
        if party == STORE:
            return f"{self._subnet}.100"
        return f"{self._subnet}.{_FIRST_NODE + int(party)}"

    def party(self, address: str) -> Party:
        return next((node for node in self._nodes if self.address(node) == address), CLIENTS)

    def command(self, node: int) -> list[str]:
        """What goes before a command that is to run on that broker's host."""
        return ["nsenter", f"--net={self._path(node)}"]

    def socket_of(self, node: int) -> socket.socket:
        """A socket that lives on that broker's host, whoever uses it."""
        made: list[socket.socket] = []

        def make() -> None:
            namespace = os.open(self._path(node), os.O_RDONLY | os.O_CLOEXEC)
            try:
                # Only this thread moves over, and it ends here.
                if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
                made.append(plain_socket())
            finally:
                os.close(namespace)

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        assert made, f"no socket in the namespace of broker {node}"
        return made[0]

    def cut(self, source: Party, target: Party) -> None:
        """What `source` sends to `target` gets lost. Clients and store share a host, so both are cut from a broker."""
        place = ["-n", self._namespace(source), "neigh"] if isinstance(source, int) else ["neigh"]
        device = _LINK if isinstance(source, int) else self._bridge
        peer = [self.address(target), "dev", device]
        _ip(*place, "replace", *peer[:1], "lladdr", _NOBODY, "nud", "permanent", *peer[1:])
        self._cuts.append([*place, "del", *peer])

    def heal(self) -> None:
        while self._cuts:
            subprocess.run(["ip", *self._cuts.pop()], capture_output=True)

    def _namespace(self, node: Party) -> str:
        return f"{self._bridge}n{node}"

    def _path(self, node: int) -> Path:
        return Path("/run/netns") / self._namespace(node)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
