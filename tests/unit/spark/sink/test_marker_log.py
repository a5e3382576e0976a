"""Markers out of raw batches: what is committed counts, whatever else is open around it."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.records.markers import ControlType, encode_marker
from penstock.records.markers import Marker as EndMarker
from penstock.records.record import Record, encode_batch
from penstock.spark.sink.marker import PARTITIONS, Marker, parse_marker, partition_of
from penstock.spark.sink.marker_log import MarkerLog


def marker(task: int, batch: int, query: str = "q") -> Marker:
    return Marker(query, "run", batch, task, 10, "ff")


class RawLog:
    """A partition as a broker would hand it out."""

    def __init__(self) -> None:
        self.raw = bytearray()
        self.end = 0

    def add(self, producer_id: int, *markers: Marker, is_transactional: bool = True) -> None:
        records = [Record(self.end + at, 0, marker.key, marker.value) for at, marker in enumerate(markers)]
        self._append(encode_batch(records, producer_id=producer_id, is_transactional=is_transactional), len(records))

    def tombstone(self, key: bytes) -> None:
        self._append(encode_batch([Record(self.end, 0, key, None)], producer_id=-1), 1)

    def finish(self, producer_id: int, *, is_committed: bool) -> None:
        end = EndMarker(ControlType.COMMIT if is_committed else ControlType.ABORT, 0)
        self._append(encode_marker(end, offset=self.end, timestamp=0, producer_id=producer_id, producer_epoch=0), 1)

    def _append(self, batch: bytearray, count: int) -> None:
        self.raw += batch
        self.end += count


def standing(log: RawLog, query: str = "q", last_stable: int = 0) -> set[Marker]:
    read = MarkerLog(query)
    read.feed(memoryview(bytes(log.raw)))
    read.settled_below(last_stable)
    return set(read.committed())


def test_a_committed_marker_counts_behind_a_transaction_that_is_still_open() -> None:
    log = RawLog()
    log.add(7, marker(task=7, batch=3))
    log.add(1, marker(task=1, batch=3))
    log.finish(1, is_committed=True)
    # A reader of committed data would see nothing here, and wait for task 7.
    assert standing(log) == {marker(1, 3)}
    log.finish(7, is_committed=False)
    assert standing(log) == {marker(1, 3)}


def test_an_aborted_marker_leaves_the_one_before_it() -> None:
    log = RawLog()
    log.add(1, marker(1, 3))
    log.finish(1, is_committed=True)
    log.add(1, marker(1, 4))
    log.finish(1, is_committed=False)
    assert standing(log) == {marker(1, 3)}
    log.add(1, marker(1, 4))
    log.finish(1, is_committed=True)
    assert standing(log) == {marker(1, 4)}


def test_another_query_whose_name_begins_alike_is_another_query() -> None:
    log = RawLog()
    log.add(1, marker(1, 3, "q"), marker(1, 9, "qq"))
    log.finish(1, is_committed=True)
    assert standing(log, "q") == {marker(1, 3, "q")}
    assert standing(log, "qq") == {marker(1, 9, "qq")}


def test_a_transaction_whose_end_was_compacted_away_is_committed() -> None:
    log = RawLog()
    log.add(1, marker(1, 3))
    assert standing(log) == set()
    assert standing(log, last_stable=1) == {marker(1, 3)}


def test_an_operators_tombstone_removes_a_marker() -> None:
    log = RawLog()
    log.add(1, marker(1, 3))
    log.finish(1, is_committed=True)
    log.tombstone(marker(1, 3).key)
    assert standing(log) == set()


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["write", "commit", "abort"])), max_size=25), st.data())
def test_a_log_read_in_pieces_is_the_log_read_at_once(steps: list[tuple[int, str]], data: st.DataObject) -> None:
    log, expected, batches = RawLog(), dict[int, Marker](), dict[int, Marker]()
    for number, (task, act) in enumerate(steps):
        if act == "write":
            batches[task] = marker(task, number)
            log.add(task, batches[task])
        elif task in batches:
            log.finish(task, is_committed=act == "commit")
            ended = batches.pop(task)
            if act == "commit":
                expected[task] = ended
    assert standing(log) == set(expected.values())
    read = MarkerLog("q")
    at = 0
    while read.position < log.end:
        # A fetch begins with the batch that holds the offset asked for, and ends wherever its bytes ran out.
        size = data.draw(st.integers(1, len(log.raw)))
        before = read.position
        read.feed(memoryview(bytes(log.raw[at : at + size])))
        if read.position == before:
            read.feed(memoryview(bytes(log.raw[at:])))
    assert set(read.committed()) == set(expected.values())


def test_markers_survive_their_bytes_and_stay_in_their_partition() -> None:
    assert parse_marker(marker(3, 5).value) == marker(3, 5)
    assert {partition_of(str(number)) for number in range(200)} == set(range(PARTITIONS))
    # Changed, the markers of running queries would be looked for where they are not.
    assert partition_of("1f2742f3-79e0-4d5c-8b8d-3aa5e2cf052b") == 3
