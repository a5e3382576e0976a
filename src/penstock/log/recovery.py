"""Opening a log: without a scan after a clean stop, with a check of its tail after a crash.

Called by log.directory, on an I/O thread.
Laws (TRAPS L3, L4, L6):
- Below the recovery point everything was synced: a break there is damage, and the log refuses to open.
- Above it a crash may have torn the end: the first batch that is not whole ends the log. What is cut off is kept
  beside it (`….torn`) if anything in it still looks like a batch, and the cut is logged byte by byte.
- Indexes and producer snapshots are caches: taken when they fit the log, made anew from it when they do not.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

from penstock.disk import Disk
from penstock.errors import CorruptMessage, StorageFailed
from penstock.log.checkpoints import LeaderEpochs
from penstock.log.partition_log import TOPIC_ID_FILE, LogState, sync_topic_id
from penstock.log.producers import Producers
from penstock.log.segment import DELETED_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, Segment
from penstock.model import LeaderEpoch, Offset
from penstock.records.batch import HEADER_BYTES, MAGIC, BatchHeader, crc_is_right, read_header

logger = logging.getLogger(__name__)

SNAPSHOT_SUFFIX = ".snapshot"
TORN_SUFFIX = ".torn"
SCAN_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class CleanEnd:
    """What a clean stop wrote down of a log, so that the next start need not look into it."""

    active_base: int
    active_size: int
    next_offset: int
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
        start = known.log_start
        if known.recovery_point > start:
            logger.error(
                "%s: the directory is gone, with records %d to %d", directory.name, start, known.recovery_point - 1
            )
            start = known.recovery_point
        return LogState([], start, start, Producers(), epochs, has_directory=False)
    epochs.load()
    segments = _list_segments(disk, directory, now_ms)
    if not segments:
        start = Offset(max(known.log_start, known.recovery_point))
        return LogState([], start, start, Producers(), epochs, has_directory=True)
    log_start = Offset(max(known.log_start, segments[0].base_offset))
    if _take_clean_end(segments, known.clean_end):
        next_offset = segments[-1].next_offset
        producers = _load_snapshot(disk, directory, next_offset)
        if producers is not None:
            return LogState(segments, log_start, next_offset, producers, epochs, has_directory=True)
    producers = _recover_tail(disk, directory, segments, known.recovery_point, epochs, index_interval_bytes)
    # So do the names: a killed process may have left new files that no sync of the directory has covered.
    if disk.exists(directory / TOPIC_ID_FILE):
        sync_topic_id(disk, directory)
    disk.sync_directory(directory)
    disk.sync_directory(directory.parent)
    next_offset = segments[-1].next_offset if segments else known.recovery_point
    epochs.truncate_end(next_offset)
    log_start = min(log_start, next_offset)
    return LogState(segments, log_start, next_offset, producers, epochs, has_directory=True)


def write_snapshot(disk: Disk, directory: Path, offset: Offset, content: bytes) -> None:
    """Keep the producers' state as of `offset`; older snapshots go. Blocks."""
    name = f"{offset:020d}{SNAPSHOT_SUFFIX}"
    disk.replace_file(directory / name, content)
    for other in disk.list_names(directory):
        if other.endswith(SNAPSHOT_SUFFIX) and other != name:
            disk.remove(directory / other)


def _list_segments(disk: Disk, directory: Path, now_ms: int) -> list[Segment]:
    names = disk.list_names(directory)
    bases: list[int] = []
    for name in names:
        stem, dot, rest = name.partition(".")
        if name.endswith((DELETED_SUFFIX, ".tmp")):
            disk.remove(directory / name)
        elif stem.isdigit() and dot + rest == LOG_SUFFIX:
            bases.append(int(stem))
    bases.sort()
    segments = [Segment(disk, directory, Offset(base), now_ms) for base in bases]
    for segment, following in zip(segments, bases[1:], strict=False):
        segment.size = segment.file.size()
        segment.next_offset = Offset(following)
        segment.close()
    return segments


def _take_clean_end(segments: list[Segment], end: CleanEnd | None) -> bool:
    active = segments[-1]
    if end is None or end.active_base != active.base_offset or active.file.size() != end.active_size:
        return False
    active.size, active.next_offset = end.active_size, Offset(end.next_offset)
    active.max_timestamp = end.max_timestamp
    active.close()
    return True


def _load_snapshot(disk: Disk, directory: Path, offset: Offset) -> Producers | None:
    """The producers as of exactly `offset`; a log without snapshots has had no producers."""
    snapshots = [name for name in disk.list_names(directory) if name.endswith(SNAPSHOT_SUFFIX)]
    wanted = f"{offset:020d}{SNAPSHOT_SUFFIX}"
    if wanted in snapshots:
        return Producers.decode(disk.read_file(directory / wanted))
    return None if snapshots else Producers()


def _recover_tail(
    disk: Disk, directory: Path, segments: list[Segment], point: Offset, epochs: LeaderEpochs, interval: int
) -> Producers:
    """Check every batch from the recovery point on, cut at the first that is not whole; gives the producers."""
    snapshot_offset, producers = _newest_snapshot(disk, directory, point)
    # Batches between the snapshot and the recovery point are sound; only their headers are needed.
    scan_from = Offset(min(point, snapshot_offset))
    for slot, segment in enumerate(segments):
        is_last = slot == len(segments) - 1
        if not is_last and segment.next_offset <= scan_from:
            continue
        expected_end = None if is_last else segment.next_offset
        whole = _scan_segment(segment, scan_from, point, producers, snapshot_offset, epochs, interval)
        # What a killed process left in the page cache becomes durable before anyone relies on it.
        segment.file.sync()
        if is_last and segment.next_offset < point:
            raise StorageFailed(
                f"{directory.name}: the log ends at offset {segment.next_offset}, below the recovery point {point}: "
                "records that were safe are missing, the log stays offline"
            )
        if not whole or (expected_end is not None and segment.next_offset != expected_end and _is_gap(segment, point)):
            _drop_rest(disk, segments, slot + 1)
            break
        if expected_end is not None:
            segment.next_offset = expected_end
    return producers


def _is_gap(segment: Segment, point: Offset) -> bool:
    # A compacted segment may end early; only above the recovery point, where nothing is compacted, is a gap a loss.
    return segment.next_offset >= point


def _newest_snapshot(disk: Disk, directory: Path, point: Offset) -> tuple[Offset, Producers]:
    names = sorted((name for name in disk.list_names(directory) if name.endswith(SNAPSHOT_SUFFIX)), reverse=True)
    for name in names:
        stem = name.removesuffix(SNAPSHOT_SUFFIX)
        if stem.isdigit() and int(stem) <= point:
            producers = Producers.decode(disk.read_file(directory / name))
            if producers is not None:
                return Offset(int(stem)), producers
        disk.remove(directory / name)
    return Offset(0), Producers()


def _scan_segment(
    segment: Segment,
    scan_from: Offset,
    point: Offset,
    producers: Producers,
    snapshot_offset: Offset,
    epochs: LeaderEpochs,
    interval: int,
) -> bool:
    """Walk the batches of one segment; False if it had to be cut."""
    file_size = segment.file.size()
    segment.size = file_size
    position = _start_position(segment, scan_from)
    segment.size = position
    segment.offset_index.truncate(position)
    if position == 0:
        segment.next_offset = segment.base_offset
    while position < file_size:
        header, why = _batch_at(segment, position, file_size)
        if header is not None and header.base_offset < max(segment.next_offset, segment.base_offset):
            header, why = None, f"offset {header.base_offset} after {segment.next_offset - 1}"
        if header is None:
            if segment.next_offset < point:
                raise StorageFailed(
                    f"{segment.directory.name}: {segment.path().name} is damaged at byte {position} ({why}), below the "
                    f"recovery point {point}: the log stays offline; `penstock log dump` shows what is left of it"
                )
            _cut(segment, position, file_size, why)
            return False
        segment.note(header, Offset(header.base_offset), position, interval)
        if header.leader_epoch > epochs.latest:
            epochs.assign(LeaderEpoch(header.leader_epoch), Offset(header.base_offset))
        if header.producer_id >= 0 and header.base_offset >= snapshot_offset:
            producers.record(header, Offset(header.base_offset))
        position += header.size
    return True


def _start_position(segment: Segment, scan_from: Offset) -> int:
    """The position of the first batch to look at: from the index if its entry leads to that very batch, else 0."""
    if scan_from <= segment.base_offset:
        return 0
    position, _ = segment.offset_index.window(scan_from - segment.base_offset)
    if position == 0:
        return 0
    try:
        header = segment.header_at(position)
    except CorruptMessage:
        header = None
    slot = segment.offset_index.positions.index(position)
    if header is None or header.last_offset != segment.base_offset + segment.offset_index.offsets[slot]:
        logger.warning("%s: its index is not of this file and is made anew", segment.path().name)
        segment.offset_index.truncate(0)
        return 0
    segment.next_offset = Offset(header.base_offset)
    return position


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


def _cut(segment: Segment, position: int, file_size: int, why: str) -> None:
    """End the segment at `position`, keeping the bytes behind it if there may be anything in them."""
    rest = segment.file.read(position, file_size - position)
    kept = ""
    if any(rest):
        path = segment.path().with_name(f"{segment.path().name}.{position}{TORN_SUFFIX}")
        path.write_bytes(rest)
        kept = f"; they are kept in {path.name}"
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
