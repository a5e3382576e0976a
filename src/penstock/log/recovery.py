"""Opening a log: without a scan after a clean stop, with a check of its tail after a crash.

Called by log.directory, on an I/O thread.
Laws (TRAPS L3, L4, L6):
- Below the recovery point everything was synced: a break there is damage, and the log refuses to open.
- Above it a crash may have torn the end: the first batch that is not whole ends the log. What is cut off is kept
  beside it (`….torn`) unless it is all zeroes, and the cut is logged byte by byte.
- Indexes, leader epochs, producer snapshots and the files of aborted transactions are caches: taken when they fit the
  log, made anew from it when not.
- What recovery has found is on stable storage before anyone relies on it. After a sync that failed the page cache
  shows, as long as it likes, what the disk lacks, and a second sync passes it over: so what lies above the recovery
  point is written again, byte for byte where it stands, before the sync that is to vouch for it.
"""

import errno
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from penstock.disk import Disk
from penstock.errors import StorageFailed, StorageUnavailable
from penstock.log.aborted import AbortedDigest, AbortedTransactions, write_aborted
from penstock.log.checkpoints import LeaderEpochs
from penstock.log.producers import Producers, decode_digests
from penstock.log.replicated import follow, marker_of
from penstock.log.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    RELATIVE_OFFSET_MAX,
    TXN_INDEX_SUFFIX,
    Segment,
)
from penstock.log.state import LogState
from penstock.log.swap import recover_swaps
from penstock.log.topic_id import TOPIC_ID_FILE, sync_topic_id
from penstock.model import LeaderEpoch, Offset
from penstock.records.batch import HEADER_BYTES, MAGIC, BatchHeader, crc_is_right, read_header

logger = logging.getLogger(__name__)

# What a file system says that is full, busy or away, of files that may well be whole.
NOT_OF_THE_FILE = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EROFS, errno.EACCES, errno.EIO)
)

SNAPSHOT_SUFFIX = ".snapshot"
SNAPSHOTS_KEPT = 2
TORN_SUFFIX = ".torn"
REWRITE_BYTES_MAX = 1 << 20


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
    # Whether other brokers hold this log too: then one that has lost its files is rebuilt, not begun anew.
    has_peers: bool = False
    # Whether the file of log starts was there: without it a log starts where its first segment does.
    is_start_known: bool = False


def open_log(disk: Disk, directory: Path, known: KnownPoints, index_interval_bytes: int, now_ms: int) -> LogState:
    """The state of the log in `directory`. Blocks. StorageFailed says why a damaged log stays closed."""
    epochs = LeaderEpochs(disk, directory)
    if not disk.exists(directory):
        start = _start_of_nothing(directory, known)
        return LogState([], start, start, Producers(), epochs, has_directory=False)
    has_epochs = epochs.load()
    recover_swaps(disk, directory)
    segments = _list_segments(disk, directory, known.log_start, now_ms)
    if segments and segments[0].base_offset > known.log_start and known.is_start_known:
        _judge_lost_front(disk, directory, known, segments)
    if not segments:
        return _open_without_segments(disk, directory, known, epochs)
    log_start = Offset(max(known.log_start, segments[0].base_offset))
    if has_epochs and _take_clean_end(segments, known.clean_end):
        next_offset = segments[-1].next_offset
        snapshot = _load_snapshot(disk, directory, next_offset)
        if snapshot is not None:
            aborted = _load_aborted(disk, directory, segments, snapshot)
            if aborted is not None:
                usable = next_offset if next_offset <= known.recovery_point else Offset(0)
                return LogState(segments, log_start, next_offset, snapshot.producers, epochs, True, aborted, usable)
    point = known.recovery_point
    snapshot = _newest_snapshot(disk, directory, point, segments[0].base_offset)
    producers = snapshot.producers
    # Batches between the snapshot and the recovery point are sound; only their headers are needed.
    scan_from = Offset(min(point, snapshot.offset)) if has_epochs else Offset(0)
    aborted = _load_aborted(disk, directory, segments, snapshot)
    is_rebuilt = aborted is None
    if aborted is None:
        aborted = _rebuild_aborted(segments, snapshot.offset)
    scan = _Scan(point, log_start, scan_from, snapshot.offset, producers, aborted, epochs, index_interval_bytes)
    _recover_tail(disk, directory, segments, scan)
    next_offset = segments[-1].next_offset
    _make_durable(disk, directory, next_offset, epochs, was_synced=point > segments[0].base_offset)
    if snapshot.offset != next_offset or is_rebuilt:
        saving = aborted.prepare_saving([segment.base_offset for segment in segments])
        write_aborted(disk, directory, saving.parts)
        write_snapshot(disk, directory, next_offset, producers.encode(saving.digests))
        aborted.saved(saving)
    if known.log_start > next_offset:
        # Records that were deleted before they were durable: their offsets are not given out a second time.
        logger.warning("%s: ended at %d, below its start %d; starts there", directory.name, next_offset, log_start)
        _remove(segments)
        if known.has_peers:
            return _open_without_segments(disk, directory, known, epochs)
        return LogState([], log_start, log_start, producers, epochs, has_directory=True)
    # The one just written will count with the recovery point that the next checkpoint saves.
    return LogState(segments, log_start, next_offset, producers, epochs, True, aborted, snapshot.offset)


def failure_to_open(name: str, error: Exception) -> StorageFailed:
    """What kept open_log() from opening a log, told apart: damage, or a file system that may let it be opened later."""
    if isinstance(error, StorageFailed):
        return error
    is_about_the_file = not isinstance(error, OSError) or error.errno not in NOT_OF_THE_FILE
    return (StorageFailed if is_about_the_file else StorageUnavailable)(f"{name}: {error}")


def _open_without_segments(disk: Disk, directory: Path, known: KnownPoints, epochs: LeaderEpochs) -> LogState:
    """A log that begins after all that it ever held, and knows nothing of it: a transaction may have ended there."""
    start = _start_of_nothing(directory, known)
    epochs.truncate_end(Offset(0) if known.has_peers else start)
    changed = epochs.pending()
    if changed is not None:
        epochs.write(changed)
    for name in _snapshots(disk, directory):
        disk.remove(directory / name)
    disk.sync_directory(directory)
    return LogState([], start, start, Producers(), epochs, has_directory=True)


def write_snapshot(disk: Disk, directory: Path, offset: Offset, content: bytes) -> None:
    """Keep the producers' state as of `offset`, and the one before, which the recovery point may still need. Blocks."""
    disk.replace_file(directory / f"{offset:020d}{SNAPSHOT_SUFFIX}", content)
    for name in _snapshots(disk, directory)[SNAPSHOTS_KEPT:]:
        disk.remove(directory / name)


def _snapshots(disk: Disk, directory: Path) -> list[str]:
    """Newest first."""
    return sorted((name for name in disk.list_names(directory) if name.endswith(SNAPSHOT_SUFFIX)), reverse=True)


def _start_of_nothing(directory: Path, known: KnownPoints) -> Offset:
    """Where a log without segments starts: after the last offset that is known to have been used."""
    start = known.log_start
    if known.recovery_point > start:
        start = known.recovery_point
        _tell_loss(directory, known, start)
    return start


def _judge_lost_front(disk: Disk, directory: Path, known: KnownPoints, segments: list[Segment]) -> None:
    """A log start is written down before files go: those below the first segment went by themselves."""
    if known.has_peers and known.recovery_point <= known.log_start:
        # Nothing of it was safe. What is left does not follow from anything, and others have the whole.
        _drop_rest(disk, segments, 0)
        disk.sync_directory(directory)
    else:
        _tell_loss(directory, known, segments[0].base_offset)


def _tell_loss(directory: Path, known: KnownPoints, end: Offset) -> None:
    gone = f"{directory.name}: records {known.log_start} to {end - 1} are gone, with their files"
    if known.has_peers:
        raise StorageFailed(f"{gone}: the log stays offline")
    logger.error("%s", gone)


def _list_segments(disk: Disk, directory: Path, log_start: Offset, now_ms: int) -> list[Segment]:
    bases: list[int] = []
    names = disk.list_names(directory)
    for name in names:
        stem, dot, rest = name.partition(".")
        if name.endswith((DELETED_SUFFIX, ".tmp")):
            disk.remove(directory / name)
        elif stem.isdecimal() and dot + rest == LOG_SUFFIX:
            bases.append(int(stem))
    bases.sort()
    for name in names:
        # A checkpoint may have written it while its segment was being deleted.
        if name.endswith(TXN_INDEX_SUFFIX) and name.removesuffix(TXN_INDEX_SUFFIX) + LOG_SUFFIX not in names:
            disk.remove(directory / name)
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


class _Snapshot(NamedTuple):
    offset: Offset
    producers: Producers
    aborted: list[AbortedDigest]


def _load_snapshot(disk: Disk, directory: Path, offset: Offset) -> _Snapshot | None:
    """The producers as of exactly `offset`; without them a batch that is sent again would be written again."""
    path = directory / f"{offset:020d}{SNAPSHOT_SUFFIX}"
    content = disk.read_file(path) if disk.exists(path) else b""
    producers = Producers.decode(content)
    return None if producers is None else _Snapshot(offset, producers, decode_digests(content))


def _newest_snapshot(disk: Disk, directory: Path, point: Offset, first_base: Offset) -> _Snapshot:
    """The newest that the log goes on from: between one that is older than the first segment and that segment lies
    what nobody knows any more, the end of a transaction for one.
    """
    for name in _snapshots(disk, directory):
        stem = name.removesuffix(SNAPSHOT_SUFFIX)
        if stem.isdecimal() and first_base <= int(stem) <= point:
            snapshot = _load_snapshot(disk, directory, Offset(int(stem)))
            if snapshot is not None:
                return snapshot
        disk.remove(directory / name)
    return _Snapshot(Offset(0), Producers(), [])


def _load_aborted(
    disk: Disk, directory: Path, segments: list[Segment], snapshot: _Snapshot
) -> AbortedTransactions | None:
    """The aborted transactions up to the snapshot; None if their files are not what it vouches for."""
    aborted = AbortedTransactions()
    bases = [segment.base_offset for segment in segments]
    return aborted if aborted.load(disk, directory, bases, snapshot.aborted) else None


def _rebuild_aborted(segments: list[Segment], end: Offset) -> AbortedTransactions:
    """The same from the log itself: every batch below `end`, where the snapshot goes on."""
    logger.warning("%s: its aborted transactions are read from the log anew", segments[0].directory.name)
    aborted, producers = AbortedTransactions(), Producers()
    for segment in segments:
        if segment.base_offset >= end:
            break
        try:
            for position, header in _headers(segment):
                if header.is_transactional and header.base_offset < end:
                    _follow(producers, aborted, segment, header, position)
                if header.next_offset >= end:
                    break  # what comes next may be torn
        finally:
            segment.close()
    return aborted


def _headers(segment: Segment) -> Iterator[tuple[int, BatchHeader]]:
    segment.size = segment.file.size()
    position = 0
    while position < segment.size:
        header = segment.header_at(position)
        yield position, header
        position += header.size


def _follow(
    producers: Producers, aborted: AbortedTransactions, segment: Segment, header: BatchHeader, position: int
) -> None:
    """Take note of a batch that has a producer."""
    is_marker = header.is_control and header.record_count
    marker = marker_of(segment.file.read(position, header.size), header) if is_marker else None
    follow(producers, aborted, header, marker, segment.created_ms)


@dataclass(frozen=True, slots=True)
class _Scan:
    """What one recovery knows, and what it fills in."""

    point: Offset
    log_start: Offset
    scan_from: Offset
    snapshot_offset: Offset
    producers: Producers
    aborted: AbortedTransactions
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
            # What a killed process left in the page cache becomes durable, with what was just written again.
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
        header, batch, why = _batch_at(segment, position, file_size)
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
        if header.next_offset > scan.point:
            _write_again(segment, position, batch)
        base_offset, last_epoch = Offset(header.base_offset), header.leader_epoch
        segment.note(header, base_offset, position, scan.index_interval_bytes)
        scan.epochs.assign(LeaderEpoch(header.leader_epoch), base_offset)
        if header.producer_id >= 0 and base_offset >= scan.snapshot_offset:
            _follow(scan.producers, scan.aborted, segment, header, position)
        position += header.size
    return True


def _write_again(segment: Segment, position: int, batch: memoryview) -> None:
    """The bytes whose CRC was right, and not a second look at the file: that may show what the disk has instead.

    If power fails meanwhile nothing has changed, since what is overwritten by its like cannot tear.
    """
    for at in range(0, len(batch), REWRITE_BYTES_MAX):
        segment.file.write_at(position + at, (batch[at : at + REWRITE_BYTES_MAX],))


def _batch_at(segment: Segment, position: int, file_size: int) -> tuple[BatchHeader | None, memoryview, str]:
    """The whole batch that stands here, with its header; or None, and why there is none."""
    nothing = memoryview(b"")
    if file_size - position < HEADER_BYTES:
        return None, nothing, f"{file_size - position} bytes are no batch header"
    header = read_header(segment.file.read(position, HEADER_BYTES))
    if header.magic != MAGIC or header.size < HEADER_BYTES or header.last_offset_delta < 0:
        return None, nothing, "no batch header"
    if position + header.size > file_size:
        return None, nothing, f"a batch of {header.size} bytes does not fit the {file_size - position} left"
    batch = segment.file.read(position, header.size)
    if not crc_is_right(batch, header):
        return None, nothing, f"the CRC of the batch at offset {header.base_offset} is wrong"
    return header, batch, ""


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
        next_header, _, _ = _batch_at(segment, after, file_size)
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
        for suffix in INDEX_SUFFIXES:
            disk.remove(segment.path(suffix))
    del segments[first:]


def _make_durable(disk: Disk, directory: Path, next_offset: Offset, epochs: LeaderEpochs, *, was_synced: bool) -> None:
    """The names too: a killed process may have left new files that no sync of the directory has covered."""
    epochs.truncate_end(next_offset)
    changed = epochs.pending()
    if changed is not None:
        epochs.write(changed)
    if disk.exists(directory / TOPIC_ID_FILE):
        if not was_synced:
            _write_topic_id_again(disk, directory)
        sync_topic_id(disk, directory)
    disk.sync_directory(directory)
    disk.sync_directory(directory.parent)


def _write_topic_id_again(disk: Disk, directory: Path) -> None:
    """As the batches: it goes to the disk with the first sync of a log, which may have failed."""
    content = disk.read_file(directory / TOPIC_ID_FILE)
    file = disk.open(directory / TOPIC_ID_FILE)
    try:
        file.write_at(0, (content,))
    finally:
        file.close()
