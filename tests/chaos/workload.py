"""A scripted life of a data directory, and the promises it is held to after any crash.

Used by the crash and power-loss sweeps. The script talks to the log as the broker does (Replicas and LogDirectory),
with every kind of change that touches a disk: appends of idempotent producers to several partitions, rolls,
checkpoints, deleted records, retention, a topic deleted and made again, a new leader epoch, a clean restart.
The metadata of topics is the script's own and survives everything, as the metadata store does in a broker.
"""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from penstock.clock import Rng
from penstock.cluster.image import ClusterImage, PartitionState
from penstock.cluster.layout import Layout
from penstock.config import TopicConfig
from penstock.disk import Disk
from penstock.log.directory import LogDirectory, LogRequest
from penstock.log.partition_log import PartitionLog
from penstock.metrics import BrokerMetrics
from penstock.model import LeaderEpoch, Offset, TopicPartition
from penstock.records.batch import read_header
from penstock.records.record import Record, decode_records, encode_batch
from penstock.replication.partition import Partition
from penstock.replication.replicas import Replicas

ACKS_ALL = -1
NODE = 1
START_MS = 1_700_000_000_000
RECORDS_PER_BATCH = 3
SEGMENT_BYTES = 700

KEEP = TopicConfig(segment_bytes=SEGMENT_BYTES, index_interval_bytes=128, file_delete_delay_ms=0)
SHORT = TopicConfig(
    segment_bytes=SEGMENT_BYTES, index_interval_bytes=128, file_delete_delay_ms=0, retention_bytes=3 * SEGMENT_BYTES
)


class ManualClock:
    """Time that passes when somebody says so."""

    def __init__(self) -> None:
        self.ms = START_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


@dataclass(slots=True)
class Sent:
    """One batch that was written, and whether its producer has heard that it is safe."""

    content: bytes
    offset: int
    epoch: int
    is_acked: bool = False

    @property
    def last_offset(self) -> int:
        return self.offset + RECORDS_PER_BATCH - 1


@dataclass(slots=True)
class Promise:
    """What is expected of one partition of one topic id."""

    batches: list[Sent] = field(default_factory=list[Sent])
    # The log may start anywhere between what was promised and what was asked for last.
    start_promised: int = 0
    start_asked: int = 0

    @property
    def acked_end(self) -> int:
        return max((sent.last_offset + 1 for sent in self.batches if sent.is_acked), default=0)


@dataclass(slots=True)
class Topic:
    name: str
    id: UUID
    config: TopicConfig
    partitions: int
    epoch: int = 0
    promises: list[Promise] = field(default_factory=list[Promise])
    sequences: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])


class Life:
    """The script's side of the world: it goes on where the disk does not."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = ManualClock()
        self.topics: dict[str, Topic] = {}
        self._ids = Rng(7)
        self.replicas: Replicas

    def declare(self, name: str, config: TopicConfig, partitions: int) -> Topic:
        topic = Topic(name, self._ids.uuid(), config, partitions)
        topic.promises = [Promise() for _ in range(partitions)]
        self.topics[name] = topic
        return topic

    async def open(self, disk: Disk) -> LogDirectory:
        """Start as the broker does: prepare, open every log the metadata names, lead them."""
        logs = LogDirectory(disk, self.root, self.clock, Rng(11))
        self.replicas = Replicas(logs, BrokerMetrics(self.clock), ClusterImage(Layout()), NODE)
        logs.prepare()
        await logs.open_all(
            LogRequest(TopicPartition(topic.name, index), topic.id, topic.config)
            for topic in self.topics.values()
            for index in range(topic.partitions)
        )
        for topic in self.topics.values():
            # As the broker does, so that a consumer that saw what was cut off notices (KIP-320).
            topic.epoch += not logs.was_clean
            self.host(topic)
        return logs

    def host(self, topic: Topic) -> None:
        state = PartitionState(NODE, topic.epoch, (NODE,), (NODE,), topic.epoch)
        self.replicas.host(topic.name, topic.id, topic.config, dict.fromkeys(range(topic.partitions), state))

    async def run(self, disk: Disk) -> None:
        """The script. Whatever ends it early, `topics` says what was promised until then."""
        orders = self.declare("orders", KEEP, 2)
        self.declare("short", SHORT, 1)
        logs = await self.open(disk)
        await self.produce("orders", producers=(1, 2), batches=4)
        await self.produce("short", producers=(3,), batches=3)
        await logs.checkpoint()
        await self.produce("orders", producers=(1, 2), batches=3)
        await self.delete_records(logs, "orders", 0, Offset(10))
        await self.recreate("short", SHORT, 1)
        await self.produce("short", producers=(4,), batches=9)
        await logs.apply_retention(self.replicas.committed_offsets(), 86_400_000)
        await self.settle()
        orders.epoch += 1
        self.host(orders)
        await self.produce("orders", producers=(1,), batches=3)
        await logs.close()

        logs = await self.open(disk)
        assert logs.was_clean
        await self.produce("orders", producers=(2, 5), batches=3)
        await self.recreate("short", KEEP, 1)
        await self.produce("short", producers=(4,), batches=2)
        await logs.checkpoint()
        await self.delete_records(logs, "orders", 1, self.find("orders", 1).log.next_offset)
        await self.produce("orders", producers=(1, 2, 5), batches=2)

    async def produce(self, name: str, producers: tuple[int, ...], batches: int) -> None:
        """Every producer sends to every partition; a whole round shares a turn of the loop, hence a sync."""
        topic = self.topics[name]
        for _ in range(batches):
            self.clock.ms += 1000
            waits: list[tuple[Sent, asyncio.Future[None] | None]] = []
            for producer in producers:
                for index in range(topic.partitions):
                    sent, wait = self.append(topic, index, producer)
                    waits.append((sent, wait))
            for sent, wait in waits:
                if wait is not None:
                    await wait
                sent.is_acked = True

    def append(self, topic: Topic, index: int, producer: int) -> tuple[Sent, asyncio.Future[None] | None]:
        sequence = topic.sequences.get((index, producer), 0)
        values = [
            f"{topic.id.hex[:6]} p{index} by {producer}: {sequence + n}".ljust(40).encode()
            for n in range(RECORDS_PER_BATCH)
        ]
        batch = encode_batch(
            [Record(n, self.clock.ms, None, value) for n, value in enumerate(values)],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
        )
        partition = self.find(topic.name, index)
        # Noted before it is written: a crash inside the write may leave it in the log, never acknowledged.
        sent = Sent(bytes(batch), partition.log.next_offset, topic.epoch)
        topic.promises[index].batches.append(sent)
        appended = partition.append(memoryview(batch), read_header(batch), self.clock.ms, may_gather=True)
        assert appended.base_offset == sent.offset
        assert not appended.is_duplicate
        topic.sequences[index, producer] = sequence + RECORDS_PER_BATCH
        return sent, partition.safe(appended, ACKS_ALL)

    async def delete_records(self, logs: LogDirectory, name: str, index: int, offset: Offset) -> None:
        """As handlers.offsets does it: the start first, then the promise, then the files."""
        log, promise = self.find(name, index).log, self.topics[name].promises[index]
        promise.start_asked = offset
        log.advance_start(offset)
        await log.sync.wait_for(log.next_offset)
        await logs.save_points()
        promise.start_promised = offset
        await logs.drop_segments_before_start(log)
        await self.settle()

    async def recreate(self, name: str, config: TopicConfig, partitions: int) -> None:
        del self.topics[name]
        self.replicas.drop(name)
        self.host(self.declare(name, config, partitions))
        await self.settle()

    async def settle(self) -> None:
        """Let timers of delay 0, and what they start, come to their end."""
        for _ in range(20):
            await asyncio.sleep(0)

    def find(self, name: str, index: int) -> Partition:
        return self.replicas.find(name, index)

    def note_retention(self) -> None:
        """Where retention has moved starts to in memory, a crash may or may not have left them."""
        for topic in self.topics.values():
            for index, promise in enumerate(topic.promises):
                log = self.replicas.logs.logs.get(TopicPartition(topic.name, index))
                if log is not None and log.topic_id == topic.id:
                    promise.start_asked = max(promise.start_asked, log.log_start)

    # Judgement

    async def judge(self, disk: Disk) -> None:
        """Start again and hold what is there against what was promised; then see that life goes on."""
        logs = await self.open(disk)
        assert not logs.offline, [str(failure) for failure in logs.offline.values()]
        for topic in self.topics.values():
            for index, promise in enumerate(topic.promises):
                log = self.find(topic.name, index).log
                present = self._judge_content(log, promise)
                self._judge_producers(log, topic, present)
        # What was lost is sent again and something new after it; a clean stop then keeps all of it.
        for topic in self.topics.values():
            for index in range(topic.partitions):
                await self._send_lost_again(topic, index)
        for name in self.topics:
            await self.produce(name, producers=(8,), batches=1)
        await logs.close()
        logs = await self.open(disk)
        assert logs.was_clean
        assert not logs.offline, [str(failure) for failure in logs.offline.values()]
        for topic in self.topics.values():
            for index, promise in enumerate(topic.promises):
                self._judge_content(self.find(topic.name, index).log, promise)
        logs.release()

    def _judge_content(self, log: PartitionLog, promise: Promise) -> list[Sent]:
        """The batches that are there: once, in order, without a hole, everything acknowledged among them."""
        assert promise.start_promised <= log.log_start <= promise.start_asked
        assert log.next_offset >= promise.acked_end
        expected = [sent for sent in promise.batches if log.log_start <= sent.last_offset < log.next_offset]
        found = read_batches(log)
        assert [header_offset for header_offset, _ in found] == [sent.offset for sent in expected]
        assert [content for _, content in found] == [values_of(sent.content) for sent in expected]
        if expected:
            assert log.next_offset == expected[-1].last_offset + 1
        for sent in expected:
            for offset in range(max(sent.offset, log.log_start), sent.last_offset + 1):
                batch = log.read(Offset(offset), 1, log.next_offset, cached_only=False)
                assert batch is not None
                assert read_header(batch).base_offset == sent.offset
                assert log.epochs.epoch_at(Offset(offset)) == sent.epoch
        return expected

    def _judge_producers(self, log: PartitionLog, topic: Topic, present: list[Sent]) -> None:
        """The last five batches of each producer are known: sent again, they keep their offsets."""
        by_producer: dict[int, list[Sent]] = {}
        for sent in present:
            by_producer.setdefault(read_header(sent.content).producer_id, []).append(sent)
        for batches in by_producer.values():
            for sent in batches[-5:]:
                copy = bytearray(sent.content)
                end = log.next_offset
                again = log.append(memoryview(copy), read_header(copy), LeaderEpoch(topic.epoch), self.clock.ms)
                assert (again.base_offset, again.is_duplicate) == (sent.offset, True)
                assert log.next_offset == end

    async def _send_lost_again(self, topic: Topic, index: int) -> None:
        partition, promise = self.find(topic.name, index), topic.promises[index]
        end = partition.log.next_offset
        for sent in [sent for sent in promise.batches if sent.offset >= end]:
            copy = bytearray(sent.content)
            appended = partition.append(memoryview(copy), read_header(copy), self.clock.ms)
            assert not appended.is_duplicate
            assert not sent.is_acked
            sent.offset, sent.epoch = appended.base_offset, topic.epoch
            wait = partition.safe(appended, ACKS_ALL)
            if wait is not None:
                await wait
            sent.is_acked = True


def values_of(batch: bytes) -> list[bytes | None]:
    return [record.value for record in decode_records(memoryview(batch), read_header(batch), 1 << 20)]


def read_batches(log: PartitionLog) -> list[tuple[int, list[bytes | None]]]:
    """Everything from the log's start, as a consumer that is given little at a time would see it."""
    found: list[tuple[int, list[bytes | None]]] = []
    offset = log.log_start
    while offset < log.next_offset:
        chunk = log.read(offset, 300, log.next_offset, cached_only=False)
        assert chunk, f"nothing at offset {offset} of {log.log_start} to {log.next_offset}"
        header = read_header(chunk)
        while len(chunk) >= 61 and header.size <= len(chunk):
            found.append((header.base_offset, values_of(bytes(chunk[: header.size]))))
            offset = Offset(header.next_offset)
            chunk = chunk[header.size :]
            if len(chunk) >= 61:
                header = read_header(chunk)
    return found
