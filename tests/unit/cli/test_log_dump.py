"""`penstock log dump` on files that are whole and on files that are not."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.app import app
from penstock.log.index import OffsetIndex, TimeIndex
from penstock.records.batch import HEADER_BYTES, read_header
from penstock.records.compression import Codec
from penstock.records.markers import ControlType, Marker, encode_marker
from penstock.records.record import Record, encode_batch, join_batch


def batch(base_offset: int, count: int = 3, *, leader_epoch: int = 0, compression: int = 0) -> bytes:
    records = [
        Record(base_offset + n, 1000 + base_offset + n, b"k%d" % n, b"v" * 50, (("h", b"1"),)) for n in range(count)
    ]
    return bytes(encode_batch(records, leader_epoch=leader_epoch, compression=compression))


def write_segment(directory: Path, batches: list[bytes], base_offset: int = 0) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{base_offset:020d}.log"
    path.write_bytes(b"".join(batches))
    return path


def write_offset_index(segment: Path, entries: list[tuple[int, int]], tail: bytes = b"") -> Path:
    index = OffsetIndex()
    for offset, position in entries:
        index.append(offset, position)
    path = segment.with_suffix(".index")
    path.write_bytes(index.encode() + tail)
    return path


def write_time_index(segment: Path, entries: list[tuple[int, int]], tail: bytes = b"") -> Path:
    index = TimeIndex()
    for timestamp, offset in entries:
        index.append(timestamp, offset)
    path = segment.with_suffix(".timeindex")
    path.write_bytes(index.encode() + tail)
    return path


def dump(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["log", "dump", *map(str, arguments)])


def lines(*arguments: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in dump(*arguments, "--json").stdout.splitlines()]


def problems(*arguments: str | Path) -> list[tuple[int | None, str]]:
    """Where and what, of everything that is wrong."""
    found = lines(*arguments)
    problems = [(line["at_byte"], line["what"]) for line in found if line["kind"] == "problem"]
    assert found[-1]["problems"] == len(problems)
    assert dump(*arguments).exit_code == (1 if problems else 0)
    return problems


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """Three batches of three records."""
    return write_segment(tmp_path / "t-0", [batch(0), batch(3), batch(6, leader_epoch=1)])


def test_a_whole_segment_is_shown_batch_by_batch(whole: Path) -> None:
    size = len(batch(0))
    found = [line for line in lines(whole) if line["kind"] == "batch"]
    assert [(line["position"], line["base_offset"], line["last_offset"], line["records"]) for line in found] == [
        (0, 0, 2, 3),
        (size, 3, 5, 3),
        (2 * size, 6, 8, 3),
    ]
    assert all(line["crc_ok"] and line["codec"] == "none" for line in found)
    assert [line["leader_epoch"] for line in found] == [0, 0, 1]
    assert problems(whole) == []
    text = dump(whole).stdout
    assert "0..2" in text
    assert "3 batches, 9 records, next offset 9: all right" in text


def test_records_are_printed_on_demand(whole: Path) -> None:
    assert "key=k0" not in dump(whole).stdout
    text = dump(whole, "--records").stdout
    assert text.count("key=k0") == 3
    assert "h=1" in text
    found = [line for line in lines(whole, "--records") if line["kind"] == "record"]
    assert [line["offset"] for line in found] == list(range(9))
    assert found[0]["headers"] == [{"name": "h", "value": "1"}]


@pytest.mark.parametrize("codec", list(Codec))
def test_records_are_read_in_every_compression(tmp_path: Path, codec: Codec) -> None:
    segment = write_segment(tmp_path, [batch(0, 20, compression=codec)])
    assert problems(segment, "--deep") == []
    assert len([line for line in lines(segment, "--records") if line["kind"] == "record"]) == 20
    assert [line["codec"] for line in lines(segment) if line["kind"] == "batch"] == [codec.name.lower()]


def test_a_control_batch_says_what_it_decided(tmp_path: Path) -> None:
    marker = encode_marker(Marker(ControlType.ABORT, 7), offset=0, timestamp=5, producer_id=9, producer_epoch=1)
    segment = write_segment(tmp_path, [bytes(marker)])
    assert "abort by coordinator epoch 7" in dump(segment, "--records").stdout
    assert "txn control" in dump(segment).stdout


@pytest.mark.parametrize("cut", [1, 30, len(batch(0)) - HEADER_BYTES, len(batch(0)) - 1])
def test_a_torn_tail_is_told_with_its_byte(whole: Path, cut: int) -> None:
    content = whole.read_bytes()
    whole.write_bytes(content[:-cut])
    ((at, what),) = problems(whole)
    assert at == 2 * len(batch(0))
    assert "torn tail" in what
    assert "cuts it off when it starts" in dump(whole).stdout


def test_a_tail_of_zeroes_is_called_that(whole: Path) -> None:
    size = whole.stat().st_size
    with whole.open("ab") as file:
        file.write(bytes(5000))
    assert problems(whole) == [(size, "the last 5000 bytes are zeroes")]


def test_a_flipped_bit_in_the_records_is_a_bad_crc_at_that_batch(whole: Path) -> None:
    size = len(batch(0))
    content = bytearray(whole.read_bytes())
    content[size + HEADER_BYTES + 5] ^= 1
    whole.write_bytes(content)
    ((at, what),) = problems(whole)
    assert at == size
    assert "bad CRC" in what
    assert "offset 3" in what
    found = [line for line in lines(whole) if line["kind"] == "batch"]
    assert [line["crc_ok"] for line in found] == [True, False, True]
    assert "BAD" in dump(whole).stdout


def test_past_a_damaged_length_the_next_whole_batch_is_found(whole: Path) -> None:
    size = len(batch(0))
    content = bytearray(whole.read_bytes())
    struct.pack_into(">i", content, size + 8, 1 << 30)
    whole.write_bytes(content)
    ((at, what),) = problems(whole)
    assert at == size
    assert f"the next whole batch is at byte {2 * size}, offset 6" in what
    assert [line["base_offset"] for line in lines(whole) if line["kind"] == "batch"] == [0, 6]


def test_a_batch_header_of_nonsense_is_skipped_too(whole: Path) -> None:
    size = len(batch(0))
    content = bytearray(whole.read_bytes())
    content[size : size + HEADER_BYTES] = b"\xff" * HEADER_BYTES
    whole.write_bytes(content)
    ((at, what),) = problems(whole)
    assert at == size
    assert f"{size} bytes are lost" in what


def test_offsets_that_go_back_are_wrong_and_gaps_are_not(tmp_path: Path) -> None:
    segment = write_segment(tmp_path, [batch(0), batch(10), batch(5)])
    assert problems(segment) == [
        (2 * len(batch(0)), "offset 5 goes back: by the batch before it it should be 13 or more")
    ]


def test_a_segment_does_not_start_before_its_name(tmp_path: Path) -> None:
    segment = write_segment(tmp_path, [batch(0)], base_offset=100)
    ((at, what),) = problems(segment)
    assert at == 0
    assert "by its file's name it should be 100" in what


def test_a_leader_epoch_does_not_fall(tmp_path: Path) -> None:
    segment = write_segment(tmp_path, [batch(0, leader_epoch=3), batch(3, leader_epoch=2)])
    assert problems(segment) == [(len(batch(0)), "leader epoch 2 after 3")]


def test_segments_of_a_directory_do_not_overlap(tmp_path: Path) -> None:
    write_segment(tmp_path, [batch(0), batch(3)])
    write_segment(tmp_path, [batch(4)], base_offset=4)
    ((at, what),) = problems(tmp_path)
    assert at is None
    assert what == "it starts at offset 4, but 00000000000000000000.log before it reaches 6"


def test_deep_unpacks_records_that_the_crc_alone_takes_for_sound(tmp_path: Path) -> None:
    sound = batch(0)
    lying = join_batch(read_header(sound)._replace(record_count=2, last_offset_delta=2), sound[HEADER_BYTES:])
    segment = write_segment(tmp_path, [bytes(lying)])
    assert problems(segment) == []
    ((at, what),) = problems(segment, "--deep")
    assert at == 0
    assert "records of the batch of offset 0" in what


def test_deep_compares_the_newest_record_with_the_header(tmp_path: Path) -> None:
    sound = batch(0)
    late = join_batch(read_header(sound)._replace(max_timestamp=9999), sound[HEADER_BYTES:])
    segment = write_segment(tmp_path, [bytes(late)])
    assert problems(segment, "--records") == []
    assert problems(segment, "--deep") == [(0, "the newest record of the batch is of 1002, its header says 9999")]


def test_sound_indexes_are_shown(whole: Path) -> None:
    size = len(batch(0))
    index = write_offset_index(whole, [(5, size), (8, 2 * size)])
    times = write_time_index(whole, [(1005, 5), (1008, 8)])
    assert problems(index, times) == []
    found = [line for line in lines(whole.parent) if line["kind"] == "entry"]
    assert [(line.get("offset"), line.get("position")) for line in found] == [
        (5, size),
        (8, 2 * size),
        (5, None),
        (8, None),
    ]


def test_kafkas_spare_room_at_the_end_of_an_index_is_nothing_wrong(whole: Path) -> None:
    index = write_offset_index(whole, [(8, 2 * len(batch(0)))], tail=bytes(8 * 100))
    times = write_time_index(whole, [(1008, 8)], tail=bytes(12 * 100))
    assert problems(index, times) == []


@pytest.mark.parametrize(
    ("entries", "tail", "at", "expected"),
    [
        ([(5, 17)], b"", 0, "entry 0 points to byte 17, where no batch starts"),
        ([(4, len(batch(0)))], b"", 0, "the batch there ends at offset 5"),
        ([(5, len(batch(0))), (5, 2 * len(batch(0)))], b"", 8, "entry 1"),
        ([(5, len(batch(0)))], b"abc", 8, "torn: 3 bytes follow"),
    ],
)
def test_an_offset_index_that_leads_nowhere_is_told_entry_by_entry(
    whole: Path, entries: list[tuple[int, int]], tail: bytes, at: int, expected: str
) -> None:
    index = write_offset_index(whole, entries, tail)
    ((found_at, what),) = problems(index)
    assert found_at == at
    assert expected in what


@pytest.mark.parametrize(
    ("entries", "tail", "at", "expected"),
    [
        ([(1008, 50)], b"", 0, "the segment ends before it"),
        ([(2000, 5)], b"", 0, "the batch there is older"),
        ([(1002, 2)], struct.pack(">qI", 1001, 5), 12, "does not grow"),
        ([(1002, 2)], b"12345", 12, "torn: 5 bytes follow"),
    ],
)
def test_a_time_index_that_leads_nowhere_is_told_entry_by_entry(
    whole: Path, entries: list[tuple[int, int]], tail: bytes, at: int, expected: str
) -> None:
    index = write_time_index(whole, entries, tail)
    ((found_at, what),) = problems(index)
    assert found_at == at
    assert expected in what


def test_an_index_without_its_segment_is_told(tmp_path: Path) -> None:
    index = write_offset_index(tmp_path / "00000000000000000000.log", [(5, 10)])
    assert problems(index) == [(None, "there is no segment beside this index")]


def test_what_is_wrong_is_all_that_quiet_prints(whole: Path, tmp_path: Path) -> None:
    whole.write_bytes(whole.read_bytes()[:-1])
    out = dump(tmp_path, "--quiet").stdout
    assert "torn tail" in out
    assert str(whole) in out
    assert "0..2" not in out
    assert out.splitlines()[-1] == "1 files, 1 problems"


def test_what_is_not_there_is_asked_wrongly(tmp_path: Path) -> None:
    assert dump(tmp_path / "nowhere").exit_code == 2
    result = dump(tmp_path)
    assert result.exit_code == 1
    assert "no log files there" in result.stderr
    (tmp_path / "notes.txt").write_text("hello")
    assert "nothing here knows" in dump(tmp_path / "notes.txt").stdout
