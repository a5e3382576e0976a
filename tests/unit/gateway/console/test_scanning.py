"""Scans over a double of librdkafka's consumer: partitions with gaps, read in pages, in either direction."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import TopicPartition as Place
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.clock import SystemClock
from penstock.gateway.console import scanning
from penstock.gateway.console.scanning import Scan, read_round
from penstock.gateway.errors import KafkaFailed

FAR_S = float("inf")


class Error:
    def __init__(self, name: str) -> None:
        self._name = name

    def code(self) -> int:
        return 3

    def name(self) -> str:
        return self._name

    def retriable(self) -> bool:
        return False

    def str(self) -> str:
        return "gone"


class Message:
    def __init__(self, partition: int, offset: int, time_ms: int, size: int = 10, error: Error | None = None) -> None:
        self._at = (partition, offset, time_ms, size, error)

    def partition(self) -> int:
        return self._at[0]

    def offset(self) -> int:
        return self._at[1]

    def timestamp(self) -> tuple[int, int]:
        return 1, self._at[2]

    def value(self) -> bytes:
        return bytes(self._at[3])

    def key(self) -> None:
        return None

    def error(self) -> Error | None:
        return self._at[4]


class Consumer:
    """Gives what lies in `logs` from where it was assigned, then the end of each partition."""

    def __init__(self, logs: Mapping[int, Sequence[Message]]) -> None:
        self.logs = logs
        self.waiting: list[Message] = []

    def assign(self, places: Sequence[Any]) -> None:
        self.waiting = []
        for place in places:
            log = self.logs[place.partition]
            self.waiting += [one for one in log if one.offset() >= place.offset]
            self.waiting.append(Message(place.partition, -1, 0, error=Error("_PARTITION_EOF")))

    def unassign(self) -> None:
        self.waiting = []

    def pause(self, places: Sequence[Any]) -> None:
        gone = {place.partition for place in places}
        self.waiting = [one for one in self.waiting if one.partition() not in gone]

    def poll(self, timeout_s: float) -> Message | None:
        return self.waiting.pop(0) if self.waiting else None

    def consume(self, count: int, timeout_s: float) -> list[Message]:
        given, self.waiting = self.waiting[:count], self.waiting[count:]
        return given


def make_scan(logs: Mapping[int, Sequence[Message]], ends: Mapping[int, int], **how: Any) -> Scan:
    is_backward = how.pop("is_backward", False)
    starts = dict.fromkeys(ends, 0)
    how.setdefault("limit", 3)
    how.setdefault("show", lambda one: (one.partition(), one.offset()))
    how.setdefault("is_filtered", False)
    how.setdefault("deadline_s", FAR_S)
    return Scan("t", is_backward, dict(ends if is_backward else starts), starts, dict(ends), **how)


def read_page(consumer: Consumer, scan: Scan) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    scan.ended_by, scan.found = None, 0
    scan.judge(0)
    while scan.ended_by is None:
        found += [one.shown for one in read_round(consumer, scan, SystemClock())]
        scan.judge(0)
    return found


logs_strategy = st.dictionaries(
    st.integers(0, 3),
    # Gaps between offsets, as compaction and markers leave them; times that may go back.
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 50)), max_size=15),
    min_size=1,
)


@settings(max_examples=200, deadline=None)
@given(logs_strategy, st.integers(1, 7), st.booleans(), st.booleans(), st.integers(0, 3))
def test_pages_in_either_direction_show_every_wanted_record_once_and_in_order(
    steps: dict[int, list[tuple[int, int]]], limit: int, is_backward: bool, is_filtered: bool, tail: int
) -> None:
    logs: dict[int, list[Message]] = {}
    ends: dict[int, int] = {}
    for partition, gaps in steps.items():
        offset = -1
        logs[partition] = []
        for gap, time_ms in gaps:
            offset += gap
            logs[partition].append(Message(partition, offset, time_ms))
        ends[partition] = offset + 1 + tail  # a marker at the end
    wanted = [
        (one.partition(), one.offset())
        for log in logs.values()
        for one in log
        if not is_filtered or one.offset() % 2 == 0
    ]

    def show(one: Message) -> tuple[int, int] | None:
        return None if is_filtered and one.offset() % 2 else (one.partition(), one.offset())

    scan = make_scan(logs, ends, is_backward=is_backward, limit=limit, show=show, is_filtered=is_filtered)
    consumer, seen = Consumer(logs), list[tuple[int, int]]()
    for _ in range(200):
        page = read_page(consumer, scan)
        assert len(page) <= limit
        seen += page
        if scan.ended_by in ("start", "end"):
            break
    assert sorted(seen) == sorted(wanted)
    for partition in logs:
        offsets = [offset for one, offset in seen if one == partition]
        assert offsets == sorted(offsets, reverse=is_backward)


def test_the_newest_of_all_partitions_come_first() -> None:
    logs = {
        0: [Message(0, one, 10 * one) for one in range(10)],
        1: [Message(1, one, 10 * one + 5) for one in range(10)],
    }
    scan = make_scan(logs, {0: 10, 1: 10}, is_backward=True, limit=4)
    assert read_page(Consumer(logs), scan) == [(1, 9), (0, 9), (1, 8), (0, 8)]
    assert read_page(Consumer(logs), scan) == [(1, 7), (0, 7), (1, 6), (0, 6)]


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"bytes_max": 45}, "bytes"),
        ({"records_max": 5}, "records"),
        ({"deadline_s": 0.0}, "time"),
        ({"is_cancelled": True}, "cancelled"),
    ],
)
def test_a_search_that_finds_nothing_ends_at_its_bound_and_says_which(
    how: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "ROUND_RECORDS", 5)
    logs = {0: [Message(0, one, one) for one in range(1000)]}
    scan = make_scan(logs, {0: 1000}, show=lambda _: None, is_filtered=True, **how)
    assert read_page(Consumer(logs), scan) == []
    assert scan.ended_by == why
    assert scan.scanned <= 10


def test_a_window_going_back_that_was_not_read_to_its_end_shows_nothing_and_stays() -> None:
    logs = {0: [Message(0, one, one, size=40) for one in range(10)]}
    scan = make_scan(logs, {0: 10}, is_backward=True, limit=5, bytes_max=60)
    consumer = Consumer(logs)
    consumer.consume = lambda count, timeout_s: []  # one record at each poll
    assert read_round(consumer, scan, SystemClock()) == []
    assert scan.positions == {0: 10}


def test_a_log_that_ends_before_the_window_gives_nothing_and_ends() -> None:
    logs = {0: [Message(0, one, one) for one in range(3)]}
    scan = make_scan(logs, {0: 20}, limit=5)
    scan.positions[0] = 10
    consumer = Consumer(logs)
    assign = consumer.assign
    # As librdkafka does where an offset is out of range.
    consumer.assign = lambda places: assign([Place("t", place.partition, 0) for place in places])
    assert read_page(consumer, scan) == []
    assert scan.ended_by == "end"


def test_a_topic_that_goes_away_while_it_is_read_is_a_failure() -> None:
    consumer = Consumer({0: [Message(0, 0, 0, error=Error("UNKNOWN_TOPIC_OR_PART"))]})
    with pytest.raises(KafkaFailed):
        read_round(consumer, make_scan({}, {0: 5}), SystemClock())


def test_windows_shrink_where_records_are_large() -> None:
    scan = make_scan({}, {0: 1000, 1: 1000}, limit=500, record_bytes={0: 10e6, 1: 100.0})
    windows = scan.windows()
    assert windows == {0: (0, 1), 1: (0, 500)}
