"""Opening a log: without a scan after a clean stop, with a check of its tail after a crash.

Called by log.directory, on an I/O thread.
Laws (TRAPS L3, L4, L6):
- Below the recovery point everything was synced: a break there is damage, and the log refuses to open.
- Above it a crash may have torn the end: the first batch that is not whole ends the log. What is cut off is kept
  beside it (`….torn`) unless it is all zeroes, and the cut is logged byte by byte.
- Indexes, leader epochs and producer snapshots are caches: taken when they fit the log, made anew from it when not.
- What recovery has found is on stable storage before anyone relies on it.
"""

import errno
import logging
from dataclasses import dataclass
from pathlib import Path

from penstock.disk import Disk
from penstock.errors import StorageFailed
from penstock.log.checkpoints import LeaderEpochs
from penstock.log.partition_log import TOPIC_ID_FILE, LogState, sync_topic_id
from penstock.log.producers import Producers
from penstock.log.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    RELATIVE_OFFSET_MAX,
    TIME_INDEX_SUFFIX,
    Segment,
)
from penstock.log.swap import recover_swaps
from penstock.model import LeaderEpoch, Offset
from penstock.records.batch import HEADER_BYTES, MAGIC, BatchHeader, crc_is_right, read_header

logger = logging.getLogger(__name__)

SNAPSHOT_SUFFIX = ".snapshot"
SNAPSHOTS_KEPT = 2
TORN_SUFFIX = ".torn"


@dataclass(frozen=True, slots=True)
class CleanEnd:
    """What a clean stop wrote down of a log, so that the next start need not look into it."""

    active_base: int
    active_size: int
    next_offset: int
    first_timestamp: int
    max_timestamp: int


@dataclass(frozen=True, slots=True)
class KnownPoints:
    """What the checkpoints say of one log."""

    recovery_point: Offset
    log_start: Offset
    clean_end: CleanEnd | None


def open_log(disk: Disk, directory: Path, known: KnownPoints, index_interval_bytes: int, now_ms: int) -> LogState:
    """The state of the log in `directory`. Blocks. StorageFailed says why a damaged log stays closed."""
    epochs = LeaderEpochs(disk, directory)
    if not disk.exists(directory):
        return LogState([], *_start_of_nothing(directory, known), Producers(), epochs, has_directory=False)
    has_epochs = epochs.load()
    recover_swaps(disk, directory)
    segments = _list_segments(disk, directory, known.log_start, now_ms)
    if not segments:
        return LogState([], *_start_of_nothing(directory, known), Producers(), epochs, has_directory=True)
    log_start = Offset(max(known.log_start, segments[0].base_offset))
    if has_epochs and _take_clean_end(segments, known.clean_end):
        next_offset = segments[-1].next_offset
        producers = _load_snapshot(disk, directory, next_offset)
        if producers is not None:
            return LogState(segments, log_start, next_offset, producers, epochs, has_directory=True)
    point = known.recovery_point
    snapshot_offset, producers = _newest_snapshot(disk, directory, point)
    # Batches between the snapshot and the recovery point are sound; only their headers are needed.
    scan_from = Offset(min(point, snapshot_offset)) if has_epochs else Offset(0)
    scan = _Scan(point, log_start, scan_from, snapshot_offset, producers, epochs, index_interval_bytes)
    _recover_tail(disk, directory, segments, scan)
    next_offset = segments[-1].next_offset
    _make_durable(disk, directory, next_offset, epochs)
    if snapshot_offset != next_offset:
        write_snapshot(disk, directory, next_offset, producers.encode())
    if known.log_start > next_offset:
        # Records that were deleted before they were durable: their offsets are not given out a second time.
        logger.warning("%s: ended at %d, below its start %d; starts there", directory.name, next_offset, log_start)
        _remove(segments)
        return LogState([], log_start, log_start, producers, epochs, has_directory=True)
    return LogState(segments, log_start, next_offset, producers, epochs, has_directory=True)


def write_snapshot(disk: Disk, directory: Path, offset: Offset, content: bytes) -> None:
    """Keep the producers' state as of `offset`, and the one before, which the recovery point may still need. Blocks."""
    disk.replace_file(directory / f"{offset:020d}{SNAPSHOT_SUFFIX}", content)
    for name in _snapshots(disk, directory)[SNAPSHOTS_KEPT:]:
        disk.remove(directory / name)


def _snapshots(disk: Disk, directory: Path) -> list[str]:
    """Newest first."""
    return sorted((name for name in disk.list_names(directory) if name.endswith(SNAPSHOT_SUFFIX)), reverse=True)


def _start_of_nothing(directory: Path, known: KnownPoints) -> tuple[Offset, Offset]:
    """Where a log without segments starts and is durable: after the last offset that is known to have been used."""
    start = known.log_start
    if known.recovery_point > start:
        logger.error("%s: records %d to %d are gone, with their files", directory.name, start, known.recovery_point - 1)
        start = known.recovery_point
    return start, start


def _list_segments(disk: Disk, directory: Path, log_start: Offset, now_ms: int) -> list[Segment]:
    bases: list[int] = []
    for name in disk.list_names(directory):
        stem, dot, rest = name.partition(".")
        if name.endswith((DELETED_SUFFIX, ".tmp")):
            disk.remove(directory / name)
        elif stem.isdecimal() and dot + rest == LOG_SUFFIX:
            bases.append(int(stem))
    bases.sort()
    segments = [Segment(disk, directory, Offset(base), now_ms) for base in bases]
    for segment, following in zip(segments, bases[1:], strict=False):
        segment.next_offset = Offset(following)
    # Deleted before the crash, which brought some of them back: between them may be holes.
    below = sum(segment.next_offset <= log_start for segment in segments[:-1])
    _remove(segments[:below])
    for segment in segments[below:-1]:
        segment.size = segment.file.size()
        segment.close()
    return segments[below:]


def _remove(segments: list[Segment]) -> None:
    for segment in segments:
        segment.mark_deleted()
        segment.remove_deleted()


def _take_clean_end(segments: list[Segment], end: CleanEnd | None) -> bool:
    active = segments[-1]
    if end is None or end.active_base != active.base_offset or active.file.size() != end.active_size:
        return False
    active.size, active.next_offset = end.active_size, Offset(end.next_offset)
    active.first_timestamp, active.max_timestamp = end.first_timestamp, end.max_timestamp
    active.close()
    return True


def _load_snapshot(disk: Disk, directory: Path, offset: Offset) -> Producers | None:
    """The producers as of exactly `offset`; without them a batch that is sent again would be written again."""
    path = directory / f"{offset:020d}{SNAPSHOT_SUFFIX}"
    return Producers.decode(disk.read_file(path)) if disk.exists(path) else None


def _newest_snapshot(disk: Disk, directory: Path, point: Offset) -> tuple[Offset, Producers]:
    for name in _snapshots(disk, directory):
        stem = name.removesuffix(SNAPSHOT_SUFFIX)
        if stem.isdecimal() and int(stem) <= point:
            producers = Producers.decode(disk.read_file(directory / name))
            if producers is not None:
                return Offset(int(stem)), producers
        disk.remove(directory / name)
    return Offset(0), Producers()


@dataclass(frozen=True, slots=True)
class _Scan:
    """What one recovery knows, and what it fills in."""

    point: Offset
    log_start: Offset
    scan_from: Offset
    snapshot_offset: Offset
    producers: Producers
    epochs: LeaderEpochs
    index_interval_bytes: int


def _recover_tail(disk: Disk, directory: Path, segments: list[Segment], scan: _Scan) -> None:
    """Check every batch from the recovery point on, cut at the first that is not whole."""
    for slot, segment in enumerate(segments):
        following = segment.next_offset if slot < len(segments) - 1 else None
        if following is not None and following <= scan.scan_from:
            continue
        try:
            is_whole = _scan_segment(disk, segment, following, scan)
            # What a killed process left in the page cache becomes durable before anyone relies on it.
            segment.file.sync()
        finally:
            segment.close()
        # Compaction keeps the last batch of a segment: one that ends before the next begins has lost its end.
        is_short = following is not None and segment.next_offset != following
        # All of it may be deleted, and the name of the segment that was to follow lost.
        is_missed = is_short or (following is None and scan.point > scan.log_start)
        if is_missed and segment.next_offset < scan.point:
            raise StorageFailed(
                f"{directory.name}: {segment.path().name} ends at offset {segment.next_offset}, below the recovery "
                f"point {scan.point}: records that were safe are missing, the log stays offline"
            )
        if not is_whole or is_short:
            _drop_rest(disk, segments, slot + 1)
            break


def _scan_segment(disk: Disk, segment: Segment, following: Offset | None, scan: _Scan) -> bool:
    """Walk the batches of one segment; False if it had to be cut."""
    file_size = segment.size = segment.file.size()
    position = segment.start_near(scan.scan_from) if scan.scan_from > segment.base_offset else 0
    next_offset = segment.header_at(position).base_offset if position else segment.base_offset
    segment.restart_at(position, Offset(next_offset))
    last_epoch = -1
    while position < file_size:
        header, why = _batch_at(segment, position, file_size)
        if header is not None:
            why = _misfit(segment, header, position, file_size, following, last_epoch)
        if header is None or why:
            if segment.next_offset < scan.point:
                raise StorageFailed(
                    f"{segment.directory.name}: {segment.path().name} is damaged at byte {position} ({why}), below the "
                    f"recovery point {scan.point}: the log stays offline; `penstock log dump` shows what is left of it"
                )
            _cut(disk, segment, position, file_size, why)
            return False
        base_offset, last_epoch = Offset(header.base_offset), header.leader_epoch
        segment.note(header, base_offset, position, scan.index_interval_bytes)
        scan.epochs.assign(LeaderEpoch(header.leader_epoch), base_offset)
        if header.producer_id >= 0 and base_offset >= scan.snapshot_offset:
            scan.producers.record(header, base_offset, segment.created_ms)
        position += header.size
    return True


def _batch_at(segment: Segment, position: int, file_size: int) -> tuple[BatchHeader | None, str]:
    if file_size - position < HEADER_BYTES:
        return None, f"{file_size - position} bytes are no batch header"
    header = read_header(segment.file.read(position, HEADER_BYTES))
    if header.magic != MAGIC or header.size < HEADER_BYTES or header.last_offset_delta < 0:
        return None, "no batch header"
    if position + header.size > file_size:
        return None, f"a batch of {header.size} bytes does not fit the {file_size - position} left"
    if not crc_is_right(segment.file.read(position, header.size), header):
        return None, f"the CRC of the batch at offset {header.base_offset} is wrong"
    return header, ""


def _misfit(
    segment: Segment, header: BatchHeader, position: int, file_size: int, following: Offset | None, last_epoch: int
) -> str:
    """Why a batch cannot stand here, by its offset and epoch, which its CRC does not cover; "" if it can."""
    base_offset, expected = header.base_offset, segment.next_offset
    end = segment.base_offset + RELATIVE_OFFSET_MAX + 1 if following is None else following
    if not expected <= base_offset <= header.last_offset < end:
        return f"offsets {base_offset} to {header.last_offset} do not follow offset {expected - 1}"
    if header.leader_epoch < max(last_epoch, 0):
        return f"leader epoch {header.leader_epoch} after {last_epoch}"
    if base_offset == expected and (header.leader_epoch == last_epoch or last_epoch < 0):
        return ""
    # Rare and right (compaction, a new leader), or a flipped bit: then the next batch goes back behind this one.
    after = position + header.size
    if after + HEADER_BYTES <= file_size:
        next_header, _ = _batch_at(segment, after, file_size)
        if next_header is not None and next_header.base_offset <= header.last_offset:
            return f"offset {base_offset} before offset {next_header.base_offset}"
        if next_header is not None and next_header.leader_epoch < header.leader_epoch:
            return f"leader epoch {header.leader_epoch} before {next_header.leader_epoch}"
    return ""


def _cut(disk: Disk, segment: Segment, position: int, file_size: int, why: str) -> None:
    """End the segment at `position`, keeping the bytes behind it if there may be anything in them."""
    rest = segment.file.read(position, file_size - position)
    kept = ""
    if any(rest):
        path = segment.path().with_name(f"{segment.path().name}.{position}{TORN_SUFFIX}")
        try:
            disk.replace_file(path, bytes(rest))
            kept = f"; they are kept in {path.name}"
        except OSError as error:
            # A full disk is what tears a batch: that one, never acknowledged, must not keep the log from opening.
            is_torn_batch = len(rest) < HEADER_BYTES or (rest[16] == MAGIC and read_header(rest).size > len(rest))
            if error.errno != errno.ENOSPC or not is_torn_batch:
                raise
            disk.remove(path.with_name(path.name + ".tmp"))
            kept = "; the disk is too full to keep them"
    logger.warning(
        "%s: %s torn at byte %d (%s): the log ends at offset %d, %d bytes cut off%s",
        segment.directory.name,
        segment.path().name,
        position,
        why,
        segment.next_offset,
        file_size - position,
        kept,
    )
    segment.file.truncate(position)


def _drop_rest(disk: Disk, segments: list[Segment], first: int) -> None:
    """Segments behind a cut do not follow from anything any more; they are kept aside, not served."""
    for segment in segments[first:]:
        path = segment.path()
        logger.warning("%s: %s lies behind the cut and is set aside", segment.directory.name, path.name)
        segment.close()
        disk.rename(path, path.with_name(path.name + TORN_SUFFIX))
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            disk.remove(segment.path(suffix))
    del segments[first:]


def _make_durable(disk: Disk, directory: Path, next_offset: Offset, epochs: LeaderEpochs) -> None:
    """The names too: a killed process may have left new files that no sync of the directory has covered."""
    epochs.truncate_end(next_offset)
    changed = epochs.pending()
    if changed is not None:
        epochs.write(changed)
    if disk.exists(directory / TOPIC_ID_FILE):
        sync_topic_id(disk, directory)
    disk.sync_directory(directory)
    disk.sync_directory(directory.parent)
