"""Damage that a read meets: a broken batch is an error and said once, a wrong index hides nothing."""

import os
from pathlib import Path

import pytest
from tests.unit.log.making import fill, open_at, values_in

from penstock.errors import CorruptMessage
from penstock.log.partition_log import PartitionLog
from penstock.model import Offset


@pytest.mark.parametrize("size", [0, 155, 4 * 155])
def test_a_closed_segment_that_has_lost_its_end_is_an_error_and_not_a_gap(directory: Path, size: int) -> None:
    log = open_at(directory, segment_bytes=900, index_interval_bytes=150)
    values = fill(log, 12)
    first = log.segments[0]
    assert first.next_offset == 10
    first.file.truncate(size)
    first.size = size
    lost = size // 155 * 2
    for offset in range(lost, 10):
        for cached_only in (True, False):
            log._damage_is_told = False  # each is the first to meet it
            with pytest.raises(CorruptMessage, match=f"byte {size} of"):
                log.read(Offset(offset), 1000, log.next_offset, cached_only=cached_only)
    assert values_in(log.read(Offset(10), 1000, log.next_offset, cached_only=False))[0] == values[10]
    if lost:
        assert values_in(log.read(Offset(0), 1000, log.next_offset, cached_only=False)) == values[:lost]
    assert log.read(Offset(8), 1000, Offset(8), cached_only=False) == b""


def damaged(directory: Path, position: int, content: bytes) -> PartitionLog:
    """Ten batches of 155 bytes, then these bytes written over them behind the log's back."""
    log = open_at(directory, index_interval_bytes=400)
    fill(log, 10)
    assert log.size == 1550
    with (directory / "00000000000000000000.log").open("r+b") as file:
        file.seek(position)
        file.write(content)
    return log


@pytest.mark.parametrize(
    ("position", "content"),
    [
        (155 * 7, b"\0" * 155),
        (155 * 7 + 8, (-12).to_bytes(4, "big", signed=True)),
        (155 * 7 + 8, (10**6).to_bytes(4, "big")),
        (155 * 7, (2**60).to_bytes(8, "big")),
        (155 * 7 + 23, (-1).to_bytes(4, "big", signed=True)),
    ],
    ids=["zeroes", "no length", "too long", "far offset", "no records"],
)
def test_a_broken_batch_is_an_error_and_not_an_endless_search(
    directory: Path, position: int, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    log = damaged(directory, position, content)
    assert values_in(log.read(Offset(13), 155, Offset(20)))[0].startswith("0012")
    for end in (20, 17):
        for _ in range(2):
            with pytest.raises(CorruptMessage, match=f"byte {position // 155 * 155}"):
                log.read(Offset(14), 1000, Offset(end), cached_only=False)
    assert caplog.text.count("no record batch at byte 1085") == 1, "said once, not with every fetch"


@pytest.mark.parametrize("asked", [0, 5, 6])
def test_a_bit_that_flipped_in_an_old_segment_is_found_when_it_is_read_from_the_disk(
    directory: Path, asked: int
) -> None:
    log = open_at(directory, segment_bytes=155 * 4)
    values = fill(log, 10)
    told: list[object] = []
    log.on_damage = told.append
    content = bytearray((directory / "00000000000000000000.log").read_bytes())
    content[155 * 3 + 100] ^= 1  # in a record of the batch that holds offset 6
    (directory / "00000000000000000000.log").write_bytes(content)
    assert log.read(Offset(asked), 1000, Offset(20)), "what the page cache has is not checked"
    with pytest.raises(CorruptMessage, match=r"the batch at offset 6 of 0{20}\.log"):
        log.read(Offset(asked), 1000, Offset(20), cached_only=False)
    assert len(told) == 1
    assert log.read(Offset(asked), 1000, Offset(20)) is None, "now the page cache has it, and it is checked every time"
    with pytest.raises(CorruptMessage):
        log.read(Offset(asked), 1000, Offset(20), cached_only=False)
    assert len(told) == 1
    assert values_in(log.read(Offset(8), 1000, Offset(20), cached_only=False))[:2] == values[8:10]


def test_a_batch_cut_short_at_the_end_of_a_read_from_the_disk_is_not_held_against_its_checksum(directory: Path) -> None:
    log = open_at(directory)
    values = fill(log, 10)
    for size_max in range(155, 155 * 3):
        chunk = log.read(Offset(4), size_max, Offset(20), cached_only=False)
        assert chunk is not None
        assert len(chunk) == size_max
        assert values_in(chunk) == values[4 : 4 + size_max // 155 * 2]


def test_a_length_that_cannot_be_is_found_behind_the_first_batch_of_a_read_from_the_disk(directory: Path) -> None:
    log = damaged(directory, 155 * 7 + 8, (-12).to_bytes(4, "big", signed=True))
    with pytest.raises(CorruptMessage, match=r"offset 14 .* cannot be 0 bytes long"):
        log.read(Offset(8), 1000, Offset(20), cached_only=False)


def test_a_file_that_ends_early_is_an_error_and_not_silence(directory: Path) -> None:
    log = damaged(directory, 0, b"")
    for size in (155 * 7 + 100, 155 * 7 + 30, 155 * 7):
        os.truncate(directory / "00000000000000000000.log", size)
        assert log.read(Offset(14), 1000, Offset(20)) is None
        with pytest.raises(CorruptMessage):
            log.read(Offset(14), 1000, Offset(20), cached_only=False)


def test_an_index_that_points_to_the_wrong_batch_hides_nothing(directory: Path) -> None:
    log = open_at(directory, index_interval_bytes=100)
    values = fill(log, 10)
    index = log.segments[0].offset_index
    # The batch at 155 * 5 ends at offset 11; the entry says 5, so whoever looks for 6 to 11 would begin too late.
    slot = list(index.positions).index(155 * 5)
    index.offsets[slot] = 5
    del index.offsets[slot - 3 : slot], index.positions[slot - 3 : slot]
    assert log.read(Offset(6), 155, Offset(20)) is None
    assert values_in(log.read(Offset(6), 155, Offset(20), cached_only=False)) == values[6:8]
    assert values_in(log.read(Offset(6), 155, Offset(20))) == values[6:8], "and the index is no longer asked"


def test_an_index_that_is_wrong_about_the_end_shows_nothing_above_it(directory: Path) -> None:
    log = open_at(directory, index_interval_bytes=100)
    values = fill(log, 10)
    index = log.segments[0].offset_index
    slot = list(index.positions).index(155 * 5)
    index.offsets[slot] = 7
    del index.offsets[slot - 2 : slot], index.positions[slot - 2 : slot]
    for cached_only in (True, False, True):
        chunk = log.read(Offset(0), 10_000, Offset(8), cached_only=cached_only)
        assert chunk is None or values_in(chunk) == values[:8]


def test_a_lost_index_is_made_anew_when_the_way_without_it_is_long(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.log.reading._WALK_BYTES_MAX", 500)
    log = open_at(directory, index_interval_bytes=100)
    values = fill(log, 20)
    log.segments[0].offset_index.truncate(0)
    assert values_in(log.read(Offset(2), 155, Offset(40))) == values[2:4], "near the beginning nobody misses it"
    assert log.read(Offset(38), 155, Offset(40)) is None
    assert values_in(log.read(Offset(38), 155, Offset(40), cached_only=False)) == values[38:40]
    assert values_in(log.read(Offset(38), 155, Offset(40))) == values[38:40]
