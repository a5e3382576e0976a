"""Snapshots and checkpoints, written by the log itself and then damaged."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from typer.testing import CliRunner

from penstock.cli.app import app
from penstock.disk import RealDisk
from penstock.log.aborted import AbortedTransaction, AbortedTransactions, write_aborted
from penstock.log.checkpoints import (
    LEADER_EPOCHS,
    LOG_STARTS,
    RECOVERY_POINTS,
    LeaderEpochs,
    SavedOffset,
    write_saved_offsets,
)
from penstock.log.producers import Producers
from penstock.model import LeaderEpoch, Offset, TopicPartition
from penstock.records.batch import read_header, stamp
from penstock.records.markers import ControlType, Marker, encode_marker
from penstock.records.record import Record, encode_batch

TOPIC_ID = UUID(int=5, version=4)


def dump(path: Path) -> tuple[list[dict[str, Any]], list[tuple[int | None, str]]]:
    """Entries and problems."""
    result = CliRunner().invoke(app, ["log", "dump", str(path), "--json"])
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    problems = [(line["at_byte"], line["what"]) for line in lines if line["kind"] == "problem"]
    assert result.exit_code == (1 if problems else 0), result.output
    return [line for line in lines if line["kind"] == "entry"], problems


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    producers = Producers()
    record = Record(0, 1000, b"k", b"v")
    header = read_header(encode_batch([record], producer_id=77, producer_epoch=2, base_sequence=4))
    producers.record(header, Offset(10), 5000)
    path = tmp_path / "00000000000000000011.snapshot"
    path.write_bytes(producers.encode())
    return path


def test_a_snapshot_shows_its_producers(snapshot: Path) -> None:
    ((entry,), problems) = dump(snapshot)
    assert problems == []
    assert (entry["producer_id"], entry["producer_epoch"], entry["last_sequence"], entry["last_offset"]) == (
        77,
        2,
        4,
        10,
    )


def test_a_damaged_snapshot_says_how(snapshot: Path) -> None:
    content = bytearray(snapshot.read_bytes())
    snapshot.write_bytes(content[:4])
    assert dump(snapshot)[1] == [(0, "torn: 4 bytes, the head alone takes 14")]
    content[-1] ^= 1
    snapshot.write_bytes(content)
    assert dump(snapshot)[1] == [(2, "bad CRC: the snapshot is torn or damaged")]
    content[:2] = b"\x00\x09"
    snapshot.write_bytes(content)
    assert dump(snapshot)[1] == [(0, "version 9, where 2 is known")]


@pytest.mark.parametrize("name", [RECOVERY_POINTS, LOG_STARTS])
def test_offset_checkpoints_are_shown_and_a_flipped_digit_is_seen(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_saved_offsets(RealDisk(), path, {TopicPartition("t", 3): SavedOffset(Offset(42), TOPIC_ID)})
    (entries, problems) = dump(path)
    assert problems == []
    assert [(entry["topic"], entry["partition"], entry["offset"], entry["topic_id"]) for entry in entries] == [
        ("t", 3, 42, str(TOPIC_ID))
    ]
    path.write_text(path.read_text().replace(" 42 ", " 43 "))
    (entries, problems) = dump(path)
    assert entries == []
    assert "damaged" in problems[0][1]


def test_an_empty_offset_checkpoint_is_all_right(tmp_path: Path) -> None:
    path = tmp_path / RECOVERY_POINTS
    write_saved_offsets(RealDisk(), path, {})
    assert dump(path) == ([], [])


def test_leader_epochs_are_shown_and_must_grow(tmp_path: Path) -> None:
    epochs = LeaderEpochs(RealDisk(), tmp_path)
    epochs.assign(LeaderEpoch(0), Offset(0))
    epochs.assign(LeaderEpoch(4), Offset(100))
    content = epochs.pending()
    assert content is not None
    path = tmp_path / LEADER_EPOCHS
    path.write_bytes(content)
    (entries, problems) = dump(path)
    assert problems == []
    assert [(entry["leader_epoch"], entry["start_offset"]) for entry in entries] == [(0, 0), (4, 100)]
    path.write_text("0\n2\n4 0\n3 100\n")
    assert dump(path)[1] == [(None, "line 4: epoch 3 at offset 100 does not grow")]
    path.write_text("0\n5\n4 0\n")
    assert "number of lines" in dump(path)[1][0][1]
    path.write_text("0\n1\nfour 0\n")
    assert "line 3" in dump(path)[1][0][1]


def test_a_whole_data_directory_of_a_broker_is_read_without_complaint(tmp_path: Path) -> None:
    from confluent_kafka import Producer

    from penstock.testing import EmbeddedBroker

    with EmbeddedBroker(tmp_path / "data") as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        for number in range(2000):
            producer.produce("orders", str(number).encode() * 20, key=str(number % 7).encode())
            if number % 100 == 0:
                producer.flush(10)
        assert producer.flush(10) == 0
    result = CliRunner().invoke(app, ["log", "dump", str(tmp_path / "data"), "--deep", "--json"])
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line for line in lines if line["kind"] == "problem"] == []
    assert result.exit_code == 0
    kinds = {Path(line["file"]).name.partition(".")[2] or Path(line["file"]).name for line in lines if "file" in line}
    assert {"log", "index", "timeindex", "snapshot", "leader-epoch-checkpoint", "json"} <= kinds
    batches = [line for line in lines if line["kind"] == "batch"]
    assert sum(line["records"] for line in batches) == 2000
    assert all(line["producer_id"] >= 0 for line in batches)


def write_partition_with_an_abort(directory: Path) -> Path:
    """A segment with a batch of one transaction and its abort marker, and the file that says so."""
    batch = encode_batch([Record(0, 1000, b"k", b"v")], producer_id=77, producer_epoch=2, is_transactional=True)
    marker = encode_marker(Marker(ControlType.ABORT, 0), offset=1, timestamp=1001, producer_id=77, producer_epoch=2)
    stamp(marker, Offset(1), LeaderEpoch(0))
    (directory / "00000000000000000000.log").write_bytes(bytes(batch) + bytes(marker))
    aborted = AbortedTransactions()
    aborted.append(AbortedTransaction(77, 0, 1, 2))
    write_aborted(RealDisk(), directory, aborted.prepare_saving([0]).parts)
    return directory / "00000000000000000000.txnindex"


def test_aborted_transactions_are_shown_and_compared_with_their_segment(tmp_path: Path) -> None:
    path = write_partition_with_an_abort(tmp_path)
    ((entry,), problems) = dump(path)
    assert problems == []
    assert (entry["producer_id"], entry["first_offset"], entry["last_offset"], entry["last_stable_offset"]) == (
        77,
        0,
        1,
        2,
    )
    content = bytearray(path.read_bytes())
    path.write_bytes(content + content)
    assert dump(path)[1] == [(34, "entry 1 (offsets 0 to 1) does not grow")]
    path.write_bytes(content[:-1])
    assert dump(path)[1] == [(0, "torn: 33 bytes follow the last whole entry")]
    content[25] = 9
    path.write_bytes(content)
    assert dump(path)[1] == [(0, "entry 0 says a marker is at offset 9, where no batch ends")]
    content[1] = 7
    path.write_bytes(content)
    assert dump(path)[1] == [(0, "entry 0 has version 7, where 0 is known")]


def test_a_file_of_aborted_transactions_without_a_segment_is_noticed(tmp_path: Path) -> None:
    path = write_partition_with_an_abort(tmp_path)
    path.with_suffix(".log").unlink()
    assert dump(path)[1] == [(None, "there is no segment beside this index")]


def test_a_snapshot_says_where_a_transaction_is_open(tmp_path: Path) -> None:
    producers = Producers()
    header = read_header(
        encode_batch([Record(0, 1000, b"k", b"v")], producer_id=7, producer_epoch=0, is_transactional=True)
    )
    producers.record(header, Offset(10), 5000)
    path = tmp_path / "00000000000000000011.snapshot"
    path.write_bytes(producers.encode())
    ((entry,), _) = dump(path)
    assert (entry["open_transaction_from"], entry["open_since_ms"]) == (10, 5000)
