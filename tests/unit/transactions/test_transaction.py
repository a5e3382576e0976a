"""The table of states, and every rule with the exact code for every state it does not move."""

import pytest

from penstock.errors import ErrorCode
from penstock.model import TopicPartition
from penstock.transactions import transaction as rules
from penstock.transactions.transaction import (
    EPOCH_MAX,
    LAST_USABLE_EPOCH,
    MOVES,
    NO_PRODUCER_EPOCH,
    NO_TIME,
    TWO_PHASE_TIMEOUT_MS,
    VERSION_1,
    VERSION_2,
    Event,
    NeedsProducerId,
    State,
    Transaction,
)

ID, EPOCH, OTHER_ID, NEW_ID = 7, 3, 8, 99
NOW, STARTED = 5_000, 4_000
AT = TopicPartition("orders", 0)
ALSO = TopicPartition("orders", 1)

OK = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
INVALID = ErrorCode.INVALID_TXN_STATE

LIVE = [state for state in State if state is not State.DEAD]
PREPARED = [State.PREPARE_COMMIT, State.PREPARE_ABORT]
RESTING = [State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT]


def make(
    state: State, epoch: int = EPOCH, version: int = VERSION_2, last_epoch: int = NO_PRODUCER_EPOCH
) -> Transaction:
    is_open = state is State.ONGOING or state in PREPARED
    return Transaction(
        ID, epoch, 60_000, state, STARTED, NO_TIME if state is State.EMPTY else STARTED,
        frozenset({AT}) if is_open else frozenset(), ID, client_version=version, last_producer_epoch=last_epoch,
    )  # fmt: skip


def moved(outcome: object) -> Transaction:
    assert isinstance(outcome, Transaction), outcome
    return outcome


# The table


@pytest.mark.parametrize("event", list(Event))
@pytest.mark.parametrize("state", list(State))
def test_only_markers_lead_out_of_a_prepared_state_and_to_a_complete_one(state: State, event: Event) -> None:
    after = MOVES.get((state, event))
    completes = after in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
    assert completes == (state in PREPARED and event is Event.MARKERS_WRITTEN)
    if state in PREPARED:
        assert (after is not None) == (event is Event.MARKERS_WRITTEN)


def test_a_commit_is_only_prepared_from_an_ongoing_transaction() -> None:
    assert [move for move, after in MOVES.items() if after is State.PREPARE_COMMIT] == [(State.ONGOING, Event.COMMIT)]


@pytest.mark.parametrize("state", LIVE)
def test_an_id_expires_only_at_rest_and_only_when_its_time_is_over(state: State) -> None:
    assert rules.is_expired(make(state), 1_000, STARTED + 1_000) == (state in RESTING)
    assert not rules.is_expired(make(state), 1_000, STARTED + 999)


@pytest.mark.parametrize("state", LIVE)
def test_only_an_ongoing_transaction_times_out(state: State) -> None:
    assert rules.is_timed_out(make(state), STARTED + 60_001) == (state is State.ONGOING)
    assert not rules.is_timed_out(make(state), STARTED + 60_000)


def test_a_transaction_of_two_phases_never_times_out() -> None:
    endless = make(State.ONGOING)._replace(timeout_ms=TWO_PHASE_TIMEOUT_MS)
    assert not rules.is_timed_out(endless, 2**40)


def test_states_have_the_names_operators_know() -> None:
    assert [state.label for state in LIVE] == [
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort",
    ]  # fmt: skip


# InitProducerId


def test_a_new_id_needs_a_producer_id_and_starts_at_epoch_0_whatever_was_expected() -> None:
    assert rules.initialise(None, 1_000, None, None, NOW) == NeedsProducerId()
    for expected in (None, (5, 5)):
        begun = moved(rules.initialise(None, 1_000, expected, NEW_ID, NOW))
        assert (begun.granted, begun.state, begun.timeout_ms) == ((NEW_ID, 0), State.EMPTY, 1_000)


@pytest.mark.parametrize("state", RESTING)
def test_init_raises_the_epoch_and_forgets_the_last_one(state: State) -> None:
    begun = moved(rules.initialise(make(state, last_epoch=2), 1_000, None, None, NOW))
    assert begun.granted == (ID, EPOCH + 1)
    assert (begun.state, begun.started_ms, begun.last_producer_epoch) == (State.EMPTY, NO_TIME, NO_PRODUCER_EPOCH)


@pytest.mark.parametrize("state", PREPARED)
def test_init_waits_for_markers(state: State) -> None:
    for expected in (None, (ID, EPOCH), (ID, 0), (OTHER_ID, 0)):
        assert rules.initialise(make(state), 1_000, expected, None, NOW) is BUSY


@pytest.mark.parametrize("state", RESTING)
def test_a_producer_goes_on_with_the_next_epoch_and_may_ask_twice(state: State) -> None:
    begun = moved(rules.initialise(make(state), 1_000, (ID, EPOCH), None, NOW))
    assert (begun.granted, begun.last_producer_epoch) == ((ID, EPOCH + 1), EPOCH)
    again = moved(rules.initialise(begun, 1_000, (ID, EPOCH), None, NOW))
    assert again.granted == (ID, EPOCH + 1)
    assert moved(rules.initialise(again, 1_000, (ID, EPOCH), None, NOW)).granted == (ID, EPOCH + 1)


@pytest.mark.parametrize("expected", [(ID, EPOCH - 1), (ID, EPOCH + 1), (OTHER_ID, EPOCH), (OTHER_ID, EPOCH_MAX)])
@pytest.mark.parametrize("state", RESTING)
def test_a_producer_that_expects_another_id_or_epoch_is_fenced(state: State, expected: tuple[int, int]) -> None:
    assert rules.initialise(make(state), 1_000, expected, NEW_ID, NOW) is FENCED


def test_a_takeover_ends_the_right_of_the_one_before_to_retry() -> None:
    first = moved(rules.initialise(make(State.EMPTY), 1_000, (ID, EPOCH), None, NOW))
    second = moved(rules.initialise(first, 1_000, None, None, NOW))
    assert rules.initialise(second, 1_000, (ID, EPOCH), None, NOW) is FENCED
    assert rules.initialise(second, 1_000, (ID, EPOCH + 1), None, NOW) is FENCED


@pytest.mark.parametrize("expected", [None, (ID, LAST_USABLE_EPOCH)])
def test_the_last_epoch_is_followed_by_a_new_producer_id(expected: tuple[int, int] | None) -> None:
    last = make(State.COMPLETE_COMMIT, epoch=LAST_USABLE_EPOCH)
    assert rules.initialise(last, 1_000, expected, None, NOW) == NeedsProducerId()
    begun = moved(rules.initialise(last, 1_000, expected, NEW_ID, NOW))
    assert (begun.granted, begun.previous_producer_id) == ((NEW_ID, 0), ID)
    retry = rules.initialise(begun, 1_000, (ID, LAST_USABLE_EPOCH), None, NOW)
    if expected is None:
        assert retry is FENCED
    else:
        assert moved(retry).granted == (NEW_ID, 0)


def test_an_old_epoch_of_an_exhausted_id_is_fenced_and_a_retry_of_the_last_rise_is_not() -> None:
    last = make(State.EMPTY, epoch=LAST_USABLE_EPOCH, last_epoch=LAST_USABLE_EPOCH - 1)
    assert rules.initialise(last, 1_000, (ID, 5), NEW_ID, NOW) is FENCED
    again = moved(rules.initialise(last, 1_000, (ID, LAST_USABLE_EPOCH - 1), None, NOW))
    assert again.granted == (ID, LAST_USABLE_EPOCH)


def test_a_zombie_that_knows_the_producer_id_may_not_abort_what_its_successor_does() -> None:
    ongoing = make(State.ONGOING, last_epoch=EPOCH - 1)
    assert rules.may_fence(ongoing, None)
    assert rules.may_fence(ongoing, (ID, EPOCH))
    assert not rules.may_fence(ongoing, (ID, EPOCH - 1))
    assert not rules.may_fence(ongoing, (OTHER_ID, EPOCH))


# Fencing


@pytest.mark.parametrize(
    ("epoch", "is_version_2", "after", "version"),
    [
        (EPOCH, True, EPOCH + 2, VERSION_2),
        (EPOCH, False, EPOCH + 1, VERSION_1),
        (LAST_USABLE_EPOCH - 1, True, EPOCH_MAX, VERSION_2),
        (LAST_USABLE_EPOCH, True, EPOCH_MAX, VERSION_1),
        (LAST_USABLE_EPOCH, False, EPOCH_MAX, VERSION_1),
    ],
)
def test_a_fenced_producer_is_refused_everything(epoch: int, is_version_2: bool, after: int, version: int) -> None:
    fenced = rules.fence(make(State.ONGOING, epoch=epoch), is_version_2, NOW)
    assert (fenced.state, fenced.producer_epoch, fenced.client_version) == (State.PREPARE_ABORT, after, version)
    assert fenced.partitions == {AT}
    done = rules.complete(fenced, NOW)
    for is_commit in (True, False):
        assert rules.end(done, ID, epoch, is_commit, NOW) is FENCED
        assert rules.end_and_bump(done, ID, epoch, is_commit, NEW_ID, NOW) is FENCED
    assert rules.add_partitions(done, ID, epoch, [AT], NOW) is FENCED
    assert rules.verify_partitions(done, ID, epoch, [AT]) == {AT: FENCED}
    assert rules.initialise(done, 1_000, (ID, epoch), NEW_ID, NOW) is FENCED


# AddPartitionsToTxn


@pytest.mark.parametrize("state", RESTING)
def test_the_first_partition_opens_a_transaction(state: State) -> None:
    opened = moved(rules.add_partitions(make(state), ID, EPOCH, [AT], NOW))
    assert (opened.state, opened.partitions, opened.started_ms) == (State.ONGOING, {AT}, NOW)


def test_more_partitions_leave_the_start_as_it_was_and_known_ones_change_nothing() -> None:
    opened = moved(rules.add_partitions(make(State.ONGOING), ID, EPOCH, [AT, ALSO], NOW))
    assert (opened.partitions, opened.started_ms, opened.updated_ms) == ({AT, ALSO}, STARTED, NOW)
    assert rules.add_partitions(opened, ID, EPOCH, [ALSO], NOW) is OK


@pytest.mark.parametrize("state", LIVE)
def test_partitions_of_a_wrong_producer_are_refused(state: State) -> None:
    is_prepared = state in PREPARED
    assert rules.add_partitions(make(state), OTHER_ID, EPOCH, [AT], NOW) is (BUSY if is_prepared else MAPPING)
    for epoch in (EPOCH - 1, EPOCH + 1):
        assert rules.add_partitions(make(state), ID, epoch, [AT], NOW) is (BUSY if is_prepared else FENCED)
    if is_prepared:
        assert rules.add_partitions(make(state), ID, EPOCH, [AT], NOW) is BUSY


def test_partitions_of_an_unknown_id_are_refused() -> None:
    assert rules.add_partitions(None, ID, EPOCH, [AT], NOW) is MAPPING
    assert rules.verify_partitions(None, ID, EPOCH, [AT]) == {AT: MAPPING}


@pytest.mark.parametrize("state", LIVE)
def test_a_write_is_verified_only_for_partitions_of_an_open_transaction(state: State) -> None:
    if state in PREPARED:
        expected = {AT: BUSY, ALSO: BUSY}
    else:
        known = OK if state is State.ONGOING else ErrorCode.TRANSACTION_ABORTABLE
        expected = {AT: known, ALSO: ErrorCode.TRANSACTION_ABORTABLE}
    assert rules.verify_partitions(make(state), ID, EPOCH, [AT, ALSO]) == expected
    assert rules.verify_partitions(make(state), OTHER_ID, EPOCH, [AT]) == {AT: MAPPING}
    assert rules.verify_partitions(make(state), ID, EPOCH - 1, [AT]) == {AT: FENCED}


# EndTxn, version 1


@pytest.mark.parametrize(
    ("state", "commit", "abort"),
    [
        (State.EMPTY, INVALID, INVALID),
        (State.PREPARE_COMMIT, BUSY, BUSY),
        (State.PREPARE_ABORT, BUSY, BUSY),
        (State.COMPLETE_COMMIT, OK, INVALID),
        (State.COMPLETE_ABORT, INVALID, OK),
    ],
)
def test_version_1_ends_only_what_is_open_and_hears_a_repetition(
    state: State, commit: ErrorCode, abort: ErrorCode
) -> None:
    current = make(state, version=VERSION_1)
    assert rules.end(current, ID, EPOCH, True, NOW) is commit
    assert rules.end(current, ID, EPOCH, False, NOW) is abort


@pytest.mark.parametrize(("is_commit", "state"), [(True, State.PREPARE_COMMIT), (False, State.PREPARE_ABORT)])
def test_version_1_keeps_its_epoch(is_commit: bool, state: State) -> None:
    prepared = moved(rules.end(make(State.ONGOING), ID, EPOCH, is_commit, NOW))
    assert (prepared.state, prepared.granted, prepared.client_version) == (state, (ID, EPOCH), VERSION_1)
    assert prepared.partitions == {AT}


@pytest.mark.parametrize("state", LIVE)
def test_version_1_refuses_a_wrong_producer_in_every_state(state: State) -> None:
    for is_commit in (True, False):
        assert rules.end(make(state), OTHER_ID, EPOCH, is_commit, NOW) is MAPPING
        assert rules.end(make(state), ID, EPOCH - 1, is_commit, NOW) is FENCED
        assert rules.end(make(state), ID, EPOCH + 1, is_commit, NOW) is FENCED
    assert rules.end(None, ID, EPOCH, True, NOW) is MAPPING


# EndTxn, version 2


@pytest.mark.parametrize(("is_commit", "state"), [(True, State.PREPARE_COMMIT), (False, State.PREPARE_ABORT)])
def test_version_2_raises_the_epoch_with_every_transaction(is_commit: bool, state: State) -> None:
    prepared = moved(rules.end_and_bump(make(State.ONGOING), ID, EPOCH, is_commit, None, NOW))
    assert (prepared.state, prepared.granted, prepared.last_producer_epoch) == (state, (ID, EPOCH + 1), EPOCH)
    done = rules.complete(prepared, NOW)
    assert (done.granted, done.partitions) == ((ID, EPOCH + 1), frozenset())
    assert rules.end_and_bump(done, ID, EPOCH, is_commit, None, NOW) is OK
    assert rules.end_and_bump(done, ID, EPOCH, not is_commit, None, NOW) is INVALID


@pytest.mark.parametrize("state", RESTING)
def test_version_2_may_abort_nothing_but_not_commit_it(state: State) -> None:
    prepared = moved(rules.end_and_bump(make(state), ID, EPOCH, False, None, NOW))
    assert (prepared.state, prepared.granted, prepared.started_ms) == (State.PREPARE_ABORT, (ID, EPOCH + 1), NOW)
    assert rules.end_and_bump(make(state), ID, EPOCH, True, None, NOW) is INVALID


@pytest.mark.parametrize("producer", [(ID, EPOCH), (ID, EPOCH - 1), (ID, 0), (OTHER_ID, 0)])
@pytest.mark.parametrize("state", PREPARED)
def test_version_2_waits_for_markers_whoever_asks(state: State, producer: tuple[int, int]) -> None:
    for is_commit in (True, False):
        assert rules.end_and_bump(make(state), *producer, is_commit, None, NOW) is BUSY


@pytest.mark.parametrize("state", [State.EMPTY, State.ONGOING])
def test_a_late_end_does_not_touch_the_next_transaction(state: State) -> None:
    for is_commit in (True, False):
        assert rules.end_and_bump(make(state), ID, EPOCH - 1, is_commit, None, NOW) is FENCED
        assert rules.end_and_bump(make(state), ID, EPOCH + 1, is_commit, None, NOW) is FENCED
        assert rules.end_and_bump(make(state), OTHER_ID, EPOCH, is_commit, None, NOW) is MAPPING
    assert rules.end_and_bump(None, ID, EPOCH, True, None, NOW) is MAPPING


@pytest.mark.parametrize("state", [State.COMPLETE_COMMIT, State.COMPLETE_ABORT])
def test_the_epoch_below_is_no_retry_where_version_1_ended_the_transaction(state: State) -> None:
    for is_commit in (True, False):
        assert rules.end_and_bump(make(state, version=VERSION_1), ID, EPOCH - 1, is_commit, None, NOW) is FENCED


def test_version_2_goes_over_to_a_new_producer_id_after_the_last_epoch() -> None:
    ongoing = make(State.ONGOING, epoch=LAST_USABLE_EPOCH)
    assert rules.end_and_bump(ongoing, ID, LAST_USABLE_EPOCH, True, None, NOW) == NeedsProducerId()
    prepared = moved(rules.end_and_bump(ongoing, ID, LAST_USABLE_EPOCH, True, NEW_ID, NOW))
    # The markers are still the old id's, with the epoch kept for them; the client is told of the new id at once.
    assert (prepared.producer_id, prepared.producer_epoch, prepared.granted) == (ID, EPOCH_MAX, (NEW_ID, 0))
    assert rules.add_partitions(prepared, NEW_ID, 0, [AT], NOW) is BUSY
    done = rules.complete(prepared, NOW)
    assert (done.granted, done.next_producer_id, done.previous_producer_id) == ((NEW_ID, 0), -1, ID)
    assert rules.end_and_bump(done, ID, LAST_USABLE_EPOCH, True, None, NOW) is OK
    assert rules.end_and_bump(done, ID, LAST_USABLE_EPOCH, False, None, NOW) is INVALID
    assert rules.end_and_bump(done, ID, EPOCH, True, None, NOW) is MAPPING
    opened = moved(rules.add_partitions(done, NEW_ID, 0, [AT], NOW))
    assert rules.end_and_bump(opened, ID, LAST_USABLE_EPOCH, True, None, NOW) is MAPPING


def test_a_new_producer_id_is_not_used_before_the_last_epoch() -> None:
    ongoing = make(State.ONGOING, epoch=LAST_USABLE_EPOCH - 1)
    prepared = moved(rules.end_and_bump(ongoing, ID, LAST_USABLE_EPOCH - 1, True, NEW_ID, NOW))
    assert prepared.granted == (ID, LAST_USABLE_EPOCH)
