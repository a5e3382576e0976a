"""Power fails at every effect of a scripted life: what was not synced is gone, torn or there, as chance has it."""

from pathlib import Path

import pytest
from tests.chaos.sweep import Point, count_effects, sweep
from tests.simulation.disk import SECTOR_BYTES, SimulatedDisk

from penstock.disk import Disk


@pytest.mark.timeout(300)
def test_power_that_fails_at_any_effect_takes_nothing_acknowledged() -> None:
    effects = count_effects()
    outcomes = sweep([Point(number, seed=number) for number in range(1, effects + 1)])
    assert [outcome for outcome in outcomes if outcome.trouble is not None] == []
    assert all(outcome.died_at for outcome in outcomes)


# The simulated disk itself: a sweep is worth what its disk takes away.

ROOT = Path("/data")


def disk_with(content: bytes, *, sync: bool, sync_directory: bool) -> SimulatedDisk:
    disk = SimulatedDisk(seed=content[0])
    disk.make_directory(ROOT)
    disk.sync_directory(ROOT.parent)
    file = disk.open(ROOT / "f", create=True)
    file.write_at(0, (content,))
    if sync:
        file.sync()
    if sync_directory:
        disk.sync_directory(ROOT)
    return disk


def content_of(disk: Disk) -> bytes | None:
    return disk.read_file(ROOT / "f") if disk.exists(ROOT / "f") else None


def test_what_was_synced_with_its_directory_is_always_there() -> None:
    for seed in range(50):
        content = bytes([seed]) * 3 * SECTOR_BYTES
        disk = disk_with(content, sync=True, sync_directory=True)
        disk.power_loss()
        assert content_of(disk) == content


def test_a_synced_file_in_a_directory_that_was_not_is_there_or_not() -> None:
    outcomes: set[bool] = set()
    for seed in range(50):
        disk = disk_with(bytes([seed]) * 100, sync=True, sync_directory=False)
        disk.power_loss()
        outcomes.add(content_of(disk) is None)
    assert outcomes == {True, False}


def test_bytes_that_were_not_synced_are_kept_lost_zeroed_and_torn() -> None:
    seen: set[str] = set()
    for seed in range(1, 200):
        content = bytes([seed]) * 4 * SECTOR_BYTES
        disk = disk_with(content, sync=False, sync_directory=True)
        disk.power_loss()
        found = content_of(disk)
        assert found is not None
        assert len(found) <= len(content)
        sectors = {found[at : at + SECTOR_BYTES].strip(b"\0") for at in range(0, len(found), SECTOR_BYTES)}
        assert all(set(sector) <= {seed} for sector in sectors), "a sector is old, new or zero, never something else"
        if found == content:
            seen.add("kept")
        elif not found.strip(b"\0"):
            seen.add("lost")
        elif len(found) % SECTOR_BYTES:
            seen.add("torn")
        elif len(found) == len(content):
            seen.add("holes")
    assert seen == {"kept", "lost", "torn", "holes"}


def test_a_rename_that_was_not_synced_is_done_or_undone_as_a_whole() -> None:
    outcomes: set[tuple[str, ...]] = set()
    for seed in range(50):
        disk = disk_with(bytes([seed]), sync=True, sync_directory=True)
        disk.rename(ROOT / "f", ROOT / "g")
        disk.power_loss()
        outcomes.add(tuple(disk.list_names(ROOT)))
    assert outcomes == {("f",), ("g",)}


def test_the_same_seed_takes_the_same_away() -> None:
    def survivors(seed: int) -> bytes:
        disk = SimulatedDisk(seed)
        disk.make_directory(ROOT)
        file = disk.open(ROOT / "f", create=True)
        file.write_at(0, (bytes(range(256)) * 64,))
        disk.sync_directory(ROOT)
        disk.sync_directory(ROOT.parent)
        disk.power_loss()
        return disk.read_file(ROOT / "f")

    assert survivors(3) == survivors(3)
    assert survivors(3) != survivors(4)
