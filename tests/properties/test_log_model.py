"""A partition's log behaves like a list: appended at the end, cut at the front, the same after every reopening.

Random lives of one log on a simulated disk, against a Python list. After a crash the list is what was durable, plus any
part of the rest, in order; and nothing of it is there twice.
"""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.chaos.workload import ManualClock
from tests.simulation.disk import SimulatedDisk
from tests.unit.log.making import TOPIC_ID, make_batch, values_in

from penstock.clock import Rng
from penstock.config import TopicConfig
from penstock.log.directory import LogDirectory, LogRequest
from penstock.log.partition_log import PartitionLog
from penstock.model import LeaderEpoch, Offset, TopicPartition
from penstock.records.batch import read_header

T = TypeVar("T")

AT = TopicPartition("orders", 0)
ROOT = Path("/data")
CONFIG = TopicConfig(segment_bytes=1024, index_interval_bytes=128, file_delete_delay_ms=0)
KEPT = 5


class Batch(NamedTuple):
    offset: int
    values: tuple[str, ...]
    producer: int
    sequence: int

    @property
    def next_offset(self) -> int:
        return self.offset + len(self.values)


class LogLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.batches: list[Batch] = []
        self.start = 0
        self.producers = [0, 1, 2]
        self.epoch = 0
        self.written = 0

    def teardown(self) -> None:
        self.loop.close()

    def wait(self, work: Awaitable[T]) -> T:
        async def run() -> T:
            return await work

        return self.loop.run_until_complete(run())

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else self.start

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.disk = SimulatedDisk(seed)
        self.open()

    def open(self) -> None:
        self.logs = LogDirectory(self.disk, ROOT, self.clock, Rng(3))
        self.logs.prepare()
        self.wait(self.logs.open_all([LogRequest(AT, TOPIC_ID, CONFIG)]))
        assert self.logs.offline == {}
        self.log: PartitionLog = self.logs.logs[AT]
        self.epoch += not self.logs.was_clean

    # What a list does

    @rule(count=st.integers(1, 4), size=st.integers(0, 300), slot=st.none() | st.integers(0, 2))
    def append(self, count: int, size: int, slot: int | None) -> None:
        values = tuple(f"{self.written + number}".ljust(size, ".") for number in range(count))
        self.written += count
        producer = -1 if slot is None else self.producers[slot]
        mine = self.batches_of(producer)
        sequence = -1 if slot is None else mine[-1].sequence + len(mine[-1].values) if mine else 0
        appended = self.send(values, producer, sequence)
        assert appended == (self.end, self.end + count, False)
        self.batches.append(Batch(appended.base_offset, values, producer, sequence))

    def batches_of(self, producer: int) -> list[Batch]:
        return [batch for batch in self.batches if batch.producer == producer]

    def renew_producers(self) -> None:
        """Of a producer none of whose batches is left the log may know or not: another takes its place."""
        for slot, producer in enumerate(self.producers):
            if not self.batches_of(producer):
                self.producers[slot] = max(self.producers) + 1

    def send(self, values: tuple[str, ...], producer: int, sequence: int) -> Any:
        self.clock.ms += 1
        view, header = make_batch(*values, timestamp=self.clock.ms, producer=producer, sequence=sequence)
        return self.log.append(view, header, LeaderEpoch(self.epoch), self.clock.ms)

    @precondition(lambda self: any(batch.producer >= 0 for batch in self.batches))
    @rule(data=st.data())
    def append_again(self, data: st.DataObject) -> None:
        known = [batch for producer in self.producers for batch in self.batches_of(producer)[-KEPT:]]
        batch = data.draw(st.sampled_from(known))
        again = self.send(batch.values, batch.producer, batch.sequence)
        assert again == (batch.offset, batch.next_offset, True)

    @rule(data=st.data(), size_max=st.integers(0, 3000), cached_only=st.booleans(), at_least_one=st.booleans())
    def read(self, data: st.DataObject, size_max: int, cached_only: bool, at_least_one: bool) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        end = data.draw(st.integers(offset, self.end))
        chunk = self.log.read(Offset(offset), size_max, Offset(end), at_least_one=at_least_one, cached_only=cached_only)
        if chunk is None:
            assert cached_only
            return
        visible = [batch for batch in self.batches if offset < batch.next_offset <= end]
        if not visible:
            assert len(chunk) == 0
            return
        expected = [value for batch in visible for value in batch.values]
        found = values_in(chunk)
        assert found == expected[: len(found)]
        if at_least_one:
            assert found
            assert read_header(chunk).base_offset == visible[0].offset
        assert len(chunk) <= max(size_max, read_header(chunk).size if len(chunk) else 0)

    # What a log does besides

    async def synced(self) -> None:
        await self.log.sync.wait_for(self.log.next_offset)

    @rule()
    def sync(self) -> None:
        self.wait(self.synced())
        assert self.log.durable_offset == self.end

    @rule()
    def checkpoint(self) -> None:
        self.wait(self.logs.checkpoint())

    @precondition(lambda self: self.log.segments and self.log.segments[-1].size)
    @rule()
    def roll(self) -> None:
        self.log.roll(self.clock.ms)

    @rule()
    def lead_again(self) -> None:
        self.epoch += 1

    @rule(data=st.data())
    def delete_front(self, data: st.DataObject) -> None:
        self.start = data.draw(st.integers(self.start, self.end))
        self.log.advance_start(Offset(self.start))
        self.wait(self.synced())
        self.wait(self.logs.save_points())
        self.wait(self.logs.drop_segments_before_start(self.log))
        self.batches = [batch for batch in self.batches if batch.next_offset > self.start]
        self.renew_producers()

    # What happens to it

    @rule()
    def reopen(self) -> None:
        self.wait(self.logs.close())
        self.open()
        assert self.logs.was_clean
        self.check_all()

    @rule(
        power=st.booleans(),
        damage=st.sampled_from(["none", "torn", "zeroed", "flipped", "garbage"]),
        data=st.data(),
    )
    def crash(self, power: bool, damage: str, data: st.DataObject) -> None:
        durable = self.log.durable_offset
        self.logs.release()
        if power:
            self.disk.power_loss()
        self.spoil(durable, damage, data)
        self.open()
        assert self.log.next_offset >= durable
        if self.log.log_start != self.start:
            # Of a log none of which was durable a later segment may be left, without the first.
            assert power
            assert self.start >= durable
            self.start = self.log.log_start
            self.batches = [batch for batch in self.batches if batch.offset >= self.start]
        survivors = [batch for batch in self.batches if batch.next_offset <= self.log.next_offset]
        assert [batch for batch in self.batches if batch.next_offset <= durable] == [
            batch for batch in survivors if batch.next_offset <= durable
        ]
        self.batches = survivors
        self.renew_producers()
        if self.log.next_offset != self.end:
            # The last offset, which no CRC covers, was hit, and nothing follows it that would give it the lie.
            assert damage in ("flipped", "garbage")
            self.begin_anew()
            return
        self.check_all()

    def begin_anew(self) -> None:
        self.batches, self.start = [], 0
        self.disk = SimulatedDisk()
        self.open()

    def spoil(self, durable: Offset, damage: str, data: st.DataObject) -> None:
        """Change bytes of the log that no sync has covered."""
        directory = ROOT / str(AT)
        if damage == "none" or not self.disk.exists(directory):
            return
        names = [name for name in self.disk.list_names(directory) if name.endswith(".log")]
        files = [(int(name[:20]), self.disk.open(directory / name)) for name in names]
        last = max((base for base, _ in files if base <= durable), default=None)
        for base, file in files:
            first = 0 if base > durable else file.size()
            if base == last:
                first = self.end_of_durable(file, durable)
            if first >= file.size():
                # Only behind the segment that was being written: what was closed is not touched any more.
                if damage == "garbage" and self.log.segments and base == self.log.segments[-1].base_offset:
                    file.write_at(file.size(), (data.draw(st.binary(min_size=1, max_size=200)),))
                continue
            at = data.draw(st.integers(first, file.size() - 1))
            match damage:
                case "torn":
                    file.truncate(at)
                case "zeroed":
                    file.write_at(at, (bytes(file.size() - at),))
                case _:
                    (byte,) = file.read(at, 1)
                    file.write_at(at, (bytes([byte ^ (1 << data.draw(st.integers(0, 7)))]),))

    def end_of_durable(self, file: Any, durable: Offset) -> int:
        position = 0
        while position + 61 <= file.size():
            header = read_header(file.read(position, 61))
            if header.base_offset >= durable or header.size < 61 or header.magic != 2:
                break
            position += header.size
        return position

    def check_all(self) -> None:
        assert (self.log.log_start, self.log.next_offset) == (self.start, self.end)
        found: list[str] = []
        offset = self.log.log_start
        while offset < self.log.next_offset:
            chunk = self.log.read(offset, 500, self.log.next_offset, cached_only=False)
            assert chunk
            found += values_in(chunk)
            while len(chunk) >= 61 and read_header(chunk).size <= len(chunk):
                offset = Offset(read_header(chunk).next_offset)
                chunk = chunk[read_header(chunk).size :]
        assert found == [value for batch in self.batches for value in batch.values]

    @invariant()
    def ends_are_right(self) -> None:
        if hasattr(self, "log"):
            assert (self.log.log_start, self.log.next_offset) == (self.start, self.end)


LogLife.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
test_a_log_behaves_like_a_list_whatever_happens_to_it = LogLife.TestCase
