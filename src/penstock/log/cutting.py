"""Where a log can be cut, and cutting its files there.

Called by log.directory, on an I/O thread; nobody else is at work on the files meanwhile. Whatever a power failure
leaves of a cut is the log up to some batch at or after it: the caller has lowered the recovery point, so that recovery
takes what is missing for a torn end.
"""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.disk import Disk
from penstock.log.segment import Segment
from penstock.model import Offset


class Cut(NamedTuple):
    """The batch boundary at or below an offset: the last segment that stays, and how much of it."""

    slot: int
    position: int
    end: Offset


def find_cut(segments: Sequence[Segment], offset: Offset) -> Cut:
    """Where the log is cut so that it ends at or below `offset`, which its first segment must not be above. Blocks."""
    slot = max(slot for slot, segment in enumerate(segments) if segment.base_offset <= offset)
    segment = segments[slot]
    end = segment.base_offset
    # Begin with a batch that stays: only after it is known where it ends, since compaction leaves holes.
    position = segment.start_near(Offset(offset - 1)) if offset > segment.base_offset else 0
    while position < segment.size:
        header = segment.header_at(position)
        if header.last_offset >= offset:
            break
        position += header.size
        end = Offset(header.next_offset)
    return Cut(slot, position, end)


def cut_files(disk: Disk, segments: Sequence[Segment], cut: Cut) -> None:
    """Whole segments behind the cut go, the newest first; the one that holds it is cut short. Blocks.

    Not synced: recovery, which the caller has look at the log next, puts what it finds on stable storage.
    """
    for segment in reversed(segments[cut.slot + 1 :]):
        segment.mark_deleted()
    # By its name: what readers of the old log hold open is theirs to close.
    file = disk.open(segments[cut.slot].path())
    try:
        file.truncate(cut.position)
    finally:
        file.close()
