"""The markers of one query out of the raw batches of their partition, and which of them are committed.

Called by marker_reading.py. Why raw batches and not read_committed: that stops before the first transaction still open,
whoever's it is, and the query's other tasks leave such transactions behind when they are killed. Each is ended by the
task that comes after it; a task that waited for the others' ends before it starts would wait for ever where there are
fewer cores than tasks. So everything is read, and what each transaction came to is taken from its control record.

Law: once the task's own producer has been initialised, nothing of its transactional id is open, so that its own
marker is either committed or aborted here. Others' markers may be undecided, and are then not there.
"""

from penstock.records.batch import HEADER_BYTES, BatchHeader, read_header
from penstock.records.markers import ControlType, decode_marker
from penstock.records.record import Record, decode_records
from penstock.spark.sink.marker import Marker, parse_marker

_SIZE_MAX = 64 << 20


class MarkerLog:
    """Fed the partition from its beginning, in order; may be fed more later."""

    def __init__(self, query: str) -> None:
        self._prefix = f"{query}/".encode()
        self._committed: dict[bytes, Marker] = {}
        # By producer id: records whose transaction has not ended as far as we have read.
        self._open: dict[int, list[Record]] = {}
        self.position = 0

    def feed(self, records: memoryview) -> None:
        """Whole batches; the last may be cut off, and the first may begin before where we are."""
        at = 0
        while at + HEADER_BYTES <= len(records):
            header = read_header(records, at)
            if at + header.size > len(records):
                return
            if header.base_offset >= self.position:
                self._take(records, header, at)
                self.position = header.next_offset
            at += header.size

    def settled_below(self, last_stable: int) -> None:
        """Nothing below the last stable offset is open: what has no control record there any more is committed.

        Compaction removes the records of aborted transactions before it removes their ends, never the other way.
        """
        for producer_id, records in list(self._open.items()):
            if records[-1].offset < last_stable:
                del self._open[producer_id]
                self._apply(records)

    def committed(self) -> list[Marker]:
        return list(self._committed.values())

    def _take(self, records: memoryview, header: BatchHeader, at: int) -> None:
        if header.is_control:
            marker = (
                decode_marker(next(decode_records(records, header, _SIZE_MAX, at))) if header.record_count else None
            )
            if marker is None or marker.control_type is ControlType.UNKNOWN:
                return
            ended = self._open.pop(header.producer_id, [])
            if marker.control_type is ControlType.COMMIT:
                self._apply(ended)
            return
        ours = [
            record
            for record in decode_records(records, header, _SIZE_MAX, at)
            if record.key is not None and record.key.startswith(self._prefix)
        ]
        if not ours:
            return
        if header.is_transactional:
            self._open.setdefault(header.producer_id, []).extend(ours)
        else:
            # Not ours, then, but an operator's: a tombstone for a query that is gone.
            self._apply(ours)

    def _apply(self, records: list[Record]) -> None:
        for record in records:
            assert record.key is not None
            if record.value is None:
                self._committed.pop(record.key, None)
            else:
                self._committed[record.key] = parse_marker(record.value)
