"""One transactional id: the table of its states, and the rules that move it from one to the next.

Called by transactions.transaction_shard. Plain functions from what is and what is asked to what shall be: none waits,
reads a clock or changes anything. A move is a whole new Transaction, which holds once its record is committed.
Invariants:
- Every move is a row of MOVES; every other pair of state and event is refused.
- A producer id's epoch never falls. When it can rise no more, a new producer id follows, with epoch 0.
- What is prepared ends as it was prepared: only MARKERS_WRITTEN leaves a prepared state.
- A producer that was fenced is refused from then on: no request of its passes for a retry of the owner's.
"""

from collections.abc import Collection
from enum import IntEnum
from typing import Final, NamedTuple

from penstock.errors import ErrorCode
from penstock.model import TopicPartition

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_TIME = -1
EPOCH_MAX = 2**15 - 1
# The last epoch a producer may have: the one above it is kept for fencing it.
LAST_USABLE_EPOCH = EPOCH_MAX - 1
VERSION_1, VERSION_2 = 0, 2  # of the client's way with transactions, as the log says it; Kafka writes 0 for the first
TWO_PHASE_TIMEOUT_MS = 2**31 - 1  # a transaction without a deadline


class State(IntEnum):
    """With the numbers of Kafka's log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6  # not there, or no more

    @property
    def label(self) -> str:
        """As operators see it: PrepareCommit."""
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)


class Event(IntEnum):
    INIT = 0
    ADD_PARTITIONS = 1
    COMMIT = 2
    ABORT = 3
    ABORT_NOTHING = 4  # version 2: a client that cannot know whether anything was added
    FENCE = 5  # a new producer takes over, or the time is up
    MARKERS_WRITTEN = 6
    EXPIRE = 7


MOVES: Final[dict[tuple[State, Event], State]] = {
    (State.DEAD, Event.INIT): State.EMPTY,
    (State.EMPTY, Event.INIT): State.EMPTY,
    (State.COMPLETE_COMMIT, Event.INIT): State.EMPTY,
    (State.COMPLETE_ABORT, Event.INIT): State.EMPTY,
    (State.EMPTY, Event.ADD_PARTITIONS): State.ONGOING,
    (State.ONGOING, Event.ADD_PARTITIONS): State.ONGOING,
    (State.COMPLETE_COMMIT, Event.ADD_PARTITIONS): State.ONGOING,
    (State.COMPLETE_ABORT, Event.ADD_PARTITIONS): State.ONGOING,
    (State.ONGOING, Event.COMMIT): State.PREPARE_COMMIT,
    (State.ONGOING, Event.ABORT): State.PREPARE_ABORT,
    (State.ONGOING, Event.FENCE): State.PREPARE_ABORT,
    (State.EMPTY, Event.ABORT_NOTHING): State.PREPARE_ABORT,
    (State.COMPLETE_COMMIT, Event.ABORT_NOTHING): State.PREPARE_ABORT,
    (State.COMPLETE_ABORT, Event.ABORT_NOTHING): State.PREPARE_ABORT,
    (State.PREPARE_COMMIT, Event.MARKERS_WRITTEN): State.COMPLETE_COMMIT,
    (State.PREPARE_ABORT, Event.MARKERS_WRITTEN): State.COMPLETE_ABORT,
    (State.EMPTY, Event.EXPIRE): State.DEAD,
    (State.COMPLETE_COMMIT, Event.EXPIRE): State.DEAD,
    (State.COMPLETE_ABORT, Event.EXPIRE): State.DEAD,
}


class Transaction(NamedTuple):
    """What is known of a transactional id. All but last_producer_epoch is kept in the log."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: State
    updated_ms: int
    started_ms: int = NO_TIME
    partitions: frozenset[TopicPartition] = frozenset()
    previous_producer_id: int = NO_PRODUCER_ID  # before the latest move
    next_producer_id: int = NO_PRODUCER_ID  # prepared: whose it will be when the markers are written
    client_version: int = VERSION_1  # of whoever ended the latest transaction
    last_producer_epoch: int = NO_PRODUCER_EPOCH  # before the latest rise: a retry of what made it rise has it

    @property
    def is_exhausted(self) -> bool:
        return self.producer_epoch >= LAST_USABLE_EPOCH

    @property
    def granted(self) -> tuple[int, int]:
        """The producer id and epoch for what the client does next, also while the markers go out."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch


class NeedsProducerId(NamedTuple):
    """The epochs of this producer id are used up: ask again with a new id at hand."""


Outcome = Transaction | ErrorCode | NeedsProducerId


def initialise(
    current: Transaction | None,
    timeout_ms: int,
    expected: tuple[int, int] | None,
    new_producer_id: int | None,
    now_ms: int,
) -> Outcome:
    """A producer starts, or with the id and epoch it `expected` to have goes on after an error (KIP-360).

    An ongoing transaction is not for this rule: fence() ends it first.
    """
    if current is None:
        if new_producer_id is None:
            return NeedsProducerId()
        # Whatever it had, this id knows nothing of it any more: a producer that was away too long starts anew.
        state = MOVES[State.DEAD, Event.INIT]
        return Transaction(new_producer_id, 0, timeout_ms, state, now_ms, previous_producer_id=new_producer_id)
    if current.state.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if expected is not None and not _may_continue(current, expected):
        return ErrorCode.PRODUCER_FENCED
    begun = current._replace(
        state=MOVES[current.state, Event.INIT],
        timeout_ms=timeout_ms,
        updated_ms=now_ms,
        started_ms=NO_TIME,
        partitions=frozenset(),
        previous_producer_id=current.producer_id,
        last_producer_epoch=NO_PRODUCER_EPOCH if expected is None else current.producer_epoch,
    )
    if expected is not None and expected[1] != current.producer_epoch:
        # A retry: the answer to the first was lost, and nobody has come in between, who would have left no last epoch.
        return begun._replace(
            previous_producer_id=current.previous_producer_id, last_producer_epoch=current.last_producer_epoch
        )
    if not current.is_exhausted:
        return begun._replace(producer_epoch=current.producer_epoch + 1)
    if new_producer_id is None:
        return NeedsProducerId()
    return begun._replace(producer_id=new_producer_id, producer_epoch=0)


def may_fence(current: Transaction, expected: tuple[int, int] | None) -> bool:
    """Whether who asks for this id may end the transaction that is open. A zombie may not, though it knows the id."""
    return expected is None or expected == (current.producer_id, current.producer_epoch)


def fence(current: Transaction, is_version_2: bool, now_ms: int) -> Transaction:
    """Abort what is open, with an epoch that its producer does not have."""
    assert current.state is State.ONGOING
    # One above its own is what a producer of version 2 expects of its own EndTxn: hence twice. Where the epochs end, as
    # in version 1, where no epoch but the current one is heard.
    is_twice = is_version_2 and current.producer_epoch + 2 <= EPOCH_MAX
    return current._replace(
        state=MOVES[current.state, Event.FENCE],
        producer_epoch=min(current.producer_epoch + (2 if is_twice else 1), EPOCH_MAX),
        last_producer_epoch=NO_PRODUCER_EPOCH,
        previous_producer_id=current.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        client_version=VERSION_2 if is_twice else VERSION_1,
        updated_ms=now_ms,
    )


def add_partitions(
    current: Transaction | None,
    producer_id: int,
    producer_epoch: int,
    partitions: Collection[TopicPartition],
    now_ms: int,
) -> Transaction | ErrorCode:
    if current is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if current.state.is_prepared:
        # Before the ids are compared: the client may have been given the next producer id already.
        return ErrorCode.CONCURRENT_TRANSACTIONS
    fault = _fault(current, producer_id, producer_epoch)
    if fault is not ErrorCode.NONE:
        return fault
    is_open = current.state is State.ONGOING
    if is_open and current.partitions.issuperset(partitions):
        return ErrorCode.NONE
    return current._replace(
        state=MOVES[current.state, Event.ADD_PARTITIONS],
        partitions=current.partitions.union(partitions),
        started_ms=current.started_ms if is_open else now_ms,
        updated_ms=now_ms,
        previous_producer_id=producer_id,
    )


def verify_partitions(
    current: Transaction | None, producer_id: int, producer_epoch: int, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Whether a producer may write to these partitions in a transaction that is open."""
    if current is None:
        return dict.fromkeys(partitions, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    fault = _fault(current, producer_id, producer_epoch)
    if fault is ErrorCode.NONE and current.state.is_prepared:
        fault = ErrorCode.CONCURRENT_TRANSACTIONS
    if fault is not ErrorCode.NONE:
        return dict.fromkeys(partitions, fault)
    added = current.partitions
    return {at: ErrorCode.NONE if at in added else ErrorCode.TRANSACTION_ABORTABLE for at in partitions}


def end(
    current: Transaction | None, producer_id: int, producer_epoch: int, is_commit: bool, now_ms: int
) -> Transaction | ErrorCode:
    """EndTxn of a client of version 1, whose epoch stays. NONE: it ended so before."""
    if current is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    fault = _fault(current, producer_id, producer_epoch)
    if fault is not ErrorCode.NONE:
        return fault
    if current.state.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    state = MOVES.get((current.state, Event.COMMIT if is_commit else Event.ABORT))
    if state is None:
        return _already(current.state, is_commit)
    return current._replace(state=state, updated_ms=now_ms, previous_producer_id=producer_id, client_version=VERSION_1)


def end_and_bump(
    current: Transaction | None,
    producer_id: int,
    producer_epoch: int,
    is_commit: bool,
    new_producer_id: int | None,
    now_ms: int,
) -> Outcome:
    """EndTxn of a client of version 2: its epoch rises with every transaction, so that a late request meets a new one.

    NONE: the request is a retry, known by the epoch before the rise. The same epoch as ours is the next EndTxn.
    """
    if current is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if current.state.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if _is_retry_of_end(current, producer_id, producer_epoch):
        return _already(current.state, is_commit)
    fault = _fault(current, producer_id, producer_epoch)
    if fault is not ErrorCode.NONE:
        return fault
    is_open = current.state is State.ONGOING
    event = Event.COMMIT if is_commit else Event.ABORT if is_open else Event.ABORT_NOTHING
    state = MOVES.get((current.state, event))
    if state is None:
        return ErrorCode.INVALID_TXN_STATE
    if current.is_exhausted and new_producer_id is None:
        return NeedsProducerId()
    return current._replace(
        state=state,
        producer_epoch=min(producer_epoch + 1, EPOCH_MAX),
        last_producer_epoch=producer_epoch,
        previous_producer_id=producer_id,
        next_producer_id=new_producer_id if current.is_exhausted and new_producer_id is not None else NO_PRODUCER_ID,
        client_version=VERSION_2,
        started_ms=current.started_ms if is_open else now_ms,
        updated_ms=now_ms,
    )


def complete(current: Transaction, now_ms: int) -> Transaction:
    """Every partition has its marker."""
    producer_id, producer_epoch = current.granted
    return current._replace(
        state=MOVES[current.state, Event.MARKERS_WRITTEN],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        previous_producer_id=current.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
        updated_ms=now_ms,
    )


def is_timed_out(current: Transaction, now_ms: int) -> bool:
    return (
        current.state is State.ONGOING
        and current.timeout_ms != TWO_PHASE_TIMEOUT_MS
        and current.started_ms + current.timeout_ms < now_ms
    )


def is_expired(current: Transaction, expiration_ms: int, now_ms: int) -> bool:
    return (current.state, Event.EXPIRE) in MOVES and current.updated_ms <= now_ms - expiration_ms


def _fault(current: Transaction, producer_id: int, producer_epoch: int) -> ErrorCode:
    if producer_id != current.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE if producer_epoch == current.producer_epoch else ErrorCode.PRODUCER_FENCED


def _may_continue(current: Transaction, expected: tuple[int, int]) -> bool:
    producer_id, producer_epoch = expected
    if producer_id == current.producer_id and producer_epoch == current.producer_epoch:
        return True
    # The answer to the rise it asked for was lost; with the last epoch of an id, that rise was to a new id.
    is_ours = producer_id == current.producer_id or (
        producer_id == current.previous_producer_id and producer_epoch >= LAST_USABLE_EPOCH
    )
    return is_ours and producer_epoch == current.last_producer_epoch


def _is_retry_of_end(current: Transaction, producer_id: int, producer_epoch: int) -> bool:
    # Ended by a client of version 1, the epoch did not rise with it, and the epoch below belongs to a fenced producer.
    if current.client_version != VERSION_2 or current.state not in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT):
        return False
    if producer_id == current.producer_id:
        return producer_epoch == current.producer_epoch - 1
    rose_to_new_id = producer_id == current.previous_producer_id and current.producer_epoch == 0
    return rose_to_new_id and producer_epoch == LAST_USABLE_EPOCH


def _already(state: State, is_commit: bool) -> ErrorCode:
    ended_so = State.COMPLETE_COMMIT if is_commit else State.COMPLETE_ABORT
    return ErrorCode.NONE if state is ended_so else ErrorCode.INVALID_TXN_STATE
