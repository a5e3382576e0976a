"""A cluster of real broker processes on this machine, to be mistreated: kill, pause, cut, heal.

Called by testing.plugin, and by anyone who wants to know what a program does when brokers go away:

    with PenstockCluster(tmp_path) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        cluster.kill(1)

Every broker is reached through a door of the fault proxy, by clients and by the other brokers, so cuts need no rights.
With `namespaces=True`, which takes root, each broker is a host of its own and cuts lose packets.
Invariants:
- A broker has the same address, id and data directory through all its lives.
- Nothing outlives `stop`, however the test ended: no process, no namespace, no thread.
"""

import contextlib
import os
import random
import shutil
import socket
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from confluent_kafka.admin import AdminClient

from penstock.model import Endpoint
from penstock.testing.broker_process import BrokerDidNotStart, BrokerProcess
from penstock.testing.fault_proxy import CLIENTS, STORE, Door, FaultProxy, Party
from penstock.testing.namespaces import Namespaces

if TYPE_CHECKING:
    from penstock.testing.etcd import EtcdCluster

# What a test wants otherwise than a server: three copies of everything, no waiting for stragglers, few partitions.
CLUSTER_SETTINGS = {
    "penstock.http.listen": "",
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
# Below what the system gives to outgoing connections, so that none of those takes a broker's port while it is away.
_PORTS = range(20_000, 30_000)
_START_TRIES = 3
_ACQUAINTED_DEADLINE_S, _ASK_AGAIN_S = 30.0, 0.02
_NAMESPACE_PORT = 9092
_BROKER_PORT = 19_092


class PenstockCluster:
    def __init__(
        self,
        directory: Path,
        nodes: int = 3,
        metadata: Literal["sqlite", "etcd"] = "sqlite",
        overrides: Mapping[str, str] | None = None,
        *,
        namespaces: bool = False,
        racks: Mapping[int, str] | None = None,
    ) -> None:
        self.directory = directory
        self.node_ids = list(range(1, nodes + 1))
        self.proxy = FaultProxy()
        self.etcd: EtcdCluster | None = None
        self._uses_etcd = metadata == "etcd"
        self._settings = {**CLUSTER_SETTINGS, **(overrides or {})}
        self._racks = racks or {}
        self._namespaces = Namespaces(self.node_ids) if namespaces else None
        self._doors: dict[int, Door] = {}
        self._store_urls: dict[int, str] = {}
        directory.mkdir(parents=True, exist_ok=True)
        self.brokers = {
            node: BrokerProcess(node, directory / f"broker-{node}", directory / f"broker-{node}.log")
            for node in self.node_ids
        }
        # What one broker is started with beside the settings of all: variables of its environment, a traced command.
        self.environment: dict[int, dict[str, str]] = {node: {} for node in self.node_ids}
        self.prefix: dict[int, list[str]] = {node: [] for node in self.node_ids}

    @property
    def bootstrap(self) -> str:
        """What a client calls `bootstrap.servers`: every broker's door, whether it is at home or not."""
        return ",".join(str(door.address) for door in self._doors.values())

    @property
    def metadata_url(self) -> str:
        """The store itself, past all doors; for looking into."""
        return self.etcd.url if self.etcd is not None else f"sqlite:{self.directory / 'metadata.db'}"

    def address(self, node: int) -> str:
        return str(self._doors[node].address)

    # The life of the cluster

    def start(self) -> Self:
        try:
            if self._namespaces is not None:
                self._namespaces.open()
            self._start_store()
            for node in self.node_ids:
                self._open_door(node)
            self.start_nodes(self.node_ids)
            self.wait_acquainted()
        except BaseException:
            self.destroy()
            raise
        return self

    def stop(self) -> None:
        """Everything healed, every broker stopped as SIGTERM does, all at once; then the rest. Twice is once."""
        if self.proxy.is_closed:
            return
        try:
            self.heal()
            for node in self.node_ids:
                if self.brokers[node].is_alive:
                    self.resume(node)
            with ThreadPoolExecutor(len(self.node_ids)) as pool:
                list(pool.map(self.terminate, [node for node in self.node_ids if self.brokers[node].is_alive]))
        finally:
            self.destroy()

    def destroy(self) -> None:
        """End all of it at once, without asking."""
        for broker in self.brokers.values():
            broker.kill()
        if self.etcd is not None:
            # It takes etcd seconds to end cleanly, and nobody will read what it kept.
            for member in self.etcd.members:
                with contextlib.suppress(KeyError):
                    self.etcd.kill(member)
            self.etcd.stop()
        self.proxy.close()
        if self._namespaces is not None:
            self._namespaces.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self.destroy()

    # One broker

    def start_node(self, node: int) -> None:
        for attempt in range(_START_TRIES):
            listen = self._place(node)
            try:
                self._spawn(node, listen)
                self.brokers[node].wait_ready()
                return
            except BrokerDidNotStart as failure:
                # Somebody may have taken the port since we looked.
                if "is in use by another process: stop that one" not in str(failure) or attempt == _START_TRIES - 1:
                    raise

    def start_nodes(self, nodes: Iterable[int]) -> None:
        """Several at the same moment."""
        with ThreadPoolExecutor(len(self.node_ids)) as pool:
            list(pool.map(self.start_node, nodes))

    def kill(self, node: int) -> None:
        """SIGKILL: nothing said, nothing flushed."""
        self.brokers[node].kill()

    def terminate(self, node: int) -> int:
        """SIGTERM: leaders handed over, everything durable. The exit code."""
        return self.brokers[node].terminate()

    def restart(self, node: int) -> None:
        """Start it again, on the same data; one that runs is terminated first. See wait_acquainted()."""
        if self.brokers[node].is_alive:
            self.terminate(node)
        self.start_node(node)

    def wait_acquainted(self) -> None:
        """Until each broker knows of all: it learns of the others in its own time, also of one that was started again.

        A topic with a replica on each takes a broker that knows all.
        """
        deadline = time.monotonic() + _ACQUAINTED_DEADLINE_S
        for node in self.node_ids:
            while True:
                # A new client each time: one that has learnt of other brokers would ask those.
                asked = AdminClient({"bootstrap.servers": self.address(node), "log_level": 0})
                known = asked.list_topics(timeout=_ACQUAINTED_DEADLINE_S).brokers
                if len(known) == len(self.node_ids):
                    break
                assert time.monotonic() < deadline, f"broker {node} knows only of {sorted(known)}"
                time.sleep(_ASK_AGAIN_S)

    def wipe(self, node: int) -> None:
        """What a new disk looks like. Only while the broker is away."""
        assert not self.brokers[node].is_alive, f"broker {node} runs"
        for entry in self.brokers[node].data_dir.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    def pause(self, node: int) -> None:
        """SIGSTOP: it stands still with all its connections open."""
        self.brokers[node].pause()

    def resume(self, node: int) -> None:
        self.brokers[node].resume()

    @contextlib.contextmanager
    def paused(self, node: int) -> Generator[None]:
        self.pause(node)
        try:
            yield
        finally:
            self.resume(node)

    # The lines between

    def cut(self, source: Party, target: Party | None = None, *, one_way: bool = False) -> int:
        """Silence the line between two parties: a node id, "clients" or "store". Without `target`: from everybody.

        With `one_way` only what `source` sends is lost. How many connections were silenced, as far as is known.
        """
        others: list[Party] = [party for party in (*self.node_ids, CLIENTS, STORE) if party != source]
        ways = [(source, party) for party in (others if target is None else [target])]
        if not one_way:
            ways += [(party, mine) for mine, party in ways]
        return sum([self._cut(*way) for way in ways])

    def heal(self) -> None:
        """Every line works again and every fault of the proxy is over. Killed and paused brokers stay so."""
        self.proxy.heal()
        if self._namespaces is not None:
            self._namespaces.heal()

    def _cut(self, source: Party, target: Party) -> int:
        if self._namespaces is None:
            return self.proxy.cut(source, target)
        if isinstance(source, int) or target != STORE:
            self._namespaces.cut(source, target)
        return 1

    # How it is built

    def _start_store(self) -> None:
        if not self._uses_etcd:
            self._store_urls = dict.fromkeys(self.node_ids, self.metadata_url)
            return
        from penstock.testing.etcd import EtcdCluster

        self.etcd = EtcdCluster(self.directory / "etcd", members=3).start()
        host = self._namespaces.address(STORE) if self._namespaces is not None else "127.0.0.1"
        for node in self.node_ids:
            doors: list[Door] = []
            for member in self.etcd.endpoints:
                door = Door(STORE, _always(node))
                door.server = member
                self.proxy.open_door(door, host)
                doors.append(door)
            self._store_urls[node] = "etcd://" + ",".join(str(door.address) for door in doors)

    def _open_door(self, node: int) -> None:
        namespaces = self._namespaces
        if namespaces is None:
            door = Door(node, self._who)
            self.proxy.open_door(door, "127.0.0.1")
        else:
            door = Door(node, lambda peer: namespaces.party(peer.host), lambda: namespaces.socket_of(node))
            self.proxy.open_door(door, namespaces.address(node), _NAMESPACE_PORT)
        self._doors[node] = door

    def _place(self, node: int) -> str:
        port = _free_port() if self._namespaces is None else _BROKER_PORT
        self._doors[node].server = Endpoint("127.0.0.1", port)
        return f"127.0.0.1:{port}"

    def _spawn(self, node: int, listen: str) -> None:
        settings = {**self._settings, "penstock.metadata": self._store_urls[node]}
        settings["advertised.listeners"] = self.address(node)
        if node in self._racks:
            settings["broker.rack"] = self._racks[node]
        inside = self._namespaces.command(node) if self._namespaces is not None else []
        self.brokers[node].spawn(listen, settings, [*inside, *self.prefix[node]], self.environment[node])

    def _who(self, peer: Endpoint) -> Party:
        """Whose connection it is that comes from this port: one of the brokers', else a client's."""
        inode = _inode_of(peer.port)
        if inode is not None:
            for node, broker in self.brokers.items():
                if broker.is_alive and inode in _socket_inodes(broker.pid):
                    return node
        return CLIENTS


def _always(node: int) -> Callable[[Endpoint], Party]:
    return lambda peer: node


def _free_port() -> int:
    while True:
        port = random.choice(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _inode_of(port: int) -> str | None:
    """The socket bound to a local port, as the kernel numbers it; None where there is no /proc."""
    wanted = f":{port:04X}"
    with contextlib.suppress(OSError), open("/proc/net/tcp") as table:
        next(table)
        for line in table:
            fields = line.split()
            if fields[1].endswith(wanted) and fields[9] != "0":
                return f"socket:[{fields[9]}]"
    return None


def _socket_inodes(pid: int) -> set[str]:
    found: set[str] = set()
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found.add(os.readlink(entry.path))
    return found
