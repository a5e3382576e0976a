"""Batches and logs for the tests of this room: real files, real batches, nothing clever."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from penstock.config import TopicConfig
from penstock.disk import Disk, RealDisk
from penstock.log.partition_log import Appended, PartitionLog
from penstock.log.recovery import CleanEnd, KnownPoints, open_log
from penstock.model import LeaderEpoch, Offset, TopicPartition
from penstock.records.batch import BatchHeader, read_header
from penstock.records.markers import ControlType, Marker, decode_marker
from penstock.records.record import Record, decode_records, encode_batch

NOW = 1_700_000_000_000
HOUR = 3_600_000
AT = TopicPartition("orders", 0)
TOPIC_ID = UUID("11111111-2222-4333-8444-555555555555")


def make_batch(
    *values: str,
    timestamp: int = NOW,
    producer: int = -1,
    epoch: int = 0,
    sequence: int = -1,
    is_transactional: bool = False,
) -> tuple[memoryview, BatchHeader]:
    """One batch as a producer sends it, and its header."""
    batch = encode_batch(
        [Record(number, timestamp, None, value.encode()) for number, value in enumerate(values)],
        producer_id=producer,
        producer_epoch=epoch if producer >= 0 else -1,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    return memoryview(batch), read_header(batch)


def append(
    log: PartitionLog,
    *values: str,
    leader_epoch: int = 0,
    now_ms: int = NOW,
    may_gather: bool = False,
    **batch: Any,
) -> Appended:
    view, header = make_batch(*values, **batch)
    appended = log.append(view, header, LeaderEpoch(leader_epoch), now_ms, may_gather=may_gather)
    view[:] = b"\xaa" * len(view)  # the next request is received into the same buffer
    return appended


def fill(log: PartitionLog, count: int, size: int = 40, **batch: Any) -> list[str]:
    """Append `count` batches of two records; gives the values in order."""
    values = [f"{number:04}".ljust(size, "x") for number in range(count * 2)]
    for number in range(count):
        append(log, *values[number * 2 : number * 2 + 2], **batch)
    return values


def commit(log: PartitionLog, producer: int, epoch: int = 0, coordinator: int = 0, **how: Any) -> int:
    """The offset of the marker."""
    return _end(log, ControlType.COMMIT, producer, epoch, coordinator, **how)


def abort(log: PartitionLog, producer: int, epoch: int = 0, coordinator: int = 0, **how: Any) -> int:
    return _end(log, ControlType.ABORT, producer, epoch, coordinator, **how)


def _end(
    log: PartitionLog,
    control_type: ControlType,
    producer: int,
    epoch: int,
    coordinator: int,
    now_ms: int = NOW,
    **how: Any,
) -> int:
    marker = Marker(control_type, coordinator)
    return log.append_marker(marker, producer, epoch, LeaderEpoch(0), now_ms, **how).base_offset


def open_at(
    directory: Path,
    *,
    disk: Disk | None = None,
    recovery_point: int = 0,
    log_start: int = 0,
    clean_end: CleanEnd | None = None,
    now_ms: int = NOW,
    **settings: Any,
) -> PartitionLog:
    """The log in this directory, whatever is there."""
    disk = disk or RealDisk()
    config = TopicConfig(**{"index_interval_bytes": 200, **settings})
    known = KnownPoints(Offset(recovery_point), Offset(log_start), clean_end)
    state = open_log(disk, directory, known, config.index_interval_bytes, now_ms)
    return PartitionLog(disk, directory, AT, TOPIC_ID, config, state)


def values_in(chunk: memoryview | None) -> list[str]:
    """The values of all whole batches in what a read gave."""
    assert chunk is not None
    values: list[str] = []
    while len(chunk) >= 61:
        header = read_header(chunk)
        if header.size > len(chunk):
            break
        records = decode_records(chunk[: header.size], header, 1 << 20)
        values.extend((record.value or b"").decode() for record in records)
        chunk = chunk[header.size :]
    return values


def whole_batches(chunk: memoryview | None) -> Iterator[tuple[BatchHeader, memoryview]]:
    assert chunk is not None
    while len(chunk) >= 61 and read_header(chunk).size <= len(chunk):
        header = read_header(chunk)
        yield header, chunk[: header.size]
        chunk = chunk[header.size :]


def committed_values(chunk: memoryview | None, offset: int, aborted: Iterable[tuple[int, int]]) -> list[str]:
    """What a committed reader shows of an answer, by the rule that clients follow; `aborted` is (producer, first)."""
    waiting = sorted(aborted, key=lambda transaction: transaction[1])
    skipped: set[int] = set()
    values: list[str] = []
    for header, batch in whole_batches(chunk):
        while waiting and waiting[0][1] <= header.last_offset:
            skipped.add(waiting.pop(0)[0])
        records = list(decode_records(batch, header, 1 << 20))
        if header.is_control:
            if records and decode_marker(records[0]).control_type is ControlType.ABORT:
                skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            values.extend((record.value or b"").decode() for record in records if record.offset >= offset)
    return values


def all_values(log: PartitionLog) -> list[str]:
    values: list[str] = []
    offset = log.log_start
    while offset < log.next_offset:
        chunk = log.read(offset, 1 << 20, log.next_offset, cached_only=False)
        assert chunk, f"nothing at {offset}"
        values.extend(values_in(chunk))
        while len(chunk) >= 61 and read_header(chunk).size <= len(chunk):
            offset = Offset(read_header(chunk).next_offset)
            chunk = chunk[read_header(chunk).size :]
    return values
