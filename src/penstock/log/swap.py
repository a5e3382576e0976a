"""Putting a compacted segment in the place of the ones it was made from, so that a crash leaves the old or the new.

Called by log.directory (swap_in, after log.compaction made the files) and log.recovery (recover_swaps, before it
lists segments). The files of a compacted segment go through three names:

    ….cleaned   being written, worth nothing
    ….swap      complete; from the moment `….log.swap` is durable the old segments are dead
    ….log       in place

`….log` is always the last of a segment's files to be renamed, so that its name alone says how far a swap got
(KAFKA-12520). Between two steps that may not change places the directory is synced.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

from penstock.disk import Disk
from penstock.errors import StorageFailed
from penstock.log.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
)
from penstock.records.batch import HEADER_BYTES, MAGIC, read_header

logger = logging.getLogger(__name__)

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
CLEANED_INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX)


def swap_in(disk: Disk, directory: Path, base_offset: int, replaced: Sequence[int]) -> None:
    """Put the cleaned segment in place of those that start at `replaced`, the first of which is its own base.

    Old segments become `….deleted`, except the first, whose name the new one takes. Blocks (three directory syncs);
    whoever still reads an old segment must have its file and indexes open before.
    """
    assert replaced[0] == base_offset
    _rename(disk, directory, base_offset, (*CLEANED_INDEX_SUFFIXES, LOG_SUFFIX), CLEANED_SUFFIX, SWAP_SUFFIX)
    disk.sync_directory(directory)
    for old in replaced[1:]:
        _rename(disk, directory, old, SEGMENT_SUFFIXES, "", DELETED_SUFFIX)
    _put_in_place(disk, directory, base_offset)


def recover_swaps(disk: Disk, directory: Path) -> None:
    """Finish the swaps that a crash interrupted after they counted, undo those before. Blocks. Safe to repeat."""
    names = set(disk.list_names(directory))
    interrupted = [name for name in names if name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX))]
    if not interrupted:
        return
    for name in sorted(names):
        stem, _, rest = name.partition(".")
        if rest == (LOG_SUFFIX + SWAP_SUFFIX)[1:] and stem.isdigit():
            _finish_swap(disk, directory, int(stem), names)
    remove_cleaned(disk, directory)
    disk.sync_directory(directory)


def remove_cleaned(disk: Disk, directory: Path) -> None:
    """Drop the files of compactions that never counted. Not while one is under way in this directory."""
    for name in disk.list_names(directory):
        if name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)):
            disk.remove(directory / name)


def _finish_swap(disk: Disk, directory: Path, base_offset: int, names: set[str]) -> None:
    end = _end_of_swapped(disk, directory / file_name(base_offset, LOG_SUFFIX + SWAP_SUFFIX), base_offset)
    logger.warning("%s: finishing the swap of the compacted segment %d", directory.name, base_offset)
    for name in names:
        stem, dot, rest = name.partition(".")
        if stem.isdigit() and base_offset < int(stem) < end and dot + rest in SEGMENT_SUFFIXES:
            disk.remove(directory / name)
    # If power failed amid the first renames, an index may have kept its first name.
    _rename(disk, directory, base_offset, CLEANED_INDEX_SUFFIXES, CLEANED_SUFFIX, SWAP_SUFFIX)
    _put_in_place(disk, directory, base_offset)


def _put_in_place(disk: Disk, directory: Path, base_offset: int) -> None:
    """The last step: until it is done, `….log.swap` is there to say that old segments and indexes are dead."""
    _rename(disk, directory, base_offset, CLEANED_INDEX_SUFFIXES, SWAP_SUFFIX, "")
    # Of the markers it speaks of some are gone; the log knows which are left, and the next checkpoint writes it.
    disk.remove(directory / file_name(base_offset, TXN_INDEX_SUFFIX))
    disk.sync_directory(directory)
    _rename(disk, directory, base_offset, (LOG_SUFFIX,), SWAP_SUFFIX, "")
    disk.sync_directory(directory)


def _rename(disk: Disk, directory: Path, base_offset: int, suffixes: Sequence[str], old: str, new: str) -> None:
    for suffix in suffixes:
        path = directory / file_name(base_offset, suffix + old)
        if disk.exists(path):
            disk.rename(path, directory / file_name(base_offset, suffix + new))


def _end_of_swapped(disk: Disk, path: Path, base_offset: int) -> int:
    """The offset after the last batch. Compaction keeps the last batch of what it replaces, if only its header."""
    file = disk.open(path)
    try:
        position, size, end = 0, file.size(), base_offset
        while position < size:
            content = file.read(position, HEADER_BYTES)
            header = read_header(content) if len(content) == HEADER_BYTES else None
            if header is None or header.magic != MAGIC or not HEADER_BYTES <= header.size <= size - position:
                # It was synced before it got this name: the disk has lost it, and what it replaced may be gone.
                raise StorageFailed(f"{path.name} is damaged at byte {position}: the log stays offline")
            end = header.next_offset
            position += header.size
        return end
    finally:
        file.close()
