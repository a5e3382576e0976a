"""Small files that say how far something got: read back as written, and never believed when damaged."""

from pathlib import Path
from uuid import UUID

import pytest

from penstock.disk import RealDisk
from penstock.log.checkpoints import (
    LEADER_EPOCHS,
    LeaderEpochs,
    SavedOffset,
    read_offsets,
    read_saved_offsets,
    write_offsets,
    write_saved_offsets,
)
from penstock.model import NO_TOPIC_ID, LeaderEpoch, Offset, TopicPartition

ID = UUID("11111111-2222-4333-8444-555555555555")
SAVED = {
    TopicPartition("orders", 0): SavedOffset(Offset(1234), ID),
    TopicPartition("a.b-c_d", 17): SavedOffset(Offset(0), UUID(int=5)),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "offsets"


def test_offsets_are_read_back_with_the_topics_they_belong_to(path: Path) -> None:
    write_saved_offsets(RealDisk(), path, SAVED)
    assert read_saved_offsets(RealDisk(), path) == SAVED
    assert read_offsets(RealDisk(), path) == {at: saved.offset for at, saved in SAVED.items()}


def test_offsets_without_ids_are_kafkas_lines(path: Path) -> None:
    write_offsets(RealDisk(), path, {TopicPartition("orders", 3): Offset(7)})
    assert path.read_text().splitlines()[:3] == ["0", "1", "orders 3 7"]
    assert read_saved_offsets(RealDisk(), path) == {TopicPartition("orders", 3): SavedOffset(Offset(7), NO_TOPIC_ID)}


def test_a_file_that_kafka_wrote_is_read(path: Path) -> None:
    path.write_text("0\n2\norders 0 5\nlogs 1 6\n")
    assert read_offsets(RealDisk(), path) == {TopicPartition("orders", 0): 5, TopicPartition("logs", 1): 6}


def test_no_offsets_are_no_offsets(path: Path) -> None:
    assert read_offsets(RealDisk(), path) == {}
    write_offsets(RealDisk(), path, {})
    assert path.read_text() == "0\n0\n"
    assert read_offsets(RealDisk(), path) == {}


def test_no_flipped_bit_moves_an_offset(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_saved_offsets(RealDisk(), path, SAVED)
    content = path.read_bytes()
    for bit in range(len(content) * 8):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        found = read_saved_offsets(RealDisk(), path)
        # An id is hex, and a flipped bit may turn a small letter into its capital: the same id.
        assert found in ({}, SAVED)
    assert "offsets is damaged" in caplog.text


def test_a_torn_file_is_taken_as_empty(path: Path) -> None:
    offsets = {at: Offset(saved.offset + 77) for at, saved in SAVED.items()}
    write_offsets(RealDisk(), path, offsets)
    content = path.read_bytes()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        is_whole = content[:size].endswith(b" 77\n")  # only the checksum is missing
        assert read_offsets(RealDisk(), path) == (offsets if is_whole else {})


# Leader epochs


def epochs_of(directory: Path, *entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs(RealDisk(), directory)
    for epoch, start in entries:
        epochs.assign(LeaderEpoch(epoch), Offset(start))
    return epochs


def entries_of(epochs: LeaderEpochs, end: int = 1000) -> list[tuple[int, int]]:
    """Asked as others ask: which epoch was in force at which offset."""
    found: list[tuple[int, int]] = []
    for offset in range(end):
        epoch = epochs.epoch_at(Offset(offset))
        if epoch >= 0 and (not found or found[-1][0] != epoch):
            found.append((epoch, offset))
    return found


def test_an_epoch_is_in_force_from_its_start_to_the_next(tmp_path: Path) -> None:
    epochs = epochs_of(tmp_path, (0, 0), (3, 50), (4, 80))
    assert epochs.latest == 4
    assert [epochs.epoch_at(Offset(offset)) for offset in (0, 49, 50, 79, 80, 900)] == [0, 0, 3, 3, 4, 4]
    assert epochs.end_of(LeaderEpoch(0), Offset(100)) == (0, 50)
    assert epochs.end_of(LeaderEpoch(2), Offset(100)) == (0, 50)
    assert epochs.end_of(LeaderEpoch(3), Offset(100)) == (3, 80)
    assert epochs.end_of(LeaderEpoch(4), Offset(100)) == (4, 100)


def test_of_an_empty_log_no_epoch_is_known(tmp_path: Path) -> None:
    epochs = epochs_of(tmp_path)
    assert epochs.latest == -1
    assert epochs.epoch_at(Offset(5)) == -1
    assert epochs.end_of(LeaderEpoch(3), Offset(100)) == (-1, -1)


def test_an_epoch_that_wrote_nothing_is_replaced_by_the_next(tmp_path: Path) -> None:
    assert entries_of(epochs_of(tmp_path, (0, 0), (1, 50), (2, 50))) == [(0, 0), (2, 50)]


def test_an_older_epoch_is_not_assigned_again(tmp_path: Path) -> None:
    assert entries_of(epochs_of(tmp_path, (5, 0), (4, 50), (5, 60))) == [(5, 0)]


def test_epochs_behind_a_cut_are_forgotten(tmp_path: Path) -> None:
    epochs = epochs_of(tmp_path, (0, 0), (3, 50), (4, 80))
    epochs.truncate_end(Offset(80))
    assert entries_of(epochs) == [(0, 0), (3, 50)]
    epochs.truncate_end(Offset(51))
    assert entries_of(epochs) == [(0, 0), (3, 50)]


@pytest.mark.parametrize(
    ("start", "left"),
    [
        (0, [(0, 0), (3, 50), (4, 80)]),
        (20, [(0, 20), (3, 50), (4, 80)]),
        (50, [(3, 50), (4, 80)]),
        (60, [(3, 60), (4, 80)]),
        (500, [(4, 500)]),
    ],
)
def test_a_log_that_starts_later_keeps_the_epoch_in_force_there(
    tmp_path: Path, start: int, left: list[tuple[int, int]]
) -> None:
    epochs = epochs_of(tmp_path, (0, 0), (3, 50), (4, 80))
    epochs.truncate_start(Offset(start))
    assert entries_of(epochs) == left


def test_epochs_are_written_when_they_changed_and_read_back(tmp_path: Path) -> None:
    epochs = epochs_of(tmp_path, (0, 0), (3, 50))
    content = epochs.pending()
    assert content == b"0\n2\n0 0\n3 50\n"
    assert epochs.pending() is None
    epochs.write(content)
    again = LeaderEpochs(RealDisk(), tmp_path)
    assert again.load()
    assert entries_of(again) == [(0, 0), (3, 50)]
    assert again.pending() is None


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"0\n",
        b"1\n1\n0 0\n",
        b"0\n2\n0 0\n",
        b"0\n1\n0 0\n3 50\n",
        b"0\n2\n3 0\n0 50\n",
        b"0\n2\n0 50\n3 0\n",
        b"0\n1\n0 x\n",
        b"0\n1\n\xc2\xb2 0\n",
        b"\0" * 20,
    ],
)
def test_epochs_that_are_missing_or_damaged_are_not_taken(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / LEADER_EPOCHS).write_bytes(content)
    epochs = LeaderEpochs(RealDisk(), tmp_path)
    assert not epochs.load()
    assert entries_of(epochs) == []
