"""One transactional id under any mix of producers, commits, refusals, crashes and time: what must hold at every step.

The machine is the real one, with its log as a list. The model is small: which producer owns the id, how each
transaction was decided, and which partitions have heard of it.
"""

import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.coordination import Decision, Now, Reply
from penstock.errors import ErrorCode
from penstock.model import TopicPartition
from penstock.transactions.transaction import (
    LAST_USABLE_EPOCH,
    MOVES,
    NeedsProducerId,
    State,
    Transaction,
    verify_partitions,
)
from penstock.transactions.transaction_records import TransactionRecord, decode_record, encode_record
from penstock.transactions.transaction_shard import PartitionsToAdd, ProducerGrant, TransactionShard

NAME = "pay"
TIMEOUT_MS = 10_000
EXPIRATION_MS = 100_000
PARTITIONS = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)]
FIRST_PRODUCER_ID = 1

producers = st.integers(0, 2)
sometimes = st.sampled_from([False, False, False, True])
mostly = st.sampled_from([True, True, True, False])
rarely = st.integers(0, 9).map(lambda number: number == 0)


class Decided(NamedTuple):
    is_commit: bool
    partitions: frozenset[TopicPartition]


@dataclass(eq=False)
class Producer:
    """What one copy of an application knows. Its version of transactions never changes, its life does."""

    is_version_2: bool
    identity: tuple[int, int] | None = None
    is_fenced: bool = False
    added: set[TopicPartition] = field(default_factory=set)
    is_ending: bool = False  # it has not heard how its EndTxn went, and adds nothing before it has

    def begins(self, identity: tuple[int, int]) -> None:
        self.identity, self.added, self.is_ending = identity, set(), False


@dataclass(eq=False)
class Answer:
    """Where a reply goes, if it is heard at all."""

    then: Any = None
    answered: bool = False

    def done(self) -> bool:
        return self.answered

    def set_result(self, result: Any, /) -> None:
        assert not self.answered, "answered twice"
        self.answered = True
        if self.then is not None:
            self.then(result)

    def set_exception(self, exception: Any, /) -> None:
        raise AssertionError(exception)


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000
        self.is_loading = False
        self.completions = 0
        self.log: list[list[tuple[bytes, bytes | None]]] = []  # batches
        self.shard = TransactionShard(self.on_moved)
        self.in_flight: Decision[TransactionRecord] | None = None
        self.on_commit: Any = None
        self.last_producer_id = FIRST_PRODUCER_ID
        self.current: Transaction | None = None
        self.epochs: dict[int, int] = {}
        self.owners: dict[tuple[int, int], Producer] = {}
        self.decided: dict[tuple[int, int], list[Decided]] = defaultdict(list)
        self.unmarked: set[TopicPartition] = set()
        self.marked: dict[tuple[int, int], dict[TopicPartition, bool]] = defaultdict(dict)
        self.producers = [Producer(True), Producer(True), Producer(False)]

    @initialize(epoch=st.sampled_from([0, 5, LAST_USABLE_EPOCH - 4, LAST_USABLE_EPOCH - 1, LAST_USABLE_EPOCH]))
    def an_id_of_some_age(self, epoch: int) -> None:
        aged = Transaction(FIRST_PRODUCER_ID, epoch, TIMEOUT_MS, State.EMPTY, self.now_ms)
        self.perform(Decision([TransactionRecord(NAME, aged)]))
        self.commit()

    # What producers do

    @rule(who=producers, is_time=sometimes, is_heard=mostly, is_quick=mostly)
    def starts(self, who: int, is_time: bool, is_heard: bool, is_quick: bool) -> None:
        """A new copy of the application, which knows nothing."""
        if self.someone_is_known() and not is_time:
            return
        producer = self.producers[who]
        producer.identity = None
        self.initialise(producer, None, is_heard)
        self.commit_if(is_quick)

    @precondition(lambda self: self.someone_is_known())
    @rule(who=producers, is_time=sometimes, is_heard=mostly, is_quick=mostly)
    def goes_on(self, who: int, is_time: bool, is_heard: bool, is_quick: bool) -> None:
        producer = self.known(who)
        if is_time:
            self.initialise(producer, producer.identity, is_heard)
            self.commit_if(is_quick)

    @precondition(lambda self: self.someone_is_known())
    @rule(who=producers, at=st.sampled_from(PARTITIONS), is_heard=mostly, is_quick=mostly)
    def adds(self, who: int, at: TopicPartition, is_heard: bool, is_quick: bool) -> None:
        producer = self.known(who)
        identity = producer.identity
        assert identity is not None
        if producer.is_ending:
            return

        def heard(code: ErrorCode | None) -> None:
            assert code is not ErrorCode.NONE or not producer.is_fenced, "a fenced producer added a partition"
            is_same = producer.identity == identity and not producer.is_ending
            if code is ErrorCode.NONE and is_heard and is_same:
                producer.added.add(at)

        answer = Answer(heard)
        if self.shard.is_busy(NAME) and is_quick:
            self.shard.park(NAME, PartitionsToAdd(identity, [at], answer))
            return
        self.perform(self.shard.add_partitions(NAME, identity, [at], answer, self.now()))
        self.commit_if(is_quick)

    @precondition(lambda self: self.someone_is_known())
    @rule(who=producers, is_commit=st.booleans(), is_heard=mostly, is_quick=mostly)
    def ends(self, who: int, is_commit: bool, is_heard: bool, is_quick: bool) -> None:
        producer = self.known(who)
        identity = producer.identity
        assert identity is not None
        producer.is_ending = True

        def heard(grant: ProducerGrant) -> None:
            if grant.error is not ErrorCode.NONE:
                return
            assert not producer.is_fenced, "a fenced producer ended a transaction"
            decided = self.decided[identity][-1]
            assert decided.is_commit == is_commit, "told otherwise than it was decided"
            assert decided.partitions >= producer.added, "a partition was left out"
            granted = (grant.producer_id, grant.producer_epoch)
            self.grant(granted, producer)
            if is_heard:
                producer.begins(granted)

        def step(new_producer_id: int | None) -> Any:
            if producer.is_version_2:
                request = (NAME, identity, is_commit, new_producer_id)
                return self.shard.end_and_bump(*request, Answer(heard), self.now())
            return self.shard.end(NAME, identity, is_commit, Answer(heard), self.now())

        self.perform(self.with_producer_id(step))
        self.commit_if(is_quick)

    # What the broker does

    @precondition(lambda self: self.in_flight is not None)
    @rule()
    def commit(self) -> None:
        assert self.in_flight is not None
        decision, self.in_flight = self.in_flight, None
        for record in decision.records:
            self.apply(record)
        self.committed()
        self.deliver(decision.replies)

    @precondition(lambda self: self.in_flight is not None)
    @rule()
    def refuse(self) -> None:
        assert self.in_flight is not None
        decision, self.in_flight = self.in_flight, None
        self.log.pop()
        assert decision.undo is not None
        self.deliver(decision.undo(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        self.on_commit = None

    @rule(is_written=st.booleans(), is_time=sometimes)
    def crash(self, is_written: bool, is_time: bool) -> None:
        """What was on its way may have reached the disk or not; nobody hears of it either way."""
        if not is_time:
            return
        is_new = self.in_flight is not None and is_written
        if self.in_flight is not None and not is_written:
            self.log.pop()
        self.in_flight = None
        self.is_loading = True
        self.shard = TransactionShard(self.on_moved)
        for number, batch in enumerate(self.log, 1):
            if is_new and number == len(self.log):
                # The model hears of it now, as of any other.
                self.current, self.is_loading = self.shard.transactions.get(NAME), False
            for key, value in batch:
                record = decode_record(key, value)
                assert record is not None
                self.apply(record)
        self.current, self.is_loading = self.shard.transactions.get(NAME), False
        # As compaction would: what is last said of the one id is all there is to know of it.
        self.log = [self.log[-1][-1:]]
        if is_new:
            self.committed()
        self.on_commit = None
        # The new coordinator sends every marker again.
        current = self.current
        self.unmarked = set(current.partitions) if current is not None and current.state.is_prepared else set()

    @precondition(lambda self: self.unmarked)
    @rule(count=st.integers(1, 3))
    def markers_are_written(self, count: int) -> None:
        for at in sorted(self.unmarked)[:count]:
            self.mark(at)

    def mark(self, at: TopicPartition) -> None:
        current = self.current
        assert current is not None
        assert current.state.is_prepared
        self.unmarked.discard(at)
        # A transaction of version 1 has the epoch of the one before: its own is when it was prepared.
        marked = self.marked[current.producer_id, current.updated_ms]
        is_commit = current.state is State.PREPARE_COMMIT
        assert marked.get(at, is_commit) == is_commit, "one transaction, two ends"
        marked[at] = is_commit

    @precondition(
        lambda self: (
            not self.unmarked and self.in_flight is None and self.current is not None and self.current.state.is_prepared
        )
    )
    @rule(is_quick=mostly)
    def completes(self, is_quick: bool) -> None:
        self.perform(self.shard.complete(NAME, Answer(), self.now()))
        self.commit_if(is_quick)

    @rule(is_time=rarely)
    def times_out(self, is_time: bool) -> None:
        if not is_time:
            return
        self.now_ms += TIMEOUT_MS + 1
        if self.current is not None:
            step = self.shard.time_out(NAME, Answer(), self.now())
            if step is not None:
                self.perform(step, self.fence_all)

    @rule(is_time=rarely)
    def expires(self, is_time: bool) -> None:
        if not is_time:
            return
        self.now_ms += EXPIRATION_MS
        step = self.shard.expire(NAME, EXPIRATION_MS, self.now())
        if step is not None:
            self.perform(step)

    # What must hold

    @invariant()
    def a_fenced_producer_may_not_write(self) -> None:
        for producer in self.producers:
            if producer.is_fenced and producer.identity is not None:
                verified = verify_partitions(self.current, *producer.identity, PARTITIONS)
                assert ErrorCode.NONE not in verified.values()

    @invariant()
    def memory_is_what_the_log_says(self) -> None:
        kept = self.log if self.in_flight is None else self.log[:-1]
        if kept:
            record = decode_record(*kept[-1][-1])
            assert record is not None
            current = self.current
            # The last epoch is for retries only, and is not kept.
            bare = None if current is None else current._replace(last_producer_epoch=-1)
            assert record.transaction == bare
            assert self.shard.transactions.get(NAME) == current

    @invariant()
    def one_record_at_a_time_is_on_its_way(self) -> None:
        assert self.shard.is_moving(NAME) == (self.in_flight is not None and self.in_flight.undo is not None)

    # Inside

    def goes_forward(self, dice: random.Random) -> None:
        if self.in_flight is not None:
            if dice.random() < 0.1:
                self.refuse()
            else:
                self.commit()
        elif self.unmarked:
            self.markers_are_written(dice.randrange(1, 4))
        elif self.current is not None and self.current.state.is_prepared:
            self.completes(dice.random() < 0.8)

    def someone_is_known(self) -> bool:
        return any(producer.identity is not None for producer in self.producers)

    def known(self, who: int) -> Producer:
        known = [producer for producer in self.producers if producer.identity is not None]
        return known[who % len(known)]

    def commit_if(self, is_quick: bool) -> None:
        if is_quick and self.in_flight is not None:
            self.commit()

    def fence_all(self) -> None:
        for producer in self.producers:
            producer.is_fenced = True

    def initialise(self, producer: Producer, expected: tuple[int, int] | None, is_heard: bool) -> None:
        was_there, was_fenced = self.current is not None, producer.is_fenced

        def heard(grant: ProducerGrant) -> None:
            if grant.error is not ErrorCode.NONE:
                return
            if expected is not None and was_there:
                assert not producer.is_fenced, "a fenced producer was let in again"
            granted = (grant.producer_id, grant.producer_epoch)
            self.grant(granted, producer)
            if is_heard:
                producer.begins(granted)
                producer.is_fenced = False

        def committed() -> None:
            # Also if the answer is lost: the id is this producer's from now on.
            # So is nobody's, if what was open had to be aborted first.
            assert self.current is not None
            is_aborted = self.current.state is State.PREPARE_ABORT
            assert not (is_aborted and was_fenced and expected is not None), "a zombie aborted what its successor did"
            for other in self.producers:
                other.is_fenced = other.is_fenced or other is not producer or expected is None or is_aborted

        def step(new_producer_id: int | None) -> Any:
            request = (TIMEOUT_MS, expected, new_producer_id)
            return self.shard.initialise(NAME, request, True, Answer(heard), self.now())

        self.perform(self.with_producer_id(step), committed)

    def with_producer_id(self, step: Any) -> Any:
        first = step(None)
        if not isinstance(first, NeedsProducerId):
            return first
        self.last_producer_id += 1
        return step(self.last_producer_id)

    def perform(self, decision: Decision[TransactionRecord], on_commit: Any = None) -> None:
        if not decision.records:
            self.deliver(decision.replies)
            return
        assert self.in_flight is None, "two records of one id on their way"
        self.now_ms += 1
        self.log.append([encode_record(record) for record in decision.records])
        self.in_flight, self.on_commit = decision, on_commit

    def apply(self, record: TransactionRecord) -> None:
        self.deliver(self.shard.apply(record, self.now()))

    def deliver(self, replies: Iterable[Reply]) -> None:
        for answer, reply in replies:
            answer.set_result(reply)

    def committed(self) -> None:
        if self.on_commit is not None:
            self.on_commit()
        self.on_commit = None

    def on_moved(self, name: str, after: Transaction | None) -> None:
        if self.is_loading:
            return
        before, self.current = self.current, after
        if after is None:
            return
        assert after.producer_epoch >= self.epochs.get(after.producer_id, 0), "an epoch fell"
        self.epochs[after.producer_id] = after.producer_epoch
        if before is None:
            return
        assert after.state in {to for (state, _), to in MOVES.items() if state is before.state}, "not in the table"
        if after.state.is_prepared:
            self.prepared(before, after)
        elif before.state.is_prepared:
            self.completed(before, after)

    def prepared(self, before: Transaction, after: Transaction) -> None:
        decided = Decided(after.state is State.PREPARE_COMMIT, after.partitions)
        assert after.partitions == before.partitions
        self.decided[before.producer_id, before.producer_epoch].append(decided)
        self.unmarked = set(after.partitions)

    def completed(self, before: Transaction, after: Transaction) -> None:
        self.completions += 1
        is_commit = after.state is State.COMPLETE_COMMIT
        assert is_commit == (before.state is State.PREPARE_COMMIT), "completed otherwise than prepared"
        marked = self.marked[before.producer_id, before.updated_ms]
        assert all(marked.get(at) is is_commit for at in before.partitions), "complete without a marker"

    def grant(self, identity: tuple[int, int], producer: Producer) -> None:
        assert self.owners.setdefault(identity, producer) is producer, "two producers were given one epoch"

    def now(self) -> Now:
        return Now(self.now_ms, self.now_ms)


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("seed", range(8))
def test_a_long_life_of_an_id(seed: int) -> None:
    """Further than an example that hypothesis could shrink: thousands of steps, most of them of use."""
    dice = random.Random(seed)
    machine = TransactionMachine()
    machine.an_id_of_some_age(dice.choice([0, LAST_USABLE_EPOCH - 3]))
    for _ in range(3_000):
        is_heard, is_quick, who = dice.random() < 0.8, dice.random() < 0.8, dice.randrange(3)
        match dice.choices(range(8), (2, 2, 6, 6, 12, 1, 0.3, 0.1))[0]:
            case 0:
                machine.starts(who, dice.random() < 0.3, is_heard, is_quick)
            case 1 if machine.someone_is_known():
                machine.goes_on(who, True, is_heard, is_quick)
            case 2 if machine.someone_is_known():
                machine.adds(who, dice.choice(PARTITIONS), is_heard, is_quick)
            case 3 if machine.someone_is_known():
                machine.ends(who, dice.random() < 0.6, is_heard, is_quick)
            case 4:
                machine.goes_forward(dice)
            case 5:
                machine.crash(dice.random() < 0.5, True)
            case 6:
                machine.times_out(True)
            case 7:
                machine.expires(True)
            case _:
                pass
        machine.a_fenced_producer_may_not_write()
        machine.memory_is_what_the_log_says()
        machine.one_record_at_a_time_is_on_its_way()
    assert machine.completions > 40, "a life of refusals proves nothing"
