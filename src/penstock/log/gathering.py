"""Small batches of one turn of the loop, written to their segment in one go: the system call costs more than they do.

Called by log.partition_log, which gives each batch its offset first. Whoever looks at the files, or answers a producer,
has them written before (PartitionLog.settle), so nobody hears of a batch that is only here.
"""

from penstock.log.segment import Segment
from penstock.model import Offset
from penstock.records.batch import BatchHeader

BATCH_BYTES_MAX = 8 * 1024  # a larger one is written from where it was received, which saves copying it
GATHERED_BYTES_MAX = 256 * 1024


class Gathering:
    __slots__ = ("batches", "content")

    def __init__(self) -> None:
        self.content = bytearray()
        self.batches: list[tuple[BatchHeader, Offset]] = []

    def add(self, header: BatchHeader, base_offset: Offset, batch: memoryview) -> None:
        """Per batch: one copy, since it lies in a buffer that the next request is received into."""
        self.content += batch
        self.batches.append((header, base_offset))

    def write(self, segment: Segment, index_interval_bytes: int) -> None:
        """All of it to the end of the segment. OSError leaves both as they were."""
        segment.file.write_at(segment.size, (self.content,))
        for header, base_offset in self.batches:
            segment.note(header, base_offset, segment.size, index_interval_bytes)
        self.drop()

    def drop(self) -> None:
        self.content, self.batches = bytearray(), []
