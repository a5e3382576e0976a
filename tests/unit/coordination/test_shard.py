"""The runtime under groups: a machine that counts, and a ledger in memory whose commits the test decides."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from penstock.clock import SystemClock
from penstock.coordination import BATCH_BYTES_MAX, Decision, Now, Reply, Shard, ShardState, as_coordinator_error
from penstock.errors import (
    ErrorCode,
    FencedLeaderEpoch,
    InvalidRequest,
    MalformedFrame,
    MessageTooLarge,
    NotLeaderOrFollower,
    PenstockError,
    StorageFailed,
    UnknownTopicOrPartition,
)
from penstock.model import TopicPartition
from penstock.records.batch import BatchHeader, read_header, stamp
from penstock.records.markers import Marker, encode_marker
from penstock.records.record import Record, decode_records, encode_batch

AT = TopicPartition("__consumer_offsets", 0)


class MemoryLedger:
    """Keeps batches; each is committed when the test says so."""

    topic_partition = AT
    leader_epoch = 0

    def __init__(self, batches: Iterable[bytearray] = ()) -> None:
        self.batches: list[bytearray] = list(batches)
        self.commits: list[asyncio.Future[int]] = []
        self.refusal: PenstockError | None = None
        self.next_offset = 0

    def append(self, batch: bytes | bytearray) -> asyncio.Future[int]:
        if self.refusal is not None:
            raise self.refusal
        kept = bytearray(batch)
        stamp(memoryview(kept), self.next_offset, 0)
        self.next_offset = read_header(kept).next_offset
        self.batches.append(kept)
        self.commits.append(asyncio.get_running_loop().create_future())
        return self.commits[-1]

    def append_marker(
        self, marker: Marker, producer_id: int, producer_epoch: int, *, is_version_2: bool = False
    ) -> asyncio.Future[int]:
        ids = {"producer_id": producer_id, "producer_epoch": producer_epoch}
        return self.append(encode_marker(marker, offset=0, timestamp=0, **ids))

    async def read_all(self) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
        for batch in self.batches:
            yield read_header(batch), memoryview(batch)


class Counting:
    """Applies texts; "bad" cannot be read back, "new" is none of its business."""

    def __init__(self) -> None:
        self.applied: list[str] = []
        self.parked: list[Reply] = []

    def encode(self, record: str) -> tuple[bytes, bytes | None]:
        return b"key", record.encode()

    def decode(self, key: bytes, value: bytes | None) -> str | None:
        text = (value or b"").decode()
        if text == "bad":
            raise MalformedFrame("bad")
        return None if text == "new" else text

    def apply(self, record: str, now: Now) -> Iterable[Reply]:
        self.applied.append(record)
        return self._unpark()

    def apply_in_transaction(self, producer_id: int, record: str, now: Now) -> Iterable[Reply]:
        self.applied.append(f"{producer_id}: {record}")
        return self._unpark()

    def end_transaction(self, producer_id: int, is_commit: bool, now: Now) -> Iterable[Reply]:
        self.applied.append(f"{producer_id}: {'commit' if is_commit else 'abort'}")
        return self._unpark()

    def _unpark(self) -> Iterable[Reply]:
        replies, self.parked = self.parked, []
        return replies


class Harness:
    def __init__(self, ledger: MemoryLedger | None = None, reply_timeout_ms: int = 60_000) -> None:
        self.ledger = ledger or MemoryLedger()
        self.machine = Counting()
        self.lost: list[PenstockError] = []
        self.shard = Shard(self.ledger, self.machine, SystemClock(), self.lost.append, reply_timeout_ms)

    def perform(self, *records: str, undo: Any = None) -> asyncio.Future[Any]:
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.shard.perform(Decision(list(records), [(waiter, "ok")], undo))
        return waiter

    def perform_in_transaction(self, producer_id: int, *records: str, undo: Any = None) -> asyncio.Future[Any]:
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.shard.perform_in_transaction(Decision(list(records), [(waiter, "ok")], undo), producer_id, 0)
        return waiter


@pytest.fixture
async def harness() -> Harness:
    harness = Harness()
    await harness.shard.load()
    return harness


async def turn() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_decisions_of_one_turn_share_a_batch(harness: Harness) -> None:
    first, second = harness.perform("a", "b"), harness.perform("c")
    await turn()
    (batch,) = harness.ledger.batches
    header = read_header(batch)
    values = [record.value for record in decode_records(batch, header, 10_000)]
    assert values == [b"a", b"b", b"c"]
    harness.ledger.commits[0].set_result(0)
    assert [await first, await second] == ["ok", "ok"]
    assert harness.machine.applied == ["a", "b", "c"]


async def test_nothing_is_applied_or_answered_before_the_commit(harness: Harness) -> None:
    waiter = harness.perform("a")
    await turn()
    assert not waiter.done()
    assert harness.machine.applied == []
    harness.ledger.commits[0].set_result(0)
    await waiter
    assert harness.machine.applied == ["a"]


async def test_records_are_applied_in_log_order_though_a_later_batch_is_reported_first(harness: Harness) -> None:
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    first = harness.perform("a")
    await turn()
    second = harness.perform("b")
    await turn()
    harness.ledger.commits[1].set_result(1)
    await turn()
    assert not second.done()
    harness.ledger.commits[0].set_result(0)
    await asyncio.gather(first, second)
    assert harness.machine.applied == ["a", "b"]
    assert complaints == []


async def test_a_decision_without_records_is_answered_at_once(harness: Harness) -> None:
    assert harness.perform().done()
    await turn()
    assert harness.ledger.batches == []


async def test_those_the_machine_let_wait_are_answered_by_the_record_they_waited_for(harness: Harness) -> None:
    parked: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    harness.machine.parked.append((parked, "assigned"))
    harness.perform("a")
    await turn()
    assert not parked.done()
    harness.ledger.commits[0].set_result(0)
    assert await parked == "assigned"


async def test_a_refused_append_is_undone_newest_first_and_leaves_the_shard_at_work(harness: Harness) -> None:
    undone: list[tuple[str, ErrorCode]] = []
    heard: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def undo(name: str) -> Any:
        def do(code: ErrorCode) -> list[Reply]:
            undone.append((name, code))
            return [(heard, "too bad")] if name == "b" else []

        return do

    harness.ledger.refusal = UnknownTopicOrPartition("gone")
    waiters = [harness.perform("a", undo=undo("a")), harness.perform("b", undo=undo("b"))]
    await turn()
    assert undone == [("b", ErrorCode.COORDINATOR_NOT_AVAILABLE), ("a", ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    assert await heard == "too bad"
    for waiter in waiters:
        assert waiter.exception().code is ErrorCode.COORDINATOR_NOT_AVAILABLE  # type: ignore[union-attr]
    assert harness.machine.applied == []
    harness.ledger.refusal = None
    waiter = harness.perform("c")
    await turn()
    harness.ledger.commits[0].set_result(0)
    assert await waiter == "ok"
    assert harness.lost == []


async def test_a_large_decision_stands_in_a_batch_of_its_own(harness: Harness) -> None:
    harness.perform("small")
    harness.perform("x" * (BATCH_BYTES_MAX + 1))
    harness.perform("small again")
    await turn()
    assert [read_header(batch).record_count for batch in harness.ledger.batches] == [1, 1, 1]


async def test_an_append_that_fails_after_it_was_written_ends_the_shard(harness: Harness) -> None:
    first = harness.perform("a")
    await turn()
    second = harness.perform("b")
    await turn()
    third = harness.perform("c")
    harness.ledger.commits[0].set_exception(StorageFailed("fsync"))
    await turn()
    for waiter in (first, second, third):
        assert waiter.exception().code is ErrorCode.NOT_COORDINATOR  # type: ignore[union-attr]
    assert [error.code for error in harness.lost] == [ErrorCode.NOT_COORDINATOR]
    assert harness.shard.state is ShardState.CLOSED
    # What comes of the others no longer matters here.
    harness.ledger.commits[1].set_result(1)
    await turn()
    assert harness.machine.applied == []
    assert len(harness.lost) == 1


async def test_a_commit_after_the_shard_was_closed_changes_nothing(harness: Harness) -> None:
    harness.perform("a")
    await turn()
    harness.shard.close(NotLeaderOrFollower("moved"))
    harness.ledger.commits[0].set_result(0)
    await turn()
    assert harness.machine.applied == []


async def test_who_waits_too_long_is_told_so_and_the_record_is_applied_all_the_same() -> None:
    harness = Harness(reply_timeout_ms=1)
    await harness.shard.load()
    waiter = harness.perform("a")
    with pytest.raises(PenstockError) as failure:
        await waiter
    assert failure.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.machine.applied == []
    harness.ledger.commits[0].set_result(0)
    await turn()
    assert harness.machine.applied == ["a"]
    late = harness.perform("b")
    with pytest.raises(PenstockError):
        await late


async def test_a_client_that_hung_up_disturbs_nobody(harness: Harness) -> None:
    gone, there = harness.perform("a"), harness.perform("b")
    gone.cancel()
    await turn()
    harness.ledger.commits[0].set_result(0)
    assert await there == "ok"
    assert harness.machine.applied == ["a", "b"]


async def test_a_closed_shard_tells_all_who_wait_and_takes_nothing_more(harness: Harness) -> None:
    waiting = harness.perform("a")
    await turn()
    queued = harness.perform("b")
    harness.shard.close(NotLeaderOrFollower("moved"))
    after = harness.perform("c")
    await turn()
    assert waiting.exception().code is queued.exception().code is ErrorCode.NOT_LEADER_OR_FOLLOWER  # type: ignore[union-attr]
    assert after.exception().code is ErrorCode.NOT_COORDINATOR  # type: ignore[union-attr]
    assert len(harness.ledger.batches) == 1


def batch_of(*values: bytes | None, key: bytes | None = b"key", **options: Any) -> bytearray:
    return encode_batch([Record(offset, 0, key, value) for offset, value in enumerate(values)], **options)


async def test_loading_applies_every_record_in_order_and_skips_what_it_cannot_read() -> None:
    ledger = MemoryLedger(
        [
            batch_of(b"a", b"bad", b"new", b"b"),
            batch_of(b"marker", is_control=True),
            batch_of(b"keyless", key=None),
            batch_of(*[b"c"] * 3_000),
        ]
    )
    harness = Harness(ledger)
    assert harness.shard.state is ShardState.LOADING
    refused = harness.perform("early")
    assert refused.exception().code is ErrorCode.NOT_COORDINATOR  # type: ignore[union-attr]
    await harness.shard.load()
    assert harness.machine.applied == ["a", "b", *["c"] * 3_000]
    assert harness.shard.state is ShardState.ACTIVE


@pytest.mark.parametrize("rest", [[], [b"d"]])
async def test_a_shard_closed_while_it_loads_stays_closed(rest: list[bytes]) -> None:
    harness = Harness(MemoryLedger([batch_of(*[b"c"] * 3_000), *(batch_of(value) for value in rest)]))
    loading = asyncio.create_task(harness.shard.load())
    await asyncio.sleep(0)
    harness.shard.close(NotLeaderOrFollower("moved"))
    await loading
    assert harness.shard.state is ShardState.CLOSED
    assert "d" not in harness.machine.applied


@pytest.mark.parametrize("failure", [StorageFailed("closed"), FileNotFoundError("0.log")])
async def test_a_partition_taken_away_while_it_is_read_is_no_failure_and_one_that_cannot_be_read_is(
    failure: Exception,
) -> None:
    class Unreadable(MemoryLedger):
        async def read_all(self) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
            await asyncio.sleep(0)
            raise failure
            yield

    unreadable, taken = Harness(Unreadable()), Harness(Unreadable())
    with pytest.raises(type(failure)):
        await unreadable.shard.load()
    loading = asyncio.create_task(taken.shard.load())
    await asyncio.sleep(0)
    taken.shard.close(NotLeaderOrFollower("deleted"))
    assert await loading == 0
    assert taken.shard.state is ShardState.CLOSED


@pytest.mark.parametrize(
    ("below", "above"),
    [
        (UnknownTopicOrPartition("x"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (NotLeaderOrFollower("x"), ErrorCode.NOT_COORDINATOR),
        (FencedLeaderEpoch("x"), ErrorCode.NOT_COORDINATOR),
        (StorageFailed("x"), ErrorCode.NOT_COORDINATOR),
        (MessageTooLarge("x"), ErrorCode.MESSAGE_TOO_LARGE),
        (InvalidRequest("x"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_failures_below_become_what_clients_of_a_coordinator_know(below: PenstockError, above: ErrorCode) -> None:
    assert as_coordinator_error(below).code is above
