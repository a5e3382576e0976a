"""Real brokers on a simulated loop, network, disk and store: started, killed, stopped, wiped and started again.

Called by simulate (a seed) and by tests that script a schedule. The brokers are those of `penstock serve`; what differs
is what stands under them. A process that ends by an error is started again after a moment, as a supervisor would.
"""

import asyncio
import logging
import traceback
from pathlib import Path
from typing import Any

from tests.simulation.loop import HOST, Host, World
from tests.simulation.network import Network
from tests.simulation.node_disk import NodeDisk
from tests.simulation.store import StoreClient, StoreState

from penstock.broker import Broker
from penstock.clock import Rng
from penstock.config import BrokerConfig
from penstock.errors import InvalidConfig, PenstockError
from penstock.model import Endpoint
from penstock.replication.partition import Partition
from penstock.replication.waiting import FetchWait

PORT = 9092
RESTART_S = 1.0
WALL_START_MS = 1_700_000_000_000

SETTINGS = {
    "penstock.http.listen": "",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    # Compaction works in a process of its own.
    "log.cleaner.enable": "false",
    "log.segment.bytes": "16384",
    "log.flush.offset.checkpoint.interval.ms": "3000",
}


# Sets are walked in the order of hashes. These would be addresses of memory, of which no two runs have the same.
FetchWait.__hash__ = lambda wait: hash(wait.done)
Partition.__hash__ = lambda partition: hash((partition.topic_id, partition.at))


class _InOrder(dict[Any, None]):
    """A set that is walked in the order of coming."""

    def add(self, item: object) -> None:
        self[item] = None

    def discard(self, item: object) -> None:
        self.pop(item, None)


class NodeClock:
    def __init__(self, world: World) -> None:
        self._world = world
        self.offset_ms = 0

    def monotonic(self) -> float:
        return self._world.loop.time()

    def now_ms(self) -> int:
        return WALL_START_MS + self.offset_ms + round(self._world.elapsed_s * 1000)


class Node:
    """One machine: its disk, its clock, and the broker that runs on it now, if any."""

    def __init__(self, cluster: "SimulatedCluster", node_id: int, data_dir: Path) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.id = node_id
        self.address = f"10.0.0.{node_id}"
        self.endpoint = Endpoint(self.address, PORT)
        self.data_dir = data_dir
        self.clock = NodeClock(self.world)
        self.disk = NodeDisk(self.world, self.world.chance.getrandbits(32), self.data_dir)
        self.lives = 0
        self.host: Host | None = None
        self.broker: Broker | None = None
        self.store: StoreClient | None = None
        self.is_serving = False
        self.is_wanted = False
        self._running: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self.host is not None and not self.host.is_dead

    def start(self) -> None:
        """Power on, process up; it serves some time later."""
        if self.is_running:
            return
        self.is_wanted = True
        self.lives += 1
        self.disk.want_memory()
        host = self.host = Host(f"{self.id}.{self.lives}", self.address)
        self.cluster.network.power_on(self.address)
        self.store = StoreClient(self.cluster.store, host.name)
        self._running = self.world.spawn(host, self._run(host))
        self.world.mark("start", host.name)

    async def _run(self, host: Host) -> None:
        store = self.store
        assert store is not None

        async def open_store() -> StoreClient:
            return store

        try:
            broker = self.broker = Broker(
                BrokerConfig(self._settings()),
                clock=self.clock,
                rng=Rng(self.world.chance.getrandbits(32)),
                disk=self.disk,
                open_store=open_store,
            )
            broker.listener._connections = _InOrder()
            await broker.start()
        except Exception as error:
            if host.is_dead:
                return  # what is left of it is being cleared away
            is_planned = isinstance(error, (PenstockError, OSError, TimeoutError))
            if is_planned and not isinstance(error, InvalidConfig):
                self.world.tell(f"{host} did not start: {error!r}")
            else:
                self.world.problem(f"{host}: start failed: {''.join(traceback.format_exception(error))}")
            self._die(is_silent=False)
            self.world.after(RESTART_S, self._restart, host)
            return
        self.is_serving = True
        self.world.tell(f"{host} serves")

    def _restart(self, former: Host) -> None:
        if self.is_wanted and self.host is former:
            self.start()

    def _settings(self) -> dict[str, str]:
        return {
            **SETTINGS,
            **self.cluster.settings,
            "node.id": str(self.id),
            "listeners": str(self.endpoint),
            "log.dirs": str(self.data_dir),
        }

    def kill(self) -> None:
        """SIGKILL: the process is gone in the middle of whatever it did, the kernel keeps what it wrote."""
        self.is_wanted = False
        self._die(is_silent=False)

    def lose_power(self) -> None:
        self.is_wanted = False
        self._die(is_silent=True)
        self.disk.power_loss()

    def wipe(self) -> None:
        """The disk is replaced by an empty one. Only of a machine that is down."""
        assert not self.is_running
        self.disk = NodeDisk(self.world, self.world.chance.getrandbits(32), self.data_dir)

    async def shut_down(self) -> None:
        """SIGTERM: the broker ends by itself, within a time; then it is killed, as an init system would."""
        self.is_wanted = False
        host, broker = self.host, self.broker
        if host is None or broker is None or not self.is_serving:
            self._die(is_silent=False)
            return
        stopping = self.world.spawn(host, broker.stop())
        _, late = await asyncio.wait([stopping], timeout=20)
        if late:
            self.world.tell(f"{host} did not stop in time")
        elif not host.is_dead and not stopping.cancelled() and stopping.exception() is not None:
            self.world.problem(f"{host}: stop failed: {stopping.exception()!r}")
        if self.host is host:
            self._die(is_silent=False)

    def stop(self) -> None:
        """SIGSTOP: time passes, the process does not notice."""
        if self.host is not None:
            self.world.stop_host(self.host)

    def go_on(self) -> None:
        if self.host is not None and not self.host.is_dead:
            self.world.continue_host(self.host)

    def _die(self, *, is_silent: bool) -> None:
        host = self.host
        if host is None or host.is_dead:
            return
        self.is_serving = False
        self.world.bury(host)
        self.cluster.network.kill(host, is_silent=is_silent)
        if self.store is not None:
            self.cluster.store.clients.remove(self.store)
        # The lock on the real directory is the one thing of the real world a process has here.
        claim = getattr(self.broker, "_claim", None)
        if claim is not None:
            claim.close()


class SimulatedCluster:
    def __init__(self, seed: int, directory: Path, *, nodes: int = 3, settings: dict[str, str] | None = None) -> None:
        self.world = World(seed)
        self.world.hidden = str(directory)
        self.network = Network(self.world)
        self.store = StoreState(self.world)
        self.settings = settings or {}
        self.nodes = [Node(self, node_id, directory / f"node-{node_id}") for node_id in range(1, nodes + 1)]
        for node in self.nodes:
            node.data_dir.mkdir(parents=True, exist_ok=True)
        self._log = _Watch(self)
        logging.getLogger("penstock").addHandler(self._log)

    def node(self, node_id: int) -> Node:
        return self.nodes[node_id - 1]

    def start(self) -> None:
        for node in self.nodes:
            node.start()

    def client(self, name: str, number: int) -> Host:
        return Host(name, f"10.0.1.{number}")

    def run(self, work: Any) -> Any:
        """Run the world until `work` is done, in the name of nature."""
        asyncio.set_event_loop(self.world.loop)
        return self.world.loop.run_until_complete(self.world.spawn(self.world.nature, work))

    def close(self) -> None:
        logging.getLogger("penstock").removeHandler(self._log)
        for node in self.nodes:
            node.is_wanted = False
            node._die(is_silent=False)
        self.world.close()
        asyncio.set_event_loop(None)


class _Watch(logging.Handler):
    """What the brokers log: a traceback or an error is a problem, unless its disk was hurt; the rest is told."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        super().__init__(logging.WARNING)
        self._cluster = cluster

    def emit(self, record: logging.LogRecord) -> None:
        host = HOST.get(None)
        if host is not None and host.is_dead:
            return
        world = self._cluster.world
        text = f"{host}: {record.levelname} {record.getMessage()}"
        error = record.exc_info[1] if record.exc_info is not None else None
        if error is not None:
            text = f"{text}: {error!r}"
        is_the_disk = any(node.host is host and node.disk.is_hurt for node in self._cluster.nodes)
        is_bug = error is not None and not isinstance(error, OSError | PenstockError)
        if is_bug or (record.levelno >= logging.ERROR and not is_the_disk):
            world.problem(text)
        else:
            world.tell(text)
