"""Transactions in one partition's log: stable offset and aborted list are those of a reader who has seen everything.

Random lives of a log on a simulated disk: producers of both transaction versions begin, commit and abort, the log is
cut, rolled, saved, closed and crashed, side files are lost and damaged. The model is a list of all that was ever
written, replayed from its beginning for every question.
"""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import NamedTuple, TypeVar

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.chaos.workload import ManualClock
from tests.simulation.disk import SimulatedDisk
from tests.unit.log.making import TOPIC_ID, committed_values, make_batch

from penstock.clock import Rng
from penstock.config import TopicConfig
from penstock.log.directory import LogDirectory, LogRequest
from penstock.log.partition_log import PartitionLog
from penstock.model import LeaderEpoch, Offset, TopicPartition
from penstock.records.markers import ControlType, Marker

T = TypeVar("T")

AT = TopicPartition("orders", 0)
ROOT = Path("/data")
CONFIG = TopicConfig(segment_bytes=1024, index_interval_bytes=128, file_delete_delay_ms=0)
PLAIN = -1


class Written(NamedTuple):
    offset: int
    values: tuple[str, ...]  # none: a marker
    producer: int
    epoch: int
    sequence: int
    ends_with: ControlType | None = None

    @property
    def next_offset(self) -> int:
        return self.offset + max(1, len(self.values))


class Transaction(NamedTuple):
    producer: int
    first_offset: int
    marker: int | None
    is_aborted: bool


def replay(written: list[Written]) -> list[Transaction]:
    """All transactions, as somebody finds them who reads from the first batch to the last."""
    opened: dict[int, int] = {}
    found: list[Transaction] = []
    for each in written:
        if each.producer == PLAIN:
            continue
        if each.ends_with is None:
            opened.setdefault(each.producer, each.offset)
        elif each.producer in opened:
            first = opened.pop(each.producer)
            found.append(Transaction(each.producer, first, each.offset, each.ends_with is ControlType.ABORT))
    return found + [Transaction(producer, first, None, False) for producer, first in opened.items()]


class TransactionLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.written: list[Written] = []  # all of it, also what was deleted
        self.start = 0
        self.count = 0
        self.producers = [10, 11, 12]

    def teardown(self) -> None:
        self.loop.close()

    def wait(self, work: Awaitable[T]) -> T:
        async def run() -> T:
            return await work

        return self.loop.run_until_complete(run())

    @property
    def end(self) -> int:
        return self.written[-1].next_offset if self.written else 0

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

    def last_of(self, producer: int) -> Written | None:
        return next((each for each in reversed(self.written) if each.producer == producer), None)

    # What producers and coordinators do

    @rule(
        acts=st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["send", "send", "commit", "abort"])), max_size=12)
    )
    def work(self, acts: list[tuple[int, str]]) -> None:
        """Many of these between two of what else happens: else there is hardly ever anything to be wrong about."""
        for slot, act in acts:
            if act == "send" or slot == 3:
                self.send(slot if slot < 3 else None, 1 + slot % 2, 10 + 60 * slot)
            else:
                self.finish(slot, act == "abort", is_version_2=slot == 1)

    def send(self, slot: int | None, count: int, size: int) -> None:
        producer = PLAIN if slot is None else self.producers[slot]
        values = tuple(f"{self.count + number}".ljust(size, ".") for number in range(count))
        self.count += count
        epoch, sequence = 0, -1
        if producer != PLAIN:
            mine = [each for each in self.written if each.producer == producer]
            epoch = mine[-1].epoch if mine else 0
            data = [each for each in mine if each.values and each.epoch == epoch]
            sequence = data[-1].sequence + len(data[-1].values) if data else 0
        self.clock.ms += 1
        view, header = make_batch(
            *values,
            timestamp=self.clock.ms,
            producer=producer,
            epoch=epoch,
            sequence=sequence,
            is_transactional=producer != PLAIN,
        )
        appended = self.log.append(view, header, LeaderEpoch(0), self.clock.ms)
        assert appended.base_offset == self.end
        self.written.append(Written(appended.base_offset, values, producer, epoch, sequence))

    def finish(self, slot: int, is_abort: bool, is_version_2: bool) -> None:
        producer = self.producers[slot]
        last = self.last_of(producer)
        epoch = (last.epoch if last else 0) + is_version_2
        control_type = ControlType.ABORT if is_abort else ControlType.COMMIT
        self.clock.ms += 1
        appended = self.log.append_marker(
            Marker(control_type, 0), producer, epoch, LeaderEpoch(0), self.clock.ms, is_version_2=is_version_2
        )
        assert appended == (self.end, self.end + 1, False)
        self.written.append(Written(appended.base_offset, (), producer, epoch, -1, control_type))

    # What the broker does

    async def synced(self) -> None:
        await self.log.sync.wait_for(self.log.next_offset)

    @rule()
    def sync(self) -> None:
        self.wait(self.synced())

    @rule()
    def checkpoint(self) -> None:
        self.wait(self.logs.checkpoint())

    @precondition(lambda self: self.log.segments and self.log.segments[-1].size)
    @rule()
    def roll(self) -> None:
        self.log.roll(self.clock.ms)

    @rule(data=st.data())
    def delete_front(self, data: st.DataObject) -> None:
        self.start = data.draw(st.integers(self.start, self.end))
        self.log.advance_start(Offset(self.start))
        self.wait(self.synced())
        self.wait(self.logs.save_points())
        self.wait(self.logs.drop_segments_before_start(self.log))

    # What happens to it

    @rule()
    def reopen(self) -> None:
        self.wait(self.logs.close())
        self.open()

    @rule(
        data=st.data(),
        harm=st.sampled_from(["lost", "torn", "flipped", "grown"]),
        suffixes=st.sampled_from([(".txnindex",), (".snapshot",), (".txnindex", ".snapshot")]),
        is_clean=st.booleans(),
    )
    def reopen_with_damaged_side_files(
        self, data: st.DataObject, harm: str, suffixes: tuple[str, ...], is_clean: bool
    ) -> None:
        if is_clean:
            self.wait(self.logs.close())
        else:
            self.logs.release()
        directory = ROOT / str(AT)
        names = self.disk.list_names(directory) if self.disk.exists(directory) else []
        for name in names:
            if name.endswith(suffixes):
                self.spoil(directory / name, harm, data)
        if ".snapshot" in suffixes:
            self.renew_producers()
        self.open()

    def renew_producers(self) -> None:
        """Without a snapshot nobody knows the sequence of a producer whose records are deleted: another comes."""
        for slot, producer in enumerate(self.producers):
            if not any(
                each.producer == producer and each.values and each.offset >= self.start for each in self.written
            ):
                self.producers[slot] = max(self.producers) + 1

    def spoil(self, path: Path, harm: str, data: st.DataObject) -> None:
        file = self.disk.open(path)
        size = file.size()
        if harm == "lost" or not size:
            self.disk.remove(path)
        elif harm == "torn":
            file.truncate(data.draw(st.integers(0, size - 1)))
        elif harm == "grown":
            file.write_at(size, (data.draw(st.binary(min_size=1, max_size=70)),))
        else:
            at = data.draw(st.integers(0, size - 1))
            (byte,) = file.read(at, 1)
            file.write_at(at, (bytes([byte ^ 1 << data.draw(st.integers(0, 7))]),))

    @rule(power=st.booleans())
    def crash(self, power: bool) -> None:
        durable = self.log.durable_offset
        self.logs.release()
        if power:
            self.disk.power_loss()
        self.open()
        assert self.log.next_offset >= durable
        self.written = [each for each in self.written if each.next_offset <= self.log.next_offset]
        if self.log.log_start != self.start:
            # Of a log none of which was durable a later segment may be left, without the first.
            assert power
            self.start = self.log.log_start
            self.renew_producers()
        if self.log.next_offset != self.end:
            self.written, self.start, self.disk = [], 0, SimulatedDisk()
            self.open()

    # What must hold

    @invariant()
    def the_stable_offset_is_right(self) -> None:
        if not hasattr(self, "log"):
            return
        end, stable = self.log.next_offset, self.log.last_stable_offset(self.log.next_offset)
        assert (self.log.log_start, end) == (self.start, self.end)
        opened = [each for each in replay(self.written) if each.marker is None]
        lowest = max(self.start, min((each.first_offset for each in opened), default=end))
        assert lowest <= stable
        # Of a transaction whose first records were deleted the log may know only what is left.
        left = [each for each in self.written if each.next_offset > self.start]
        highest = min((each.first_offset for each in replay(left) if each.marker is None), default=end)
        assert stable <= max(highest, self.start)

    @invariant()
    def a_committed_reader_sees_what_was_committed_and_is_told_exactly_why(self) -> None:
        if not hasattr(self, "log"):
            return
        stable = self.log.last_stable_offset(self.log.next_offset)
        for offset in range(self.start, stable, 3):
            self.check_reader(offset, Offset(min(stable, offset + 20)))
        self.check_reader(self.start, stable)

    def check_reader(self, offset: int, stable: Offset) -> None:
        chunk = self.log.read(Offset(offset), 1 << 20, stable, cached_only=False)
        read = [each for each in self.written if offset < each.next_offset <= stable]
        told = self.log.aborted_transactions(Offset(offset), stable)
        transactions = replay(self.written)
        aborted = [each for each in transactions if each.is_aborted]
        self.check_list(offset, stable, [(each.producer_id, each.first_offset) for each in told], aborted)
        undone = {
            each.offset
            for transaction in aborted
            for each in self.written
            if each.producer == transaction.producer
            and transaction.first_offset <= each.offset <= (transaction.marker or 0)
        }
        expected = [
            value
            for each in read
            for number, value in enumerate(each.values)
            if each.offset + number >= offset and each.offset not in undone
        ]
        seen = committed_values(chunk, offset, [(each.producer_id, each.first_offset) for each in told])
        assert seen == expected[: len(seen)]  # one read ends with a segment
        assert len(seen) > 0 or not expected or chunk

    def check_list(self, start: int, end: int, told: list[tuple[int, int]], aborted: list[Transaction]) -> None:
        reach = [each for each in aborted if (each.marker or 0) >= start and each.first_offset < end]
        exact = {(each.producer, each.first_offset) for each in reach if each.first_offset >= self.start}
        assert exact <= set(told)
        assert len(told) == len(set(told))
        # Where the first records are deleted, the first that is left may stand for them.
        cut = {each.producer for each in reach if each.first_offset < self.start}
        assert {producer for producer, _ in set(told) - exact} <= cut

    @invariant()
    def producers_are_known_by_what_they_have_open(self) -> None:
        if not hasattr(self, "log"):
            return
        opened = {each.producer: each for each in replay(self.written) if each.marker is None}
        states = {state.producer_id: state for state in self.log.producer_states()}
        for producer in self.producers:
            last, transaction = self.last_of(producer), opened.get(producer)
            state = states.get(producer)
            if state is None or last is None:
                assert last is None or last.offset < self.start
                continue
            assert state.producer_epoch == last.epoch
            assert state.current_txn_start_offset < 0 or transaction is not None
            if transaction is not None and transaction.first_offset >= self.start:
                assert state.current_txn_start_offset == transaction.first_offset
                assert self.log.has_open_transaction(producer, last.epoch)
                assert not self.log.has_open_transaction(producer, last.epoch + 1)


TransactionLife.TestCase.settings = settings(
    max_examples=80, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
test_transactions_in_a_log_are_what_a_reader_of_everything_finds = TransactionLife.TestCase
