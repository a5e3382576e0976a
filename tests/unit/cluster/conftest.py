"""Real metadata stores, and a one-node cluster on one, for the tests of the cluster room."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.unit.cluster.store_backends import Backend, EtcdBackend, SqliteBackend

from penstock.clock import Rng
from penstock.cluster.controller import Controller
from penstock.cluster.feed import ImageFeed
from penstock.cluster.image import ClusterImage, ImageChanges
from penstock.cluster.layout import Layout
from penstock.cluster.membership import Membership
from penstock.cluster.partition_changes import PartitionChanges
from penstock.cluster.registration import Registration
from penstock.cluster.sqlite_store import SqliteStore, open_sqlite_store
from penstock.cluster.store import Ambiguous, MetadataStore
from penstock.cluster.supervisor import Supervisor
from penstock.config import BrokerConfig
from penstock.model import Endpoint, NodeId
from penstock.testing.etcd import EtcdCluster, etcd_binary

DIRECTORY_ID = UUID("6e0a7a52-3a3f-4a3c-8d3f-0d6f3a3c5b11")


class SettableBootTime:
    """A host's clock that moves when a test says so."""

    def __init__(self) -> None:
        self.boot_id = "first boot"
        self.milliseconds = 1_000_000

    def now_ms(self) -> int:
        return self.milliseconds

    def advance(self, seconds: float) -> None:
        self.milliseconds += round(seconds * 1000)


@pytest.fixture
def boot_time() -> SettableBootTime:
    return SettableBootTime()


@pytest.fixture
async def store(tmp_path: Path, boot_time: SettableBootTime) -> AsyncIterator[SqliteStore]:
    store = await open_sqlite_store(tmp_path / "metadata.db", poll_s=0.01, boot_time=boot_time)
    yield store
    await store.close()


@dataclass
class Node:
    """One broker's view of the cluster, wired as broker.py wires it."""

    store: SqliteStore
    feed: ImageFeed
    membership: Membership
    controller: Controller
    partitions: PartitionChanges
    supervisor: Supervisor
    changes: list[ImageChanges] = field(default_factory=list)

    @property
    def image(self) -> ClusterImage:
        return self.feed.image


@contextlib.asynccontextmanager
async def running_node(
    store: SqliteStore,
    *,
    node_id: int = 1,
    rack: str | None = None,
    directory_id: UUID = DIRECTORY_ID,
    ttl_s: float = 9.0,
    settings: Mapping[str, str] | None = None,
    is_running: bool = False,
) -> AsyncIterator[Node]:
    changes: list[ImageChanges] = []
    feed = ImageFeed(store, ClusterImage(Layout("test")), changes.append)
    registration = Registration(NodeId(node_id), Endpoint("127.0.0.1", 9091 + node_id), rack, directory_id)
    membership = Membership(store, feed, registration, Rng(node_id), ttl_s=ttl_s)
    config = BrokerConfig(settings)
    controller = Controller(store, feed, Rng(node_id), membership, config)
    partitions = PartitionChanges(store, feed, membership, config)
    supervisor = Supervisor(store, feed, membership, config, controller)
    await feed.load()
    tasks = [asyncio.create_task(feed.run())]
    try:
        await membership.end_former_life()
        await membership.join()
        if is_running:
            tasks += [asyncio.create_task(work) for work in (membership.run(), supervisor.run())]
        yield Node(store, feed, membership, controller, partitions, supervisor, changes)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) or result is None for result in results), results


@pytest.fixture
def start_node() -> Callable[..., contextlib.AbstractAsyncContextManager[Node]]:
    return running_node


@pytest.fixture
async def node(store: SqliteStore) -> AsyncIterator[Node]:
    async with running_node(store) as node:
        yield node


@pytest.fixture
def lose_next_answer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """The next transaction is done, or not even that, and whoever asked for it is not told."""

    def arm(*, is_applied: bool = True) -> None:
        real = SqliteStore.txn

        async def txn(self: SqliteStore, compare: Any, then: Any, orelse: Any = ()) -> Any:
            monkeypatch.setattr(SqliteStore, "txn", real)
            if is_applied:
                await self.txn(compare, then, orelse)
            raise Ambiguous("no answer")

        monkeypatch.setattr(SqliteStore, "txn", txn)

    return arm


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    if etcd_binary() is None:
        pytest.skip("no etcd on this machine (Debian: apt-get install etcd-server)")
    with EtcdCluster(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


@pytest.fixture(params=["sqlite", "etcd"])
async def store_factory(request: pytest.FixtureRequest, tmp_path: Path, boot_time: Any) -> AsyncIterator[Backend]:
    if request.param == "sqlite":
        backend = SqliteBackend(tmp_path, boot_time)
    else:
        backend = EtcdBackend(request.getfixturevalue("etcd"))
    yield backend
    await backend.close()


@pytest.fixture
async def client(store_factory: Backend) -> MetadataStore:
    return await store_factory.open()
