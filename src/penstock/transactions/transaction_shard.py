"""The transactional ids of one partition of `__transaction_state`: what coordination.Shard drives.

Called by transactions.coordinator; the rules are in transactions.transaction.
Invariants:
- `transactions` changes in apply() only.
- An id has at most one decision on its way to the log. Whoever else asks meanwhile is told CONCURRENT_TRANSACTIONS, so
  no decision rests on a state that is about to change.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from penstock.coordination import Decision, Now, Reply, Waiter
from penstock.errors import ErrorCode
from penstock.model import TopicPartition
from penstock.transactions import transaction as rules
from penstock.transactions.transaction import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NeedsProducerId,
    Outcome,
    State,
    Transaction,
)
from penstock.transactions.transaction_records import TransactionRecord, decode_record, encode_record

log = logging.getLogger(__name__)

Step = Decision[TransactionRecord]


class ProducerGrant(NamedTuple):
    """The id and epoch a producer has from now on, or why it has none."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class PartitionsToAdd(NamedTuple):
    """A request that waits for its id to be no longer busy. The waiter gets its code, or None: ask again."""

    producer: tuple[int, int]
    partitions: Collection[TopicPartition]
    waiter: Waiter


class TransactionShard:
    def __init__(self, on_moved: Callable[[str, Transaction | None], None]) -> None:
        """`on_moved` hears of every change once it holds, also while the shard is being loaded."""
        self.transactions: dict[str, Transaction] = {}
        self.open_since_ms: dict[str, int] = {}  # the ids that are ongoing or prepared
        self._on_moved = on_moved
        self._moving: set[str] = set()
        self._parked: dict[str, list[PartitionsToAdd]] = {}
        # Of each id the producer that last added partitions, and the newest connection on which it did.
        self._heard: dict[str, tuple[tuple[int, int], int]] = {}

    # As coordination wants it

    def encode(self, record: TransactionRecord) -> tuple[bytes, bytes | None]:
        return encode_record(record)

    def decode(self, key: bytes, value: bytes | None) -> TransactionRecord | None:
        return decode_record(key, value)

    def apply(self, record: TransactionRecord, now: Now) -> Iterable[Reply]:
        transactional_id, transaction = record
        self._moving.discard(transactional_id)
        if transaction is None:
            self.transactions.pop(transactional_id, None)
            self._heard.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = transaction
        if transaction is not None and (transaction.state is State.ONGOING or transaction.state.is_prepared):
            self.open_since_ms[transactional_id] = transaction.started_ms
        else:
            self.open_since_ms.pop(transactional_id, None)
        self._on_moved(transactional_id, transaction)
        return self._released(transactional_id)

    def apply_in_transaction(self, producer_id: int, record: TransactionRecord, now: Now) -> Iterable[Reply]:
        # We never write such a record; a state that may yet be aborted is no state.
        log.error("a record of %r written in a transaction of producer %d was skipped", record[0], producer_id)
        return ()

    def end_transaction(self, producer_id: int, is_commit: bool, now: Now) -> Iterable[Reply]:
        return ()

    # What is asked

    def is_busy(self, transactional_id: str) -> bool:
        """A record of it is on its way, or its markers are: who asks now is told to come again."""
        transaction = self.transactions.get(transactional_id)
        return transactional_id in self._moving or (transaction is not None and transaction.state.is_prepared)

    def is_moving(self, transactional_id: str) -> bool:
        return transactional_id in self._moving

    def park(self, transactional_id: str, request: PartitionsToAdd) -> None:
        assert self.is_busy(transactional_id)
        self._parked.setdefault(transactional_id, []).append(request)

    def unpark(self, transactional_id: str, request: PartitionsToAdd) -> bool:
        """Whether the request was still waiting."""
        parked = self._parked.get(transactional_id, [])
        if request not in parked:
            return False
        parked.remove(request)
        if not parked:
            del self._parked[transactional_id]
        return True

    def hear(self, transactional_id: str, producer: tuple[int, int], connection: int) -> None:
        """The producer adds partitions, by a request on this connection; later connections have higher numbers."""
        current = self.transactions.get(transactional_id)
        if current is not None and (current.producer_id, current.producer_epoch) == producer:
            before, newest = self._heard.get(transactional_id, (producer, connection))
            self._heard[transactional_id] = (producer, max(newest, connection) if before == producer else connection)

    def is_late(self, transactional_id: str, producer: tuple[int, int], connection: int) -> bool:
        """Whether the producer has gone on to a newer connection since: what comes now is about an earlier transaction.

        A client speaks to its coordinator on one connection, one request after the other. It opens the next when it has
        given the first up, and whatever the network still brings of that one is an answer nobody waits for.
        """
        heard = self._heard.get(transactional_id)
        return heard is not None and heard[0] == producer and connection < heard[1]

    def initialise(
        self,
        transactional_id: str,
        request: tuple[int, tuple[int, int] | None, int | None],
        bumps_epoch_on_end: bool,
        waiter: Waiter,
        now: Now,
    ) -> Step | NeedsProducerId:
        """`request`: the time-out in ms, the id and epoch the producer expects to have, a new producer id at hand."""
        if self.is_busy(transactional_id):
            return _refusal(ErrorCode.CONCURRENT_TRANSACTIONS, waiter)
        timeout_ms, expected, new_producer_id = request
        current = self.transactions.get(transactional_id)
        if current is not None and current.state is State.ONGOING:
            if not rules.may_fence(current, expected):
                return _refusal(ErrorCode.PRODUCER_FENCED, waiter)
            fenced = rules.fence(current, bumps_epoch_on_end, now.wall_ms)
            # Its epoch is given to nobody: who comes again when the abort is complete gets the one after it.
            return self._move(transactional_id, fenced, waiter, ProducerGrant(ErrorCode.CONCURRENT_TRANSACTIONS))
        outcome = rules.initialise(current, timeout_ms, expected, new_producer_id, now.wall_ms)
        return self._grant(transactional_id, outcome, waiter)

    def add_partitions(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Collection[TopicPartition],
        waiter: Waiter,
        now: Now,
    ) -> Step:
        """The reply is an ErrorCode."""
        if transactional_id in self._moving:
            return Decision(replies=[(waiter, ErrorCode.CONCURRENT_TRANSACTIONS)])
        current = self.transactions.get(transactional_id)
        outcome = rules.add_partitions(current, *producer, partitions, now.wall_ms)
        if isinstance(outcome, ErrorCode):
            return Decision(replies=[(waiter, outcome)])
        return self._move(transactional_id, outcome, waiter, ErrorCode.NONE)

    def end(
        self, transactional_id: str, producer: tuple[int, int], is_commit: bool, waiter: Waiter, now: Now
    ) -> Step | NeedsProducerId:
        """Version 1."""
        current = self.transactions.get(transactional_id)
        outcome = rules.end(current, *producer, is_commit, now.wall_ms)
        is_ours = outcome not in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if is_ours and transactional_id in self._moving:
            outcome = ErrorCode.CONCURRENT_TRANSACTIONS
        return self._grant(transactional_id, outcome, waiter)

    def end_and_bump(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        is_commit: bool,
        new_producer_id: int | None,
        waiter: Waiter,
        now: Now,
    ) -> Step | NeedsProducerId:
        """Version 2."""
        if transactional_id in self._moving:
            return _refusal(ErrorCode.CONCURRENT_TRANSACTIONS, waiter)
        current = self.transactions.get(transactional_id)
        outcome = rules.end_and_bump(current, *producer, is_commit, new_producer_id, now.wall_ms)
        return self._grant(transactional_id, outcome, waiter)

    # What time does

    def complete(self, transactional_id: str, waiter: Waiter, now: Now) -> Step:
        """The markers of this prepared id are written. Who waited for that begins the next transaction with it.

        Both records stand in one batch, so that what rests on the first is there only if that is.
        """
        completed = rules.complete(self.transactions[transactional_id], now.wall_ms)
        step = self._move(transactional_id, completed, waiter, None)
        after = completed
        for request in self._parked.pop(transactional_id, ()):
            outcome = rules.add_partitions(after, *request.producer, request.partitions, now.wall_ms)
            if isinstance(outcome, Transaction):
                after, outcome = outcome, ErrorCode.NONE
            step.replies.append((request.waiter, outcome))
        if after is not completed:
            step.records.append(TransactionRecord(transactional_id, after))
        return step

    def time_out(self, transactional_id: str, waiter: Waiter, now: Now) -> Step | None:
        """Abort what has been open for too long; None if there is nothing to do."""
        current = self.transactions[transactional_id]
        if transactional_id in self._moving or not rules.is_timed_out(current, now.wall_ms):
            return None
        return self._move(transactional_id, rules.fence(current, True, now.wall_ms), waiter, None)

    def expire(self, transactional_id: str, expiration_ms: int, now: Now) -> Step | None:
        """Forget an id that nobody has used for long; None if it is to be kept."""
        current = self.transactions.get(transactional_id)
        if current is None or transactional_id in self._moving:
            return None
        if not rules.is_expired(current, expiration_ms, now.wall_ms):
            return None
        return self._move(transactional_id, None)

    # Inside

    def _grant(self, transactional_id: str, outcome: Outcome, waiter: Waiter) -> Step | NeedsProducerId:
        if isinstance(outcome, NeedsProducerId):
            return outcome
        if isinstance(outcome, Transaction):
            return self._move(transactional_id, outcome, waiter, ProducerGrant(ErrorCode.NONE, *outcome.granted))
        if outcome is ErrorCode.NONE:
            # A retry of what is done already: nothing to write.
            granted = self.transactions[transactional_id].granted
            return Decision(replies=[(waiter, ProducerGrant(ErrorCode.NONE, *granted))])
        return _refusal(outcome, waiter)

    def _move(
        self, transactional_id: str, after: Transaction | None, waiter: Waiter | None = None, reply: object = None
    ) -> Step:
        assert transactional_id not in self._moving
        self._moving.add(transactional_id)

        def undo(code: ErrorCode) -> Sequence[Reply]:
            self._moving.discard(transactional_id)
            return self._released(transactional_id)

        replies: list[Reply] = [] if waiter is None else [(waiter, reply)]
        return Decision([TransactionRecord(transactional_id, after)], replies, undo)

    def _released(self, transactional_id: str) -> Sequence[Reply]:
        if transactional_id not in self._parked or self.is_busy(transactional_id):
            return ()
        return [(request.waiter, None) for request in self._parked.pop(transactional_id)]


def _refusal(code: ErrorCode, waiter: Waiter) -> Step:
    return Decision(replies=[(waiter, ProducerGrant(code))])
