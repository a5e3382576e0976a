"""A follower, and a leader whose every answer the test decides: what counts when the world has moved on meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.unit.log.making import all_values, make_batch

from penstock.clock import Rng, SystemClock
from penstock.cluster.image import ClusterImage, PartitionState
from penstock.cluster.layout import Layout
from penstock.config import BrokerConfig, TopicConfig
from penstock.disk import RealDisk
from penstock.errors import PenstockError
from penstock.log.directory import LogDirectory
from penstock.log.partition_log import PartitionLog
from penstock.metrics import BrokerMetrics
from penstock.model import Endpoint, Offset
from penstock.records.batch import stamp
from penstock.replication.fetcher import FetcherContext, LeaderFetcher
from penstock.replication.followers import Followers
from penstock.replication.partition import Partition
from penstock.replication.replicas import Replicas
from penstock.replication.throttle import ReplicationThrottle
from penstock.wire.fetch import (
    FetchPartitionResult,
    FetchRequest,
    FetchTopicResult,
    encode_fetch_response,
    parse_fetch,
)
from penstock.wire.frame import parse_request_header

ME, LEADER = 1, 2
ORDERS, BILLS = UUID(int=1), UUID(int=2)
EPOCH = 5
VERSION = 17
PATIENCE_S = 20.0
FOLLOWED = PartitionState(LEADER, EPOCH, (LEADER, ME), (LEADER, ME), 1)


class Asked:
    """One fetch that waits for its answer."""

    def __init__(self, fetch: FetchRequest, correlation_id: int, writer: asyncio.StreamWriter) -> None:
        self.fetch = fetch
        self._correlation_id = correlation_id
        self._writer = writer

    def offsets(self) -> dict[UUID | None, int]:
        return {topic.topic_id: topic.partitions[0].fetch_offset for topic in self.fetch.topics}

    def answer(self, *results: tuple[UUID, FetchPartitionResult], session: int = 9) -> None:
        topics = [FetchTopicResult(None, topic_id, [result]) for topic_id, result in results]
        for part in encode_fetch_response(VERSION, self._correlation_id, 0, 0, session, topics):
            self._writer.write(bytes(part))


class ScriptedLeader:
    """The other end of the wire: real frames, and an answer only when the test gives it."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[Asked] = asyncio.Queue()
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def open(self) -> Endpoint:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return Endpoint(*self._server.sockets[0].getsockname()[:2])

    async def next(self) -> Asked:
        async with asyncio.timeout(PATIENCE_S):
            return await self.asked.get()

    def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = memoryview(await reader.readexactly(size))
                header = parse_request_header(frame)
                fetch = parse_fetch(header.version, frame, header.body_offset)
                self.asked.put_nowait(Asked(fetch, header.correlation_id, writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            return


class World:
    def __init__(self, replicas: Replicas, leader: ScriptedLeader, config: BrokerConfig) -> None:
        self.replicas = replicas
        self.leader = leader
        self.config = config
        self.broken: list[tuple[Partition, PenstockError]] = []

    def host(self, *topics: tuple[str, UUID], state: PartitionState = FOLLOWED, **config: object) -> None:
        for name, topic_id in topics:
            self.replicas.host(name, topic_id, TopicConfig(file_delete_delay_ms=0, **config), {0: state})

    def partition(self, name: str) -> Partition:
        return self.replicas.topics[name].partitions[0]

    async def until_it_has(self, name: str, *values: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if all_values(self.partition(name).log) == list(values):
                    return
                await asyncio.sleep(0.005)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    disk, clock = RealDisk(), SystemClock()
    config = BrokerConfig({"node.id": str(ME), "log.dirs": str(tmp_path)})
    logs = LogDirectory(disk, tmp_path, clock, Rng(1))
    logs.prepare()
    await logs.open_all(())
    leader = ScriptedLeader()
    endpoint = await leader.open()
    replicas = Replicas(logs, BrokerMetrics(clock), ClusterImage(Layout()), ME)
    world = World(replicas, leader, config)
    replicas.followers = Followers(
        FetcherContext(
            ME,
            config,
            clock,
            logs,
            ReplicationThrottle(config, ME),
            broker_epoch=lambda: 7,
            find_endpoint=lambda _: endpoint,
            cut=replicas.cut,
            on_broken=lambda partition, error: world.broken.append((partition, error)),
        )
    )
    yield world
    await replicas.followers.close()
    leader.close()
    logs.release()
    disk.close()


def records(*values: str, offset: int = 0) -> FetchPartitionResult:
    """One batch of each value, as the leader has them from `offset` on."""
    batches = bytearray()
    for number, value in enumerate(values):
        batch, _ = make_batch(value)
        stamp(batch, offset + number, EPOCH)
        batches += batch
    return FetchPartitionResult(0, 0, 0, 0, 0, records=batches)


async def test_what_a_leader_sends_is_written_and_the_next_fetch_says_so(world: World) -> None:
    world.host(("orders", ORDERS))
    (await world.leader.next()).answer((ORDERS, records("a", "b")))
    asked = await world.leader.next()
    assert asked.offsets() == {ORDERS: 2}
    assert all_values(world.partition("orders").log) == ["a", "b"]


async def test_an_answer_about_a_topic_that_went_meanwhile_leaves_the_others_followed(world: World) -> None:
    world.host(("orders", ORDERS), ("bills", BILLS))
    asked = await world.leader.next()
    while len(asked.offsets()) < 2:
        asked = await world.leader.next()
    world.replicas.drop("orders")
    asked.answer((ORDERS, records("late")), (BILLS, records("a")))
    await world.until_it_has("bills", "a")
    asked = await world.leader.next()
    assert asked.offsets() == {BILLS: 1}


async def test_a_new_session_ends_the_one_before_it(world: World) -> None:
    world.host(("orders", ORDERS))
    asked = await world.leader.next()
    assert (asked.fetch.session_id, asked.fetch.session_epoch) == (0, 0)
    asked.answer((ORDERS, records("a")), session=9)
    asked = await world.leader.next()
    assert (asked.fetch.session_id, asked.fetch.session_epoch) == (9, 1)
    world.host(("bills", BILLS))  # for which the fetch that waits is given up, and its connection with it
    asked = await world.leader.next()
    assert (asked.fetch.session_id, asked.fetch.session_epoch) == (9, 0)


async def test_a_replica_that_is_slowed_hears_of_a_new_rate(world: World) -> None:
    world.config.change_dynamic({"follower.replication.throttled.rate": "1"}, {})
    behind = PartitionState(LEADER, EPOCH, (LEADER,), (LEADER, ME), 1)
    world.host(("orders", ORDERS), state=behind, follower_replication_throttled_replicas=("*",))
    (await world.leader.next()).answer((ORDERS, records("a minute's worth")))
    await world.until_it_has("orders", "a minute's worth")
    world.config.change_dynamic({}, {})
    assert (await world.leader.next()).offsets() == {ORDERS: 1}


async def test_a_replica_in_sync_is_not_slowed(world: World) -> None:
    world.config.change_dynamic({"follower.replication.throttled.rate": "1"}, {})
    world.host(("orders", ORDERS), follower_replication_throttled_replicas=("*",))
    (await world.leader.next()).answer((ORDERS, records("a minute's worth")))
    assert (await world.leader.next()).offsets() == {ORDERS: 1}


async def test_a_log_that_was_being_cut_when_it_was_looked_at_is_fetched_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.host(("orders", ORDERS))
    (await world.leader.next()).answer((ORDERS, records("a", "b")))
    asked = await world.leader.next()
    partition, logs = world.partition("orders"), world.replicas.logs
    log, looked, is_cut = partition.log, asyncio.Event(), asyncio.Event()
    look = LeaderFetcher._active

    def look_and_tell(fetcher: LeaderFetcher) -> Any:
        found = look(fetcher)
        looked.set()
        return found

    async def work() -> PartitionLog:
        cut = await logs.truncate(log, Offset(1))
        is_cut.set()
        await looked.wait()
        return cut

    cutting = asyncio.ensure_future(world.replicas.cut(partition, work))
    await is_cut.wait()
    monkeypatch.setattr(LeaderFetcher, "_active", look_and_tell)
    asked.answer()
    await cutting
    assert (await world.leader.next()).offsets() == {ORDERS: 1}


async def test_a_fault_in_taking_one_answer_does_not_end_all_that_is_fetched(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.host(("orders", ORDERS))
    asked = await world.leader.next()

    def fail(*_: object) -> int:
        monkeypatch.undo()
        raise AssertionError("what nobody thought of")

    monkeypatch.setattr(world.partition("orders").log, "append_replicated", fail)
    asked.answer((ORDERS, records("a")))
    asked = await world.leader.next()
    assert asked.offsets() == {ORDERS: 0}
    asked.answer((ORDERS, records("a")))
    await world.until_it_has("orders", "a")
