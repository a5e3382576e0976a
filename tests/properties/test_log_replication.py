"""Two replicas of one log: whoever leads and whatever happens to them, what both hold is the same.

Random lives on simulated disks: leaders of many epochs write plain batches and transactions, the other follows in
pieces of any size, either is cut back where the epochs say so, rolled, saved, closed, killed, and loses power. The
model is what was committed: held by both, in the same bytes, it never goes and never changes.
"""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.chaos.workload import ManualClock
from tests.simulation.disk import SimulatedDisk
from tests.unit.log.making import make_batch

from penstock.clock import Rng
from penstock.config import TopicConfig
from penstock.errors import OffsetOutOfRange
from penstock.log.directory import LogDirectory, LogRequest
from penstock.log.partition_log import PartitionLog
from penstock.model import LeaderEpoch, Offset, TopicPartition
from penstock.records.batch import HEADER_BYTES, read_header
from penstock.records.markers import ControlType, Marker

T = TypeVar("T")

AT = TopicPartition("orders", 0)
ROOT = Path("/data")
CONFIG = TopicConfig(segment_bytes=1024, index_interval_bytes=128, file_delete_delay_ms=0)
REQUEST = LogRequest(AT, UUID(int=0x77), CONFIG, has_peers=True)
Acts = list[tuple[int, str]]
WORK = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["send", "send", "commit", "abort"])), max_size=10)
CUTS_MAX = 20  # of one fetch: each takes at least one epoch off


class Replica:
    """One broker's copy, which can be opened again."""

    def __init__(self, clock: ManualClock, seed: int) -> None:
        self.clock = clock
        self.disk = SimulatedDisk(seed)

    @property
    def log(self) -> PartitionLog:
        return self.logs.logs[AT]

    async def open(self) -> None:
        self.logs = LogDirectory(self.disk, ROOT, self.clock, Rng(3))
        self.logs.prepare()
        await self.logs.open_all([REQUEST])
        assert self.logs.offline == {}

    async def fresh(self) -> PartitionLog:
        """A log made of the same batches and of nothing else."""
        other = Replica(self.clock, 0)
        await other.open()
        log = other.log
        if self.log.log_start:
            log = await other.logs.restart_at(log, self.log.log_start)
        batches = batches_of(self.log, self.log.log_start, self.log.next_offset)
        log.append_replicated(memoryview(b"".join(batches.values())), self.clock.ms)
        return log


def batches_of(log: PartitionLog, start: int, end: int) -> dict[int, bytes]:
    """The batches between two offsets, by their own."""
    batches: dict[int, bytes] = {}
    while start < end:
        chunk = log.read(Offset(start), 1, Offset(end), cached_only=False)
        assert chunk, f"nothing at {start}"
        header = read_header(chunk)
        batches[header.base_offset] = bytes(chunk)
        start = header.next_offset
    return batches


def diverges(leader: PartitionLog, epoch: LeaderEpoch, offset: Offset) -> tuple[LeaderEpoch, Offset] | None:
    """What a leader answers if not records, asked for an offset by one whose last batch is of this epoch."""
    if epoch < 0:
        return None
    mine, end = leader.epochs.end_of(epoch, leader.next_offset)
    if mine < 0:  # older than all that is left
        mine, end = epoch, leader.log_start
    return (mine, end) if mine < epoch or end < offset else None


def cut_point(follower: PartitionLog, epoch: LeaderEpoch, end: Offset) -> Offset:
    """Where a follower cuts itself who hears that its leader's epoch, at most its own, ended there (TRAPS R2)."""
    mine, my_end = follower.epochs.end_of(epoch, follower.next_offset)
    if mine < 0:
        return follower.log_start
    return my_end if mine != epoch else Offset(min(end, my_end))


def said_of(log: PartitionLog) -> object:
    producers = [
        (
            each.producer_id,
            each.producer_epoch,
            each.last_sequence,
            each.coordinator_epoch,
            each.current_txn_start_offset,
        )
        for each in sorted(log.producer_states())
    ]
    return producers, list(log.aborted), log.last_stable_offset(log.next_offset)


class ReplicatedLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.epoch = 0
        self.count = 0
        self.leading = 0
        self.committed: dict[int, bytes] = {}
        self.committed_end = 0
        self.is_whole = True  # nothing was deleted yet

    def teardown(self) -> None:
        self.loop.close()

    def wait(self, work: Awaitable[T]) -> T:
        async def run() -> T:
            return await work

        return self.loop.run_until_complete(run())

    @property
    def leader(self) -> Replica:
        return self.replicas[self.leading]

    @property
    def follower(self) -> Replica:
        return self.replicas[1 - self.leading]

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.replicas = [Replica(self.clock, seed), Replica(self.clock, seed + 1)]
        for replica in self.replicas:
            self.wait(replica.open())
        self.lead(0)

    def lead(self, which: int) -> None:
        self.leading = which
        self.epoch += 1
        self.leader.log.begin_epoch(LeaderEpoch(self.epoch))

    # What leaders and followers do

    @rule(acts=WORK)
    def work(self, acts: Acts) -> None:
        for producer, act in acts:
            self.clock.ms += 100
            log, epoch = self.leader.log, LeaderEpoch(self.epoch)
            if act == "send" or producer == 0:
                self.count += 1
                known = {each.producer_id: each.last_sequence for each in log.producer_states()}
                view, header = make_batch(
                    *[f"{self.count}".ljust(10 + 50 * producer)] * (1 + self.count % 3),
                    timestamp=self.clock.ms,
                    producer=producer,
                    sequence=known.get(producer, -1) + 1,
                    is_transactional=producer > 0,
                )
                log.append(view, header, epoch, self.clock.ms)
            else:
                control = ControlType.COMMIT if act == "commit" else ControlType.ABORT
                log.append_marker(Marker(control, 0), producer, 0, epoch, self.clock.ms)

    @rule(size=st.integers(1, 3000), times=st.integers(1, 4))
    def follow(self, size: int, times: int) -> None:
        for _ in range(times):
            self.wait(self.fetch(size))
        log, leader = self.follower.log, self.leader.log
        # The follower hears of a new start when it next asks.
        start = max(log.log_start, leader.log_start)
        if start <= log.next_offset:
            held = batches_of(log, start, log.next_offset)
            assert batches_of(leader, start, log.next_offset) == held
            if log.next_offset >= self.committed_end:
                self.committed.update(held)
                self.committed_end = log.next_offset

    async def fetch(self, size: int) -> None:
        """One fetch, and what a follower does with the answer."""
        leader = self.leader.log
        for _ in range(CUTS_MAX):
            log = self.follower.log
            answer = diverges(leader, log.epochs.latest, log.next_offset)
            if answer is not None:
                await self.follower.logs.truncate(log, cut_point(log, *answer))
                continue
            try:
                chunk = leader.read(log.next_offset, size, leader.next_offset, cached_only=False)
            except OffsetOutOfRange:
                await self.follower.logs.restart_at(log, leader.log_start)
                continue
            assert chunk is not None
            taken = log.append_replicated(chunk[:size] if len(chunk) > HEADER_BYTES else chunk, self.clock.ms)
            assert taken <= len(chunk)
            if log.log_start < leader.log_start <= log.next_offset:
                log.advance_start(leader.log_start)
            return
        raise AssertionError("a follower must come to an end with its cuts")

    @precondition(lambda self: self.committed_end > self.leader.log.log_start)
    @rule(data=st.data())
    def records_are_deleted(self, data: st.DataObject) -> None:
        log = self.leader.log
        log.advance_start(Offset(data.draw(st.integers(log.log_start, min(self.committed_end, log.next_offset)))))
        self.is_whole = False
        self.wait(self.leader.logs.save_points())
        self.wait(self.leader.logs.drop_segments_before_start(log))

    # Who leads

    @property
    def can_switch(self) -> bool:
        return self.follower.log.next_offset >= self.committed_end

    @precondition(lambda self: self.can_switch)
    @rule(lost=WORK, kept=WORK, size=st.integers(1, 3000))
    def the_other_leads(self, lost: Acts, kept: Acts, size: int) -> None:
        self.work(lost)
        self.lead(1 - self.leading)
        self.work(kept)
        self.follow(size, 2)

    @rule()
    def lead_again(self) -> None:
        self.lead(self.leading)

    # What happens to either

    @rule(which=st.integers(0, 1))
    def checkpoint(self, which: int) -> None:
        self.wait(self.replicas[which].logs.checkpoint())

    @rule(which=st.integers(0, 1))
    def roll(self, which: int) -> None:
        log = self.replicas[which].log
        if log.segments and log.segments[-1].size:
            log.roll(self.clock.ms)

    @rule(which=st.integers(0, 1))
    def reopen(self, which: int) -> None:
        self.wait(self.replicas[which].logs.close())
        self.wait(self.replicas[which].open())
        if which == self.leading:
            self.lead(which)

    @rule(power=st.booleans())
    def the_follower_crashes(self, power: bool) -> None:
        self.crash(self.follower, power)

    @precondition(lambda self: self.can_switch)
    @rule(power=st.booleans())
    def the_leader_crashes(self, power: bool) -> None:
        self.crash(self.leader, power)
        self.lead(1 - self.leading)

    def crash(self, replica: Replica, power: bool) -> None:
        durable = replica.log.durable_offset
        replica.logs.release()
        if power:
            replica.disk.power_loss()
        self.wait(replica.open())
        assert replica.log.next_offset >= durable

    @rule(which=st.integers(0, 1))
    def judge(self, which: int) -> None:
        replica = self.replicas[which]
        fresh = self.wait(replica.fresh())
        log = replica.log
        if self.is_whole:
            assert said_of(log) == said_of(fresh)
        else:
            ends = [{each.last_offset for each in which.aborted} for which in (log, fresh)]
            assert {end for end in ends[0] if end >= log.log_start} >= ends[1]
        # One that has begun and written nothing is known to its leader alone.
        for epoch in range(fresh.epochs.epoch_at(log.log_start), fresh.epochs.latest):
            asked = LeaderEpoch(epoch)
            assert log.epochs.end_of(asked, log.next_offset) == fresh.epochs.end_of(asked, fresh.next_offset)
        held = batches_of(log, log.log_start, min(log.next_offset, Offset(self.committed_end)))
        assert {base: self.committed[base] for base in held} == held


ReplicatedLife.TestCase.settings = settings(
    max_examples=80, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
test_what_two_replicas_both_hold_is_the_same_whatever_happens_to_them = ReplicatedLife.TestCase
