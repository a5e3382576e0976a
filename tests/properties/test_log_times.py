"""Offsets by time, against a list: whatever was appended, cut off and reopened, the answer is the list's."""

import tempfile
from pathlib import Path
from uuid import UUID

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.clock import Rng, SystemClock
from penstock.config import BrokerConfig
from penstock.disk import RealDisk
from penstock.log.directory import LogDirectory, LogRequest
from penstock.log.times import first_at, look, newest_timestamp
from penstock.model import LeaderEpoch, Offset, TopicPartition
from penstock.records.batch import read_header
from penstock.records.compression import Codec
from penstock.records.record import Record, encode_batch

TIMES = st.integers(-1, 40)
BATCHES = st.lists(
    st.tuples(st.lists(TIMES, min_size=1, max_size=4), st.sampled_from([Codec.NONE, Codec.LZ4]), st.booleans()),
    min_size=1,
    max_size=12,
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    batches=BATCHES,
    interval=st.sampled_from(["0", "200", "4096"]),
    start=st.floats(0, 1),
    end=st.floats(0, 1),
    reopen=st.booleans(),
    data=st.data(),
)
def test_a_look_up_by_time_is_a_walk_along_the_records(
    batches: list[tuple[list[int], Codec, bool]],
    interval: str,
    start: float,
    end: float,
    reopen: bool,
    data: st.DataObject,
) -> None:
    config = BrokerConfig().topic({"segment.bytes": "1024", "index.interval.bytes": interval})
    request = LogRequest(TopicPartition("orders", 0), UUID(int=7), config)
    disk = RealDisk()
    with tempfile.TemporaryDirectory() as root:
        directory = LogDirectory(disk, Path(root), SystemClock(), Rng(1))
        directory.prepare()
        log = directory.open_one(request)
        model: list[tuple[int, int]] = []
        for times, codec, is_append_time in batches:
            records = [Record(delta, each, b"k", b"v" * 100) for delta, each in enumerate(times)]
            batch = encode_batch(records, compression=codec, is_log_append_time=is_append_time)
            view = memoryview(batch)
            appended = log.append(view, read_header(view), LeaderEpoch(0), 0)
            for delta, each in enumerate(times):
                model.append((appended.base_offset + delta, max(times) if is_append_time else each))
        if reopen:
            directory.release()
            directory = LogDirectory(disk, Path(root), SystemClock(), Rng(1))
            directory.prepare()
            log = directory.open_one(request)
        first = round(start * len(model))
        last = round(first + end * (len(model) - first))
        log.advance_start(Offset(first))
        visible = model[first:last]
        for timestamp in data.draw(st.lists(st.integers(0, 41), min_size=1, max_size=4)):
            found = first_at(look(log, Offset(last), timestamp), timestamp)
            expected = next(((offset, each) for offset, each in visible if each >= timestamp), None)
            assert (found[:2] if found else None) == expected
        newest = max((each for _, each in visible), default=-1)
        assert newest_timestamp(look(log, Offset(last))) == (newest if newest >= 0 else None)
        directory.release()
    disk.close()
