"""The files beside a segment, read and compared with it: indexes, aborted transactions, snapshots, checkpoints.

Called by cli.log. Most of them are caches that a broker makes anew on doubt; what is wrong with one is said all the
same, since somebody is looking for the reason of something.
"""

import json
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

from penstock.cli.segment_inspection import Problem, SegmentSummary
from penstock.disk import RealDisk
from penstock.log.checkpoints import LEADER_EPOCHS, read_saved_offsets
from penstock.log.directory import CLEAN_STOP
from penstock.log.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from penstock.log.producers import SNAPSHOT_VERSION, Producers
from penstock.log.recovery import SNAPSHOT_SUFFIX, TORN_SUFFIX
from penstock.log.segment import DELETED_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from penstock.log.topic_id import TOPIC_ID_FILE
from penstock.model import NO_TOPIC_ID

_OFFSET_ENTRY = Struct(">II")
_TIME_ENTRY = Struct(">qI")
_SNAPSHOT_VERSION = Struct(">h")
_SNAPSHOT_HEAD_BYTES = 14
_ABORTED_ENTRY = Struct(">hqqqq")  # version, producer id, first offset, last offset, last stable offset
_ABORTED_VERSION = 0

# Recovery points, log starts, how far compaction got.
OFFSETS_SUFFIX = "-offset-checkpoint"

REBUILD_ADVICE = "Delete the file while the broker is stopped: it is made anew from the segment."


class Entry(NamedTuple):
    """One thing a side file holds, by name."""

    facts: dict[str, Any]


Seen = Entry | Problem
Inspect = Callable[[Path, SegmentSummary | None], Iterator[Seen]]


def inspector_of(path: Path) -> Inspect | None:
    """What can read this file, by its name; None for a file that is nothing we know."""
    for suffix, inspect in _BY_SUFFIX.items():
        if path.name.endswith(suffix):
            return inspect
    return _BY_NAME.get(path.name)


def _inspect_offset_index(path: Path, segment: SegmentSummary | None) -> Iterator[Seen]:
    content = _without_spare_room(path.read_bytes(), OFFSET_ENTRY_BYTES)
    base = _base_offset(path)
    previous = (-1, -1)
    for number, (relative, position) in enumerate(_OFFSET_ENTRY.iter_unpack(_whole(content, OFFSET_ENTRY_BYTES))):
        at = number * OFFSET_ENTRY_BYTES
        yield Entry({"offset": base + relative, "position": position})
        if relative <= previous[0] or position <= previous[1]:
            yield Problem(
                f"entry {number} (offset {base + relative}, byte {position}) does not grow", at, REBUILD_ADVICE
            )
        elif segment is not None:
            yield from _check_position(number, base + relative, position, segment)
        previous = (relative, position)
    yield from _check_whole(content, OFFSET_ENTRY_BYTES)
    if segment is None:
        yield Problem("there is no segment beside this index")


def _check_position(number: int, offset: int, position: int, segment: SegmentSummary) -> Iterator[Seen]:
    end = segment.ends.get(position)
    at = number * OFFSET_ENTRY_BYTES
    if end is None:
        yield Problem(f"entry {number} points to byte {position}, where no batch starts", at, REBUILD_ADVICE)
    elif end[0] != offset:
        what = f"entry {number} says offset {offset} is at byte {position}; the batch there ends at offset {end[0]}"
        yield Problem(what, at, REBUILD_ADVICE)


def _inspect_time_index(path: Path, segment: SegmentSummary | None) -> Iterator[Seen]:
    content = _without_spare_room(path.read_bytes(), TIME_ENTRY_BYTES)
    base = _base_offset(path)
    ends = sorted(segment.ends.values()) if segment is not None else []
    last_offsets = [last_offset for last_offset, _ in ends]
    previous = (-1, -1)
    for number, (timestamp, relative) in enumerate(_TIME_ENTRY.iter_unpack(_whole(content, TIME_ENTRY_BYTES))):
        at = number * TIME_ENTRY_BYTES
        yield Entry({"timestamp_ms": timestamp, "offset": base + relative})
        if timestamp <= previous[0] or relative < previous[1]:
            yield Problem(
                f"entry {number} (time {timestamp}, offset {base + relative}) does not grow", at, REBUILD_ADVICE
            )
        elif segment is not None:
            slot = bisect_left(last_offsets, base + relative)
            if slot == len(ends):
                what = f"entry {number} points to offset {base + relative}; the segment ends before it"
                yield Problem(what, at, REBUILD_ADVICE)
            elif ends[slot][1] < timestamp:
                what = f"entry {number} says time {timestamp} is at offset {base + relative}; the batch there is older"
                yield Problem(what, at, REBUILD_ADVICE)
        previous = (timestamp, relative)
    yield from _check_whole(content, TIME_ENTRY_BYTES)
    if segment is None:
        yield Problem("there is no segment beside this index")


def _inspect_aborted(path: Path, segment: SegmentSummary | None) -> Iterator[Seen]:
    content = path.read_bytes()
    last_offsets = {last_offset for last_offset, _ in segment.ends.values()} if segment is not None else set[int]()
    previous = -1
    for number, entry in enumerate(_ABORTED_ENTRY.iter_unpack(_whole(content, _ABORTED_ENTRY.size))):
        version, producer_id, first_offset, last_offset, stable_offset = entry
        at = number * _ABORTED_ENTRY.size
        if version != _ABORTED_VERSION:
            yield Problem(
                f"entry {number} has version {version}, where {_ABORTED_VERSION} is known", at, REBUILD_ADVICE
            )
            return
        yield Entry(
            {
                "producer_id": producer_id,
                "first_offset": first_offset,
                "last_offset": last_offset,
                "last_stable_offset": stable_offset,
            }
        )
        if last_offset <= previous or first_offset >= last_offset:
            yield Problem(f"entry {number} (offsets {first_offset} to {last_offset}) does not grow", at, REBUILD_ADVICE)
        elif segment is not None and last_offset not in last_offsets:
            what = f"entry {number} says a marker is at offset {last_offset}, where no batch ends"
            yield Problem(what, at, REBUILD_ADVICE)
        previous = last_offset
    yield from _check_whole(content, _ABORTED_ENTRY.size)
    if segment is None:
        yield Problem("there is no segment beside this index")


def _inspect_snapshot(path: Path, _: SegmentSummary | None) -> Iterator[Seen]:
    content = path.read_bytes()
    if len(content) < _SNAPSHOT_HEAD_BYTES:
        yield Problem(f"torn: {len(content)} bytes, the head alone takes {_SNAPSHOT_HEAD_BYTES}", 0, REBUILD_ADVICE)
        return
    (version,) = _SNAPSHOT_VERSION.unpack_from(content)
    if version != SNAPSHOT_VERSION:
        yield Problem(f"version {version}, where {SNAPSHOT_VERSION} is known", 0, REBUILD_ADVICE)
        return
    producers = Producers.decode(content)
    if producers is None:
        yield Problem("bad CRC: the snapshot is torn or damaged", 2, REBUILD_ADVICE)
        return
    for producer_id, tail in producers.tails().items():
        producer = producers.get(producer_id)
        assert producer is not None
        yield Entry(
            {
                "producer_id": producer_id,
                "producer_epoch": tail.epoch,
                "last_timestamp_ms": producer.last_timestamp,
                "last_offset": tail.last_offset,
                "last_sequence": producer.batches[-1].last_sequence if producer.batches else None,
                "batches_kept": len(producer.batches),
                "open_transaction_from": producer.open_transaction if producer.open_transaction >= 0 else None,
                "open_since_ms": producer.open_since_ms if producer.open_transaction >= 0 else None,
            }
        )


def _inspect_leader_epochs(path: Path, _: SegmentSummary | None) -> Iterator[Seen]:
    lines = path.read_text("utf-8", "replace").splitlines()
    previous = (-1, -1)
    for number, line in enumerate(lines[2:], 3):
        epoch, _space, start = line.partition(" ")
        if not (epoch.isdigit() and start.isdigit()):
            yield Problem(f"line {number} is no epoch and offset: {line!r}")
            return
        now = (int(epoch), int(start))
        yield Entry({"leader_epoch": now[0], "start_offset": now[1]})
        if now[0] <= previous[0] or now[1] <= previous[1]:
            yield Problem(f"line {number}: epoch {now[0]} at offset {now[1]} does not grow")
        previous = now
    if len(lines) < 2 or lines[0] != "0" or lines[1] != str(len(lines) - 2):
        yield Problem("its first two lines should be 0 and the number of lines that follow")


def _inspect_offsets(path: Path, _: SegmentSummary | None) -> Iterator[Seen]:
    offsets = read_saved_offsets(RealDisk(), path)
    for at, saved in offsets.items():
        topic_id = str(saved.topic_id) if saved.topic_id != NO_TOPIC_ID else None
        yield Entry({"topic": at.topic, "partition": at.partition, "offset": saved.offset, "topic_id": topic_id})
    if not offsets and path.read_text("utf-8", "replace").splitlines() != ["0", "0"]:
        yield Problem("damaged, by its checksum or its layout: a broker takes it as empty and looks further back")


def _inspect_json(path: Path, _: SegmentSummary | None) -> Iterator[Seen]:
    try:
        document = json.loads(path.read_bytes())
    except ValueError as error:
        yield Problem(f"no JSON: {error}")
        return
    yield Entry(document if isinstance(document, dict) else {"content": document})


def _inspect_topic_id(path: Path, _: SegmentSummary | None) -> Iterator[Seen]:
    pairs = [line.partition(": ") for line in path.read_text("utf-8", "replace").splitlines()]
    facts = {name: value for name, colon, value in pairs if colon}
    yield Entry(facts)
    if "topic_id" not in facts:
        yield Problem("it does not say whose directory this is")


def _inspect_torn(path: Path, _: SegmentSummary | None) -> Iterator[Seen]:
    yield Entry({"what": "bytes a recovery cut off and kept", "size_bytes": path.stat().st_size})


def _inspect_deleted(path: Path, _: SegmentSummary | None) -> Iterator[Seen]:
    yield Entry({"what": "deleted; goes after file.delete.delay.ms", "size_bytes": path.stat().st_size})


_BY_SUFFIX: dict[str, Inspect] = {
    INDEX_SUFFIX: _inspect_offset_index,
    TIME_INDEX_SUFFIX: _inspect_time_index,
    TXN_INDEX_SUFFIX: _inspect_aborted,
    SNAPSHOT_SUFFIX: _inspect_snapshot,
    TORN_SUFFIX: _inspect_torn,
    DELETED_SUFFIX: _inspect_deleted,
    OFFSETS_SUFFIX: _inspect_offsets,
}
_BY_NAME: dict[str, Inspect] = {
    LEADER_EPOCHS: _inspect_leader_epochs,
    TOPIC_ID_FILE: _inspect_topic_id,
    CLEAN_STOP: _inspect_json,
}


def _base_offset(path: Path) -> int:
    stem = path.name.partition(".")[0]
    return int(stem) if stem.isdigit() else 0


def _whole(content: bytes, entry_bytes: int) -> bytes:
    return content[: len(content) // entry_bytes * entry_bytes]


def _without_spare_room(content: bytes, entry_bytes: int) -> bytes:
    """Kafka's own active indexes are as large as they may become, and zero where they have nothing yet."""
    end = len(content.rstrip(b"\0"))
    return content if end == len(content) else content[: -(-end // entry_bytes) * entry_bytes]


def _check_whole(content: bytes, entry_bytes: int) -> Iterator[Seen]:
    rest = len(content) % entry_bytes
    if rest:
        what = f"torn: {rest} bytes follow the last whole entry"
        yield Problem(what, len(content) - rest, REBUILD_ADVICE)
