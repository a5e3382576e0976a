"""Decide -> append -> commit -> apply -> reply: one runtime for all that is kept in an internal topic.

Called by coordination.led_partitions, which makes one for each partition of an internal topic that this broker leads,
and by the coordinators of groups and transactions.
Invariants:
- What a record changes, changes in StateMachine.apply(): in log order, and not before the record is committed.
- No reply that rests on a record leaves before that record is committed and applied.
- Memory follows the log. An append that was refused is undone as if never asked. One that was written and then failed
  may or may not be there, so the shard ends, and loading it anew reads what is true.
- Decisions of one turn of the loop share a batch, hence one write and one fsync. Records of a transaction stand in
  batches of their own, since a batch belongs to one producer; they and the markers that end transactions go to the log
  after all that was decided before them.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import Enum
from typing import Generic, TypeVar

from penstock.clock import Clock
from penstock.coordination.machine import Decision, Ledger, Now, Reply, StateMachine, call_at, read_clock
from penstock.errors import (
    CoordinatorNotAvailable,
    ErrorCode,
    InvalidRecord,
    MalformedFrame,
    NotCoordinator,
    PenstockError,
)
from penstock.records.markers import ControlType, Marker, decode_marker
from penstock.records.record import Record, decode_records, encode_batch

log = logging.getLogger(__name__)

# Below the default max.message.bytes with room to spare: a decision too large for the topic then stands in a batch
# of its own, and its refusal takes no other with it.
BATCH_BYTES_MAX = 512 * 1024
RECORD_OVERHEAD_BYTES = 32
LOAD_BATCH_BYTES_MAX = 128 * 1024 * 1024
LOAD_RECORDS_PER_TURN = 2_000
NO_PRODUCER_ID = -1

R = TypeVar("R")


class ShardState(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


class _Batch(Generic[R]):
    __slots__ = ("committed", "deadline", "decisions", "ends_with", "producer_id")

    def __init__(
        self,
        decisions: list[Decision[R]],
        committed: "asyncio.Future[int]",
        deadline: float,
        producer_id: int = NO_PRODUCER_ID,
        ends_with: ControlType | None = None,
    ) -> None:
        self.decisions = decisions
        self.committed = committed
        self.deadline: float | None = deadline  # for the replies; None once they were given up
        self.producer_id = producer_id  # whose transaction this is a part of, or the end
        self.ends_with = ends_with  # for a marker


class Shard(Generic[R]):
    """One partition of an internal topic and the state machine kept in it."""

    __slots__ = (
        "_clock",
        "_in_flight",
        "_on_lost",
        "_pairs",
        "_pairs_bytes",
        "_reply_timer",
        "_turn",
        "ledger",
        "machine",
        "reply_timeout_ms",
        "state",
    )

    def __init__(
        self,
        ledger: Ledger,
        machine: StateMachine[R],
        clock: Clock,
        on_lost: Callable[[PenstockError], None],
        reply_timeout_ms: int = 5_000,
    ) -> None:
        self.ledger = ledger
        self.machine = machine
        self.state = ShardState.LOADING
        self.reply_timeout_ms = reply_timeout_ms
        self._clock = clock
        self._on_lost = on_lost
        self._turn: list[Decision[R]] = []
        self._pairs: list[tuple[bytes, bytes | None]] = []
        self._pairs_bytes = 0
        self._in_flight: deque[_Batch[R]] = deque()
        self._reply_timer: asyncio.TimerHandle | None = None

    async def load(self) -> int:
        """Apply every record of the partition, and be active. Gives the number of records."""
        assert self.state is ShardState.LOADING
        try:
            return await self._read_all()
        except (PenstockError, OSError) as error:
            if self.state is ShardState.LOADING:
                raise
            # Its topic was deleted meanwhile, say: that its files are gone is no news.
            log.info("%s was taken away while it was read: %s", self.ledger.topic_partition, error)
            return 0

    async def _read_all(self) -> int:
        count = since_yield = 0
        async for header, batch in self.ledger.read_all():
            if self.state is not ShardState.LOADING:
                return count
            now = read_clock(self._clock)
            for record in decode_records(batch, header, LOAD_BATCH_BYTES_MAX):
                if header.is_control:
                    self._load_marker(record, header.producer_id, now)
                else:
                    self._load_record(record, header.producer_id if header.is_transactional else NO_PRODUCER_ID, now)
            count += header.record_count
            since_yield += header.record_count
            if since_yield >= LOAD_RECORDS_PER_TURN:
                since_yield = 0
                await asyncio.sleep(0)
        if self.state is ShardState.LOADING:
            self.state = ShardState.ACTIVE
        return count

    def perform(self, decision: Decision[R]) -> None:
        """Append the decision's records with the others of this turn; reply when they are committed and applied."""
        if self._is_answered_without_log(decision):
            return
        pairs = self._encode(decision)
        size = sum(len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES for key, value in pairs)
        if self._turn and self._pairs_bytes + size > BATCH_BYTES_MAX:
            is_refused = not self._append_turn([decision] if decision.rests_on_earlier else [])
            if is_refused and decision.rests_on_earlier:
                return
        if not self._turn:
            asyncio.get_running_loop().call_soon(self._append_turn)
        self._turn.append(decision)
        self._pairs += pairs
        self._pairs_bytes += size

    def perform_in_transaction(self, decision: Decision[R], producer_id: int, producer_epoch: int) -> None:
        """As perform(), but what the records say holds only once the producer's transaction is committed.

        Written before this returns: that the transaction is open, as found in this turn of the loop, is then still so.
        """
        assert producer_id != NO_PRODUCER_ID
        if self._is_answered_without_log(decision):
            return
        self._append_turn()
        batch = self._batch_of(self._encode(decision), producer_id, producer_epoch)
        try:
            appended = self.ledger.append(batch)
        except PenstockError as error:
            self._refuse([decision], error)
            return
        self._await_commit([decision], appended, producer_id)

    def append_marker(
        self, marker: Marker, producer_id: int, producer_epoch: int, *, is_version_2: bool = False
    ) -> Awaitable[None]:
        """End the producer's transaction here, after everything that is in flight; done when that is applied.

        The awaitable raises what the log has against it, a stale epoch for one, or that the shard is lost.
        """
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ending = Decision[R](replies=[(waiter, None)])
        if self.state is not ShardState.ACTIVE:
            _fail(ending.replies, self._not_active())
            return waiter
        self._append_turn()
        try:
            appended = self.ledger.append_marker(marker, producer_id, producer_epoch, is_version_2=is_version_2)
        except PenstockError as error:
            self._refuse([ending], error)
        else:
            self._await_commit([ending], appended, producer_id, marker.control_type)
        return waiter

    def close(self, error: PenstockError) -> None:
        """The partition is led elsewhere, or lost: whoever waits for a commit is told, and nothing is applied more."""
        self.state = ShardState.CLOSED
        if self._reply_timer is not None:
            self._reply_timer.cancel()
        decisions = [decision for batch in self._in_flight for decision in batch.decisions] + self._turn
        self._in_flight.clear()
        self._turn, self._pairs, self._pairs_bytes = [], [], 0
        for decision in decisions:
            _fail(decision.replies, error)

    def _is_answered_without_log(self, decision: Decision[R]) -> bool:
        if self.state is not ShardState.ACTIVE:
            _fail(decision.replies, self._not_active())
            return True
        if decision.records:
            return False
        if decision.rests_on_earlier and self._turn:
            self._turn.append(decision)
        elif decision.rests_on_earlier and self._in_flight:
            last = self._in_flight[-1]
            if last.deadline is None:
                _fail(decision.replies, CoordinatorNotAvailable("the log did not commit in time"))
            else:
                last.decisions.append(decision)
        else:
            _deliver(decision.replies)
        return True

    def _not_active(self) -> PenstockError:
        return NotCoordinator(f"{self.ledger.topic_partition} is {self.state.value} here")

    def _encode(self, decision: Decision[R]) -> list[tuple[bytes, bytes | None]]:
        return [self.machine.encode(record) for record in decision.records]

    def _load_marker(self, record: Record, producer_id: int, now: Now) -> None:
        try:
            marker = decode_marker(record)
        except InvalidRecord as error:
            log.error("%s: marker %d skipped: %s", self.ledger.topic_partition, record.offset, error)
            return
        if marker.control_type is not ControlType.UNKNOWN:
            self.machine.end_transaction(producer_id, marker.control_type is ControlType.COMMIT, now)

    def _load_record(self, record: Record, producer_id: int, now: Now) -> None:
        if record.key is None:
            log.error("%s: record %d has no key, skipped", self.ledger.topic_partition, record.offset)
            return
        try:
            decoded = self.machine.decode(record.key, record.value)
        except MalformedFrame as error:
            # One bad record must not keep every group of the partition from ever loading.
            log.error("%s: record %d skipped: %s", self.ledger.topic_partition, record.offset, error)
            return
        if decoded is not None:
            self._apply(decoded, producer_id, now)

    def _apply(self, record: R, producer_id: int, now: Now) -> Iterable[Reply]:
        if producer_id == NO_PRODUCER_ID:
            return self.machine.apply(record, now)
        return self.machine.apply_in_transaction(producer_id, record, now)

    def _append_turn(self, resting: Sequence[Decision[R]] = ()) -> bool:
        """False if the log refused it, and with it the decisions that rest on it."""
        if not self._turn:
            return True
        decisions, pairs = self._turn, self._pairs
        self._turn, self._pairs, self._pairs_bytes = [], [], 0
        try:
            appended = self.ledger.append(self._batch_of(pairs))
        except PenstockError as error:
            self._refuse([*decisions, *resting], error)
            return False
        self._await_commit(decisions, appended)
        return True

    def _batch_of(
        self,
        pairs: list[tuple[bytes, bytes | None]],
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = -1,
    ) -> bytearray:
        now_ms = self._clock.now_ms()
        # No sequence numbers: the coordinator writes each commit once and in order, so there is nothing to sort out.
        return encode_batch(
            [Record(i, now_ms, key, value, ()) for i, (key, value) in enumerate(pairs)],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=producer_id != NO_PRODUCER_ID,
        )

    def _await_commit(
        self,
        decisions: list[Decision[R]],
        appended: Awaitable[int],
        producer_id: int = NO_PRODUCER_ID,
        ends_with: ControlType | None = None,
    ) -> None:
        committed = asyncio.ensure_future(appended)
        deadline = self._clock.monotonic() + self.reply_timeout_ms / 1000
        self._in_flight.append(_Batch(decisions, committed, deadline, producer_id, ends_with))
        committed.add_done_callback(self._on_committed)
        self._arm_reply_timer()

    def _refuse(self, decisions: list[Decision[R]], error: PenstockError) -> None:
        error = as_coordinator_error(error)
        log.warning("%s: an append was refused: %s", self.ledger.topic_partition, error)
        # Newest first: each undo finds the state as its own decision left it.
        for decision in reversed(decisions):
            if decision.undo is not None:
                _deliver(decision.undo(error.code))
            _fail(decision.replies, error)

    def _on_committed(self, committed: "asyncio.Future[int]") -> None:
        if not committed.cancelled():
            committed.exception()  # heard here, so that a shard closed meanwhile leaves no complaint of a lost one
        # Only from the front: a later batch may be reported first, and records are applied in log order.
        now = read_clock(self._clock)
        while self._in_flight and self._in_flight[0].committed.done():
            batch = self._in_flight[0]
            if batch.committed.cancelled() or batch.committed.exception() is not None:
                self._lose(batch.committed)
                return
            self._in_flight.popleft()
            if batch.ends_with is not None:
                is_commit = batch.ends_with is ControlType.COMMIT
                _deliver(self.machine.end_transaction(batch.producer_id, is_commit, now))
            for decision in batch.decisions:
                for record in decision.records:
                    _deliver(self._apply(record, batch.producer_id, now))
                _deliver(decision.replies)

    def _lose(self, committed: "asyncio.Future[int]") -> None:
        cause = None if committed.cancelled() else committed.exception()
        error = as_coordinator_error(cause) if isinstance(cause, PenstockError) else NotCoordinator(repr(cause))
        log.error("%s: lost after an append: %r", self.ledger.topic_partition, cause)
        self.close(error)
        self._on_lost(error)

    def _arm_reply_timer(self) -> None:
        waiting = (batch.deadline for batch in self._in_flight if batch.deadline is not None)
        if self._reply_timer is None and (deadline := next(waiting, None)) is not None:
            self._reply_timer = call_at(self._clock, deadline, self._on_reply_timer)

    def _on_reply_timer(self) -> None:
        """Those who waited too long are told so; their records stay in flight and are applied when committed."""
        self._reply_timer = None
        now = self._clock.monotonic()
        for batch in self._in_flight:
            if batch.deadline is not None and batch.deadline <= now:
                batch.deadline = None
                for decision in batch.decisions:
                    _fail(decision.replies, CoordinatorNotAvailable("the log did not commit in time"))
        self._arm_reply_timer()


def as_coordinator_error(error: PenstockError) -> PenstockError:
    """What failed below, in the words a client of a coordinator understands (its retries depend on them)."""
    match error.code:
        case (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode.NOT_ENOUGH_REPLICAS
            | ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            | ErrorCode.REQUEST_TIMED_OUT
        ):
            return CoordinatorNotAvailable(str(error))
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR | ErrorCode.FENCED_LEADER_EPOCH:
            return NotCoordinator(str(error))
        case _:
            return error


def _deliver(replies: Iterable[Reply]) -> None:
    for waiter, reply in replies:
        # Done already: the client hung up, or was told that it waited too long.
        if not waiter.done():
            waiter.set_result(reply)


def _fail(replies: Iterable[Reply], error: PenstockError) -> None:
    for waiter, _ in replies:
        if not waiter.done():
            waiter.set_exception(error)
