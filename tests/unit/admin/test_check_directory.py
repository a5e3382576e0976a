"""A data directory looked at from outside."""

import fcntl
import os
from pathlib import Path

import pytest

from penstock.admin import check_directory as room
from penstock.admin.check_directory import check_directory, check_space, lock_holder
from penstock.admin.finding import Report
from penstock.cluster.open_store import METADATA_FILE
from penstock.testing import EmbeddedBroker


def look(directory: Path) -> tuple[Report, int | None]:
    report = Report()
    holder = check_directory(directory, report)
    return report, holder


def whats(report: Report) -> list[str]:
    return [finding.what for finding in report.findings]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """What a broker leaves that was stopped cleanly, with one log."""
    with EmbeddedBroker(tmp_path) as broker:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("orders", b"one")
        assert producer.flush(10) == 0
    return tmp_path


def test_the_name_of_the_metadata_file_is_the_brokers() -> None:
    assert room.METADATA_FILE == METADATA_FILE


def test_a_running_broker_has_its_directory(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path):
        report, holder = look(tmp_path)
        assert holder == os.getpid()
        assert report.findings == []
        assert any("has" in line for line in report.sound)
        # Looking must not have taken the lock away from anybody.
        assert lock_holder(tmp_path / ".lock") == os.getpid()


def test_a_clean_stop_is_told_from_a_crash(data: Path) -> None:
    report, holder = look(data)
    assert holder is None
    assert report.findings == []
    assert any("clean stop" in line for line in report.sound)
    (data / "clean-stop.json").unlink()
    report, _ = look(data)
    assert report.findings == []
    assert "no clean stop left it" in report.notes[0]


def test_a_lock_file_of_a_dead_process_holds_nothing(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    assert lock_holder(lock) is None
    lock.write_text("pid 4194304000\n")
    assert lock_holder(lock) is None


def test_a_reused_process_number_is_not_taken_for_the_holder(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    lock.write_text(f"pid {os.getpid()}\n")
    assert lock_holder(lock) is None
    with lock.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert lock_holder(lock) == os.getpid()


def test_what_a_recovery_cut_off_is_found(data: Path) -> None:
    (data / "orders-0" / "00000000000000000000.log.70.torn").write_bytes(b"x" * 2048)
    (found,) = whats(look(data)[0])
    assert "orders-0: a recovery cut 2.0 KiB off" in found


def test_logs_without_metadata_are_noted(data: Path) -> None:
    (data / METADATA_FILE).unlink()
    report, _ = look(data)
    assert report.findings == []
    assert any(METADATA_FILE in note for note in report.notes)


def test_what_was_set_aside_is_noted(data: Path) -> None:
    (data / "old-0.0123-stray").mkdir()
    (data / "orders-0.4567-damaged").mkdir()
    report, _ = look(data)
    assert report.findings == []
    assert any("old-0.0123-stray" in note for note in report.notes)
    assert any("orders-0.4567-damaged" in note for note in report.notes)


def test_a_directory_that_is_not_there_is_found(tmp_path: Path) -> None:
    (found,) = whats(look(tmp_path / "nowhere")[0])
    assert "there is no directory" in found


def test_little_room_is_found_in_bytes_and_in_parts() -> None:
    gib = 1 << 30
    for free, total, is_little in [
        (gib - 1, 2 * gib, True),
        (4 * gib, 100 * gib, True),
        (6 * gib, 100 * gib, False),
        (2 * gib, 10 * gib, False),
    ]:
        report = Report()
        check_space("disk", free, total, report)
        assert bool(report.findings) is is_little
