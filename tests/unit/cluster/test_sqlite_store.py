"""What is particular to the store in a file: opening, refusing, failing disks, other processes."""

import asyncio
import contextlib
import fcntl
import os
import resource
import shutil
import sqlite3
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cluster import sqlite_file, sqlite_place
from penstock.cluster.sqlite_place import Machine, network_file_system, this_machine
from penstock.cluster.sqlite_store import open_sqlite_store
from penstock.cluster.store import Ambiguous, Change, Compacted, Put, StoreUnusable, Unavailable


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Frees the metadata thread at the end, whatever became of the test."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.db"


async def until_asleep(store) -> None:
    """Return when a watch just started has found nothing: the first read lets it ask, the second comes after that."""
    await store.get("/a")
    await store.get("/a")


async def test_what_was_acknowledged_is_there_after_reopening(path):
    store = await open_sqlite_store(path)
    written = await store.txn([], [Put("/a", b"1")])
    await store.close()
    store = await open_sqlite_store(path)
    assert (await store.get("/a")).mod_revision == written.revision
    assert (await store.range("")).revision == written.revision
    await store.close()


async def test_the_file_is_for_its_owner_only_even_if_it_was_not_before(path):
    path.touch(mode=0o644)
    store = await open_sqlite_store(path)
    await store.txn([], [Put("/a", b"secret")])
    modes = {name: stat.S_IMODE(os.stat(path.parent / name).st_mode) for name in os.listdir(path.parent)}
    await store.close()
    assert set(modes.values()) == {0o600}, modes


async def test_a_commit_is_synced_before_it_is_reported_except_a_renewal(path):
    store = await open_sqlite_store(path)
    seen: list[tuple[str, int]] = []

    def trace() -> None:
        store._file._db.set_trace_callback(
            lambda sql: (
                seen.append((sql, store._file._db.execute("PRAGMA synchronous").fetchone()[0]))
                if sql == "COMMIT" and not seen
                else None
            )
        )

    await store._run(trace)
    await store.txn([], [Put("/a", b"1")])
    assert seen == [("COMMIT", 2)]
    lease = await store.lease(10)
    seen.clear()
    await lease.renew()
    assert seen == [("COMMIT", 1)]
    seen.clear()
    await store.txn([], [Put("/a", b"2")])
    assert seen == [("COMMIT", 2)]
    await store.close()


async def test_all_sql_runs_on_the_thread_named_for_it(path):
    store = await open_sqlite_store(path)
    assert (await store._run(lambda: threading.current_thread().name)).startswith("penstock-metadata")
    await store.close()


async def test_a_commit_wakes_the_watchers_of_its_own_process_without_any_polling(path):
    store = await open_sqlite_store(path, poll_s=3600)
    await store.txn([], [Put("/a", b"1")])
    watch = store.watch("/", 1)
    await anext(watch)
    for number in range(3):
        waiting = asyncio.ensure_future(anext(watch))
        await until_asleep(store)
        result = await store.txn([], [Put("/a", b"%d" % number)])
        assert (await asyncio.wait_for(waiting, 10)).number == result.revision
    await store.close()


async def test_two_brokers_may_create_the_file_at_the_same_moment(path):
    stores = await asyncio.gather(*(open_sqlite_store(path) for _ in range(4)))
    await asyncio.gather(*(store.txn([], [Put(f"/{n}", b"")]) for n, store in enumerate(stores)))
    assert len((await stores[0].range("/")).items) == 4
    for store in stores:
        await store.close()


async def test_a_damaged_file_is_refused(path):
    store = await open_sqlite_store(path)
    for start in range(0, 500, 100):
        await store.txn([], [Put(f"/{n:04}", bytes(100)) for n in range(start, start + 100)])
    await store.close()
    with path.open("r+b") as file:
        file.seek(10 * 4096)
        file.write(b"\xff" * 2000)
    with pytest.raises(StoreUnusable, match=r"metadata\.db"):
        await open_sqlite_store(path)


async def test_a_file_that_is_no_database_is_refused(path):
    path.write_bytes(b"key = value\n" * 1000)
    with pytest.raises(StoreUnusable, match="not a database"):
        await open_sqlite_store(path)


async def test_a_file_of_a_newer_version_is_refused_with_advice(path):
    await (await open_sqlite_store(path)).close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE meta SET value = 99 WHERE name = 'schema'")
    db.close()
    with pytest.raises(StoreUnusable, match=r"newer penstock.*schema 99"):
        await open_sqlite_store(path)


def test_network_file_systems_are_known_by_their_mount():
    mounts = (
        "22 1 253:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        "91 22 0:48 / /mnt/home\\040nfs rw,relatime shared:9 - nfs4 server:/home rw,vers=4.2\n"
        "92 22 0:49 / /mnt/share rw - cifs //server/share rw\n"
        "93 22 0:51 / /mnt/bucket rw - fuse.s3fs s3fs rw\n"
        "94 22 0:52 / /mnt/host rw - 9p hostshare rw\n"
        "95 22 8:17 / /mnt/stick rw - fuseblk /dev/sdb1 rw\n"
    )
    assert network_file_system(mounts, os.makedev(0, 48)) == "nfs4"
    assert network_file_system(mounts, os.makedev(0, 49)) == "cifs"
    assert network_file_system(mounts, os.makedev(0, 51)) == "fuse.s3fs"
    assert network_file_system(mounts, os.makedev(0, 52)) == "9p"
    assert network_file_system(mounts, os.makedev(8, 17)) is None
    assert network_file_system(mounts, os.makedev(253, 0)) is None
    assert network_file_system(mounts, os.makedev(0, 50)) is None


async def test_a_network_file_system_is_refused(path, monkeypatch):
    monkeypatch.setattr(sqlite_place, "network_file_system", lambda mounts, device: "nfs4")
    with pytest.raises(StoreUnusable, match="network file system"):
        await open_sqlite_store(path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one mebibyte."""
    where = tmp_path / "small"
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(where)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("this user may not mount a small file system")
    yield where
    subprocess.run(["umount", str(where)], check=True)


async def test_a_full_disk_refuses_the_write_and_the_store_goes_on_when_there_is_room(small_disk):
    store = await open_sqlite_store(small_disk / "metadata.db")
    await store.txn([], [Put("/a", b"1")])
    filler = small_disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    with pytest.raises(Unavailable, match="full"):
        await store.txn([], [Put("/a", b"2"), Put("/b", bytes(100_000))])
    assert (await store.get("/a")).value == b"1"
    filler.unlink()
    assert (await store.txn([], [Put("/b", bytes(100_000))])).ok
    await store.close()


async def test_a_file_that_may_not_grow_refuses_the_write(store):
    await store.txn([], [Put("/a", b"1")])
    await store._run(store._file._db.execute, "PRAGMA max_page_count = 1")
    with pytest.raises(Unavailable, match="full"):
        await store.txn([], [Put("/a", b"2"), Put("/b", bytes(100_000))])
    assert (await store.get("/a")).value == b"1"


async def test_a_commit_that_failed_on_the_disk_is_ambiguous_and_nothing_is_written_after_it(path):
    store = await open_sqlite_store(path)
    await store.txn([], [Put("/a", b"1")])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.stat(f"{path}-wal").st_size + 5000, hard))
    try:
        with pytest.raises(Ambiguous):
            await store.txn([], [Put("/a", b"2"), Put("/b", bytes(100_000))])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(Unavailable, match="restart this broker"):
        await store.txn([], [Put("/a", b"3")])
    await store.close()
    store = await open_sqlite_store(path)
    assert (await store.get("/a")).value == b"1"
    await store.close()


async def test_a_failing_file_ends_its_watches(path):
    store = await open_sqlite_store(path, poll_s=0.01)
    await store.txn([], [Put("/a", b"1")])
    watch = store.watch("/", 1)
    await anext(watch)
    waiting = asyncio.ensure_future(anext(watch))
    await until_asleep(store)
    store._file._failed = "the disk is gone"
    with pytest.raises(Unavailable, match="the disk is gone"):
        await asyncio.wait_for(waiting, 10)
    await store.close()


async def test_a_process_stopped_with_the_lock_in_its_hand_does_not_stop_the_others(store, path, monkeypatch):
    monkeypatch.setattr(sqlite_file, "LOCK_WAIT_S", 0.05)
    holder = os.open(f"{path}.lock", os.O_RDWR)
    fcntl.flock(holder, fcntl.LOCK_EX)
    with pytest.raises(Unavailable, match="another process held"):
        await store.txn([], [Put("/a", b"1")])
    assert await store.get("/a") is None
    os.close(holder)
    assert (await store.txn([], [Put("/a", b"1")])).ok


async def test_a_writer_that_does_not_use_our_lock_is_waited_for(store, path):
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    writing = asyncio.ensure_future(store.txn([], [Put("/a", b"1")]))
    other.execute("COMMIT")
    other.close()
    assert (await asyncio.wait_for(writing, 10)).ok


async def test_an_operation_past_its_deadline_says_whether_it_may_have_happened(path, release):
    store = await open_sqlite_store(path, deadline_s=0.1, poll_s=60)
    running = asyncio.ensure_future(store._run(release.wait))
    queued = asyncio.ensure_future(store.txn([], [Put("/queued", b"")]))
    with pytest.raises(Ambiguous):
        await running
    with pytest.raises(Unavailable, match="busy"):
        await queued
    release.set()
    assert await store.get("/queued") is None
    await store.close()


async def test_more_operations_than_the_bound_are_refused_not_queued(path, release, monkeypatch):
    monkeypatch.setattr("penstock.cluster.sqlite_store.OPERATIONS_WAITING_MAX", 2)
    store = await open_sqlite_store(path, poll_s=60)
    running = [asyncio.ensure_future(store._run(release.wait)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="2 metadata operations"):
        await store.get("/a")
    release.set()
    await asyncio.gather(*running)
    assert await store.get("/a") is None
    await store.close()


async def test_leases_end_with_the_boot_they_were_given_in(path, boot_time):
    store = await open_sqlite_store(path, boot_time=boot_time)
    lease = await store.lease(10)
    written = await store.txn([], [Put("/l", b"", lease.id)])
    await store.close()
    boot_time.boot_id = "second boot"
    boot_time.milliseconds = 5_000
    store = await open_sqlite_store(path, boot_time=boot_time, poll_s=0.01)
    ended = await asyncio.wait_for(anext(store.watch("/", written.revision + 1)), 10)
    assert ended.changes == (Change("/l", None),)
    await store.close()


async def test_a_lease_survives_the_process_that_took_it_until_its_time_is_over(path, boot_time):
    store = await open_sqlite_store(path, boot_time=boot_time)
    lease = await store.lease(10)
    await store.txn([], [Put("/l", b"", lease.id)])
    await store.close()
    boot_time.advance(5)
    store = await open_sqlite_store(path, boot_time=boot_time)
    await store.txn([], [])
    assert (await store.get("/l")).lease == lease.id
    await store.close()


async def test_a_lease_id_is_never_given_twice(store):
    first = await store.lease(10)
    await first.revoke()
    assert (await store.lease(10)).id != first.id


async def test_history_is_forgotten_by_count_and_what_is_kept_can_be_watched(path, monkeypatch):
    monkeypatch.setattr(sqlite_file, "COMPACT_EVERY_CHANGES", 10)
    store = await open_sqlite_store(path, history_changes_max=20)
    for number in range(100):
        await store.txn([], [Put("/a", b"%d" % number), Put("/b", b"%d" % number)])
    last = (await store.range("")).revision
    with pytest.raises(Compacted) as caught:
        await anext(store.watch("/", 1))
    assert last - 20 <= caught.value.revision <= last - 10
    kept = await anext(store.watch("/", caught.value.revision + 1))
    assert kept.number == caught.value.revision + 1
    assert len(kept.changes) == 2
    await store.close()


class OtherBoot:
    """The clock of another kernel: of this machine after a reboot, or of another machine."""

    def __init__(self, boot_id: str = "other boot") -> None:
        self.boot_id = boot_id

    def now_ms(self) -> int:
        return 1


HERE = Machine("a" * 32, "here")
THERE = Machine("b" * 32, "there")
UNKNOWN = Machine("", "container")


async def test_a_file_in_use_on_another_machine_is_refused_and_its_leases_live(path, boot_time):
    here = await open_sqlite_store(path, boot_time=boot_time, machine=HERE)
    lease = await here.lease(10)
    await here.txn([], [Put("/l", b"", lease.id)])
    with pytest.raises(StoreUnusable, match=r"on the machine 'here'.*use etcd"):
        await open_sqlite_store(path, boot_time=OtherBoot(), machine=THERE)
    await lease.renew()
    assert (await here.get("/l")).lease == lease.id
    await here.close()


async def test_of_two_machines_that_opened_a_file_together_one_gets_a_lease(path, boot_time):
    here = await open_sqlite_store(path, boot_time=boot_time, machine=HERE)
    there = await open_sqlite_store(path, boot_time=OtherBoot(), machine=THERE)
    lease = await here.lease(10)
    await here.txn([], [Put("/l", b"", lease.id)])
    with pytest.raises(StoreUnusable, match="on the machine 'here'"):
        await there.lease(10)
    await there.txn([], [Put("/other", b"")])
    assert (await here.get("/l")).lease == lease.id, "a clock that means nothing here must not end it"
    await there.close()
    await here.close()


async def test_a_file_whose_brokers_stopped_cleanly_may_move_to_another_machine(path, boot_time):
    here = await open_sqlite_store(path, boot_time=boot_time, machine=HERE)
    await (await here.lease(10)).revoke()
    await here.close()
    there = await open_sqlite_store(path, boot_time=OtherBoot(), machine=THERE)
    await there.lease(10)
    await there.close()
    with pytest.raises(StoreUnusable, match="on the machine 'there'"):
        await open_sqlite_store(path, boot_time=boot_time, machine=HERE)


@pytest.mark.parametrize(("before", "after"), [(HERE, HERE), (UNKNOWN, UNKNOWN), (UNKNOWN, HERE), (HERE, UNKNOWN)])
async def test_leases_of_an_earlier_boot_end_where_no_other_machine_is_known_of(path, boot_time, before, after):
    store = await open_sqlite_store(path, boot_time=boot_time, machine=before)
    lease = await store.lease(10)
    await store.txn([], [Put("/l", b"", lease.id)])
    await store.close()
    store = await open_sqlite_store(path, boot_time=OtherBoot(), machine=after, poll_s=60)
    await store.txn([], [])
    assert await store.get("/l") is None
    await store.lease(10)
    await store.close()


async def test_what_the_refusal_advises_frees_the_file_of_a_machine_that_is_gone(path, boot_time):
    here = await open_sqlite_store(path, boot_time=boot_time, machine=HERE)
    await here.lease(10)
    await here.close()
    with pytest.raises(StoreUnusable) as caught:
        await open_sqlite_store(path, boot_time=OtherBoot(), machine=THERE)
    with sqlite3.connect(path) as db:
        db.execute(str(caught.value).partition('"')[2].rstrip('"'))
    db.close()
    await (await open_sqlite_store(path, boot_time=OtherBoot(), machine=THERE)).close()


def test_a_machine_is_known_by_its_id_and_not_shown_with_it(tmp_path):
    told = tmp_path / "machine-id"
    assert this_machine(told).id == ""
    told.write_text("\n")
    assert this_machine(told).id == ""
    told.write_text("0123456789abcdef0123456789abcdef\n")
    first = this_machine(told)
    assert len(first.id) == 32
    assert first.id not in told.read_text()
    told.write_text("0123456789abcdef0123456789abcdee\n")
    assert this_machine(told).id != first.id


async def test_a_file_of_the_first_version_is_brought_up_to_date(path, boot_time):
    store = await open_sqlite_store(path, boot_time=boot_time)
    lease = await store.lease(10)
    await store.txn([], [Put("/l", b"1", lease.id)])
    await store.close()
    with sqlite3.connect(path) as db:
        db.execute("ALTER TABLE leases DROP COLUMN machine")
        db.execute("ALTER TABLE leases DROP COLUMN machine_name")
        db.execute("UPDATE meta SET value = 1 WHERE name = 'schema'")
    db.close()
    store = await open_sqlite_store(path, boot_time=boot_time, machine=HERE)
    assert (await store.get("/l")).lease == lease.id
    await store.renew(lease.id)
    await store.lease(10)
    await store.close()
