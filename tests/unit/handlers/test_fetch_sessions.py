"""handlers.fetch_sessions: opening, changing and losing a session; how many there may be and how large."""

from uuid import UUID

import pytest

from penstock.clock import Rng
from penstock.errors import ErrorCode
from penstock.handlers import fetch_sessions
from penstock.handlers.fetch_sessions import EPOCH_MAX, EVICT_AFTER_S, FetchPlan, FetchSessions, SessionRefused
from penstock.wire.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

Key = str | UUID


class ManualClock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds

    def now_ms(self) -> int:
        return int(self.seconds * 1000)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def sessions(clock: ManualClock) -> FetchSessions:
    return FetchSessions(clock, Rng(seed=1), slots_max=3)


def ask(partition: int, offset: int = 0) -> FetchPartition:
    return FetchPartition(partition, -1, offset, -1, -1, 1 << 20)


def named(topic: Key) -> tuple[str | None, UUID | None]:
    return (topic, None) if isinstance(topic, str) else (None, topic)


def request(
    session_id: int = 0,
    epoch: int = 0,
    wanted: dict[Key, list[FetchPartition]] | None = None,
    forgotten: dict[Key, list[int]] | None = None,
) -> FetchRequest:
    topics = [FetchTopic(*named(topic), partitions) for topic, partitions in (wanted or {}).items()]
    gone = [ForgottenTopic(*named(topic), partitions) for topic, partitions in (forgotten or {}).items()]
    return FetchRequest(-1, 0, 1, 1 << 20, 0, session_id, epoch, topics, gone, "")


def plan(sessions: FetchSessions, asked: FetchRequest) -> FetchPlan:
    return sessions.plan(asked, uses_topic_ids=False)


def open_one(sessions: FetchSessions, *partitions: int) -> int:
    opened = plan(sessions, request(wanted={"orders": [ask(partition) for partition in partitions]}))
    assert opened.session is not None
    return opened.session.id


def places(a_plan: FetchPlan) -> list[tuple[Key, int, int]]:
    return [(each.topic, each.ask.partition, each.ask.fetch_offset) for each in a_plan.wanted]


def refusal(sessions: FetchSessions, asked: FetchRequest, *, by_id: bool = False) -> ErrorCode:
    with pytest.raises(SessionRefused) as caught:
        sessions.plan(asked, uses_topic_ids=by_id)
    return caught.value.code


# A session's life


def test_a_client_that_wants_no_session_gets_none(sessions: FetchSessions) -> None:
    full = plan(sessions, request(epoch=-1, wanted={"orders": [ask(0), ask(1)]}))
    assert (full.session, full.is_incremental, len(sessions)) == (None, False, 0)
    assert places(full) == [("orders", 0, 0), ("orders", 1, 0)]


def test_an_incremental_request_is_about_everything_named_before(sessions: FetchSessions) -> None:
    session_id = open_one(sessions, 0, 1)
    follow_up = plan(sessions, request(session_id, 1))
    assert follow_up.is_incremental
    assert places(follow_up) == [("orders", 0, 0), ("orders", 1, 0)]


def test_partitions_are_added_changed_and_forgotten(sessions: FetchSessions) -> None:
    session_id = open_one(sessions, 0, 1, 2)
    changes = request(session_id, 1, {"orders": [ask(1, 50)], "other": [ask(0)]}, {"orders": [0], "nowhere": [3]})
    expected = [("orders", 1, 50), ("orders", 2, 0), ("other", 0, 0)]
    assert places(plan(sessions, changes)) == expected
    assert places(plan(sessions, request(session_id, 2))) == expected
    assert places(plan(sessions, request(session_id, 3, forgotten={"orders": [1, 2], "other": [0]}))) == []


def test_what_is_added_and_forgotten_in_one_request_is_gone(sessions: FetchSessions) -> None:
    session_id = open_one(sessions)
    assert places(plan(sessions, request(session_id, 1, {"orders": [ask(0)]}, {"orders": [0]}))) == []


def test_what_a_client_was_told_is_kept_when_only_its_offset_changes(sessions: FetchSessions) -> None:
    session_id = open_one(sessions, 0)
    (wanted,) = plan(sessions, request(session_id, 1)).wanted
    wanted.high_watermark = 77
    (again,) = plan(sessions, request(session_id, 2, {"orders": [ask(0, 9)]})).wanted
    assert (again.high_watermark, again.ask.fetch_offset) == (77, 9)


def test_partitions_that_gave_data_stand_behind_the_others(sessions: FetchSessions) -> None:
    session_id = open_one(sessions, 0, 1, 2)
    served = plan(sessions, request(session_id, 1))
    assert served.session is not None
    sessions.served(served.session, [served.wanted[0]])
    assert [place[1] for place in places(plan(sessions, request(session_id, 2)))] == [1, 2, 0]


def test_a_partition_forgotten_while_it_was_read_does_not_come_back(sessions: FetchSessions) -> None:
    session_id = open_one(sessions, 0, 1)
    slow = plan(sessions, request(session_id, 1))
    assert slow.session is not None
    plan(sessions, request(session_id, 2, forgotten={"orders": [0]}))
    sessions.served(slow.session, slow.wanted)
    assert [place[1] for place in places(plan(sessions, request(session_id, 3)))] == [1]


@pytest.mark.parametrize("epoch", [-1, 0])
def test_a_full_request_ends_the_session_it_names(sessions: FetchSessions, epoch: int) -> None:
    session_id = open_one(sessions, 0)
    ended = plan(sessions, request(session_id, epoch, {"orders": [ask(5)]}))
    assert places(ended) == [("orders", 5, 0)]
    assert (ended.session is None) == (epoch == -1)
    assert refusal(sessions, request(session_id, 1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == epoch + 1


def test_the_epoch_begins_anew_after_the_last(sessions: FetchSessions) -> None:
    opened = plan(sessions, request(wanted={"orders": [ask(0)]}))
    assert opened.session is not None
    opened.session.epoch = EPOCH_MAX
    plan(sessions, request(opened.session.id, EPOCH_MAX))
    assert plan(sessions, request(opened.session.id, 1)).is_incremental


def test_a_partition_named_twice_is_one_of_the_session(sessions: FetchSessions) -> None:
    twice = plan(sessions, request(wanted={"orders": [ask(0, 1), ask(0, 2)]}))
    assert len(twice.wanted) == 2
    assert twice.session is not None
    assert places(plan(sessions, request(twice.session.id, 1))) == [("orders", 0, 2)]


# What is refused


def test_a_session_nobody_opened_is_not_found(sessions: FetchSessions) -> None:
    for session_id, epoch in ((0, 1), (12345, 1), (-1, 7), (2**31 - 1, 2**31 - 1)):
        assert refusal(sessions, request(session_id, epoch)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [2, 3, 1000, EPOCH_MAX, -2, -(2**31)])
def test_another_epoch_than_the_next_is_invalid_and_changes_nothing(sessions: FetchSessions, epoch: int) -> None:
    session_id = open_one(sessions, 0)
    wrong = request(session_id, epoch, {"orders": [ask(1)]}, {"orders": [0]})
    assert refusal(sessions, wrong) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert places(plan(sessions, request(session_id, 1))) == [("orders", 0, 0)]


def test_an_epoch_is_good_once(sessions: FetchSessions) -> None:
    session_id = open_one(sessions, 0)
    plan(sessions, request(session_id, 1))
    assert refusal(sessions, request(session_id, 1)) is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_session_keeps_to_names_or_to_ids(sessions: FetchSessions) -> None:
    session_id = open_one(sessions, 0)
    assert refusal(sessions, request(session_id, 1), by_id=True) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    by_id = sessions.plan(request(wanted={UUID(int=1): [ask(0)]}), uses_topic_ids=True)
    assert by_id.session is not None
    assert refusal(sessions, request(by_id.session.id, 1)) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


# How many, how large


def test_without_a_place_a_client_goes_on_naming_everything(sessions: FetchSessions) -> None:
    for _ in range(3):
        open_one(sessions, 0)
    refused = plan(sessions, request(wanted={"orders": [ask(0)]}))
    assert (refused.session, places(refused), len(sessions)) == (None, [("orders", 0, 0)], 3)


def test_no_places_means_no_sessions(clock: ManualClock) -> None:
    none = FetchSessions(clock, Rng(seed=1), slots_max=0)
    assert plan(none, request(wanted={"orders": [ask(0)]})).session is None


def test_the_session_idle_longest_makes_room_once_it_was_idle_long_enough(
    sessions: FetchSessions, clock: ManualClock
) -> None:
    first, second, _ = (open_one(sessions, 0) for _ in range(3))
    clock.seconds += EVICT_AFTER_S - 1
    plan(sessions, request(first, 1))
    assert plan(sessions, request()).session is None
    clock.seconds += 1
    assert plan(sessions, request()).session is not None
    assert refusal(sessions, request(second, 1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert plan(sessions, request(first, 2)).is_incremental
    assert len(sessions) == 3


def test_all_sessions_together_remember_only_so_much(
    sessions: FetchSessions, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_sessions, "BYTES_MAX", 10 * (fetch_sessions.PARTITION_BYTES + 4 * len("orders")))
    assert plan(sessions, request(wanted={"orders": [ask(n) for n in range(11)]})).session is None
    first = open_one(sessions, *range(6))
    assert plan(sessions, request(wanted={"orders": [ask(n) for n in range(5)]})).session is None
    second = open_one(sessions, *range(4))
    # It is the one that grows that has to go: its client begins again, with or without a session.
    assert refusal(sessions, request(second, 1, {"orders": [ask(9)]})) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert plan(sessions, request(first, 1, forgotten={"orders": [0, 1]})).is_incremental
    third = open_one(sessions, *range(6))
    assert len(sessions) == 2
    clock.seconds += EVICT_AFTER_S
    assert plan(sessions, request(third, 1)).is_incremental
    open_one(sessions, *range(4))  # takes the place of the first, which is idle
    assert refusal(sessions, request(first, 2)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_long_names_count_too(sessions: FetchSessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "BYTES_MAX", 10 * fetch_sessions.PARTITION_BYTES)
    assert plan(sessions, request(wanted={"x" * 32_000: [ask(0)]})).session is None
    assert plan(sessions, request(wanted={"x": [ask(0)]})).session is not None


def test_sessions_that_end_leave_no_bytes_behind(sessions: FetchSessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "BYTES_MAX", 10 * (fetch_sessions.PARTITION_BYTES + 4 * len("orders")))
    for _ in range(20):
        session_id = open_one(sessions, *range(8))
        plan(sessions, request(session_id, 1, {"orders": [ask(8), ask(8), ask(9)]}, {"orders": [0, 0, 1, 77]}))
        plan(sessions, request(session_id, -1))
    assert open_one(sessions, *range(10))
