"""When a segment is old enough for a new one to begin, with the settings that change it."""

from pathlib import Path

from tests.unit.log.making import HOUR, NOW, append, open_at

from penstock.log.partition_log import PartitionLog


def test_a_compacted_log_rolls_when_its_records_must_be_open_to_compaction(tmp_path: Path) -> None:
    settings = {"segment_ms": 24 * HOUR, "max_compaction_lag_ms": HOUR, "cleanup_policy": frozenset({"compact"})}
    log = open_at(tmp_path / "orders-0", **settings)
    append(log, "a", timestamp=NOW)
    append(log, "b", timestamp=NOW + HOUR)
    assert len(log.segments) == 1
    append(log, "c", timestamp=NOW + HOUR + 1)
    assert len(log.segments) == 2


def test_jitter_makes_a_segment_end_earlier_than_its_age_and_always_at_the_same_age(tmp_path: Path) -> None:
    ends: set[int] = set()
    for number in range(2):
        log = open_at(tmp_path / str(number) / "orders-0", segment_ms=1000, segment_jitter_ms=900)
        append(log, "a", timestamp=NOW)
        age = next(age for age in range(1002) if _rolls_at(log, age))
        ends.add(age)
    assert len(ends) == 1
    assert ends.pop() <= 1000


def _rolls_at(log: PartitionLog, age: int) -> bool:
    before = len(log.segments)
    append(log, "b", timestamp=NOW + age)
    return len(log.segments) > before
