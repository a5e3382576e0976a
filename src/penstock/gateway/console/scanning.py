"""Reading through partitions in either direction, a window at a time, until enough was found or a bound is met.

Called by messages and downloading, which run each round in the thread of the consumer that belongs to the scan.
Laws:
- Rounds are bounded in records and bytes, scans in records, bytes and time; which bound ended one is told.
- Records come out merged by time; within a partition always by offset. What was read and not given out is read again
  by the next page: `positions` never pass a record that was wanted and not shown.
- Of a window that could not be read to its end while going back, nothing is shown: the newest would be missing.
"""

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.clock import Clock
from penstock.gateway.errors import KafkaFailed

ROUND_RECORDS = 5000
ROUND_BYTES = 8 * 1024 * 1024
SCAN_RECORDS_MAX = 1_000_000
SCAN_BYTES_MAX = 256 * 1024 * 1024
SCAN_S_MAX = 30.0
POLL_S = 0.1
BATCH = 500
RECORD_BYTES_GUESS = 1024


class Found(NamedTuple):
    """A record that is wanted, as it will be shown."""

    timestamp_ms: int
    partition: int
    offset: int
    shown: Any


@dataclass(slots=True)
class Scan:
    topic: str
    is_backward: bool
    # Where reading goes on: forward the next offset, backward the one after the next.
    positions: dict[int, int]
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    limit: int
    # Turns a record into what is shown, or into None where the filter does not want it.
    show: Callable[[Any], Any | None]
    is_filtered: bool
    deadline_s: float
    # How large records are there, as far as is known.
    record_bytes: Mapping[int, float] = field(default_factory=dict[int, float])
    records_max: int = SCAN_RECORDS_MAX
    bytes_max: int = SCAN_BYTES_MAX
    # Going on:
    scanned: int = 0
    scanned_bytes: int = 0
    found: int = 0
    is_cancelled: bool = False
    ended_by: str | None = None

    @property
    def left(self) -> int:
        """Offsets between here and the end of what was asked for."""
        if self.is_backward:
            return sum(max(0, at - self.starts.get(one, 0)) for one, at in self.positions.items())
        return sum(max(0, self.ends.get(one, 0) - at) for one, at in self.positions.items())

    def windows(self) -> dict[int, tuple[int, int]]:
        """What the next round reads of each partition, from and to; those that are done are left out."""
        spans: dict[int, tuple[int, int]] = {}
        for one, at in self.positions.items():
            low, high = (self.starts.get(one, 0), at) if self.is_backward else (at, self.ends.get(one, 0))
            if low < high:
                spans[one] = (low, high)
        if not spans:
            return {}
        share = max(1, ROUND_RECORDS // len(spans))
        if not self.is_filtered:
            share = min(share, max(1, self.limit - self.found))
        windows: dict[int, tuple[int, int]] = {}
        for one, (low, high) in spans.items():
            size = max(1.0, self.record_bytes.get(one, RECORD_BYTES_GUESS))
            count = min(share, max(1, int(ROUND_BYTES / len(spans) / size)))
            windows[one] = (max(low, high - count), high) if self.is_backward else (low, min(high, low + count))
        return windows

    def judge(self, now_s: float) -> None:
        """Whether it is over, and why."""
        if self.ended_by is not None:
            return
        if self.is_cancelled:
            self.ended_by = "cancelled"
        elif self.found >= self.limit:
            self.ended_by = "limit"
        elif not self.left:
            self.ended_by = "start" if self.is_backward else "end"
        elif self.scanned >= self.records_max:
            self.ended_by = "records"
        elif self.scanned_bytes >= self.bytes_max:
            self.ended_by = "bytes"
        elif now_s >= self.deadline_s:
            self.ended_by = "time"


def read_round(consumer: Any, scan: Scan, clock: Clock) -> list[Found]:
    """One window of every partition, in a thread: what is wanted of it, in the order in which it is shown."""
    windows = scan.windows()
    reached = _read_windows(consumer, scan, windows, clock)
    wanted: dict[int, list[Found]] = {}
    for one, (_, high) in windows.items():
        next_offset, records = reached[one]
        if next_offset >= high or not scan.is_backward:
            wanted[one] = records[::-1] if scan.is_backward else records
    return _give_out(scan, windows, reached, wanted)


def _give_out(
    scan: Scan,
    windows: Mapping[int, tuple[int, int]],
    reached: Mapping[int, tuple[int, list[Found]]],
    wanted: Mapping[int, list[Found]],
) -> list[Found]:
    sign = -1 if scan.is_backward else 1
    merged = heapq.merge(*wanted.values(), key=lambda one: sign * one.timestamp_ms)
    given: list[Found] = []
    kept_back: dict[int, int] = {}
    for one in merged:
        if scan.found < scan.limit:
            given.append(one)
            scan.found += 1
        else:
            kept_back.setdefault(one.partition, one.offset)
    for one, (low, high) in windows.items():
        if one in kept_back:
            scan.positions[one] = kept_back[one] + (1 if scan.is_backward else 0)
        elif one in wanted:
            scan.positions[one] = low if scan.is_backward else min(high, reached[one][0])
    return given


def _read_windows(
    consumer: Any, scan: Scan, windows: Mapping[int, tuple[int, int]], clock: Clock
) -> dict[int, tuple[int, list[Found]]]:
    """For each partition how far it was read, and what was wanted."""
    from confluent_kafka import TopicPartition as Place

    reached: dict[int, tuple[int, list[Found]]] = {one: (low, []) for one, (low, _) in windows.items()}
    reading = set(windows)
    consumer.assign([Place(scan.topic, one, low) for one, (low, _) in windows.items()])
    try:
        while reading and not scan.is_cancelled:
            if clock.monotonic() >= scan.deadline_s or scan.scanned_bytes >= scan.bytes_max:
                break
            for message in _poll(consumer):
                one = message.partition()
                if one not in reading:
                    continue
                error, (low, high) = message.error(), windows[one]
                if error is not None and error.name() != "_PARTITION_EOF":
                    raise KafkaFailed.of(error)
                # At the end of a partition, what lies between its last record and the end is no record: markers of
                # transactions. A record before the window means that the log ends before it: librdkafka began anew.
                offset = high if error is not None or message.offset() < low else message.offset()
                if offset < high:
                    _take(message, scan, reached[one][1])
                # Offsets have gaps: a record past the window says as well that there is no more of it.
                reached[one] = (min(high, offset + 1), reached[one][1])
                if offset + 1 >= high:
                    reading.discard(one)
                    # Before it fetches more than was asked for.
                    consumer.pause([Place(scan.topic, one)])
    finally:
        consumer.unassign()
    return reached


def _poll(consumer: Any) -> list[Any]:
    first = consumer.poll(POLL_S)
    return [] if first is None else [first, *consumer.consume(BATCH, 0)]


def _take(message: Any, scan: Scan, records: list[Found]) -> None:
    scan.scanned += 1
    scan.scanned_bytes += len(message.value() or b"") + len(message.key() or b"")
    shown = scan.show(message)
    if shown is not None:
        records.append(Found(message.timestamp()[1], message.partition(), message.offset(), shown))
