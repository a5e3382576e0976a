"""What every metadata store must do. One suite for all backends, SQLite and a real etcd: a new one adds a Backend."""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from penstock.cluster import etcd_store
from penstock.cluster.open_store import open_store
from penstock.cluster.sqlite_store import SqliteStore, open_sqlite_store
from penstock.cluster.store import (
    TXN_BYTES_MAX,
    TXN_OPERATIONS_MAX,
    Change,
    Compacted,
    Compare,
    Delete,
    Get,
    Lease,
    LeaseLost,
    MetadataStore,
    Put,
    Revision,
    Target,
    Unavailable,
    created_at,
    keep_alive,
    modified_at,
)
from penstock.testing.etcd import EtcdCluster, encoded, etcd_binary

WORKER = Path(__file__).with_name("store_worker.py")


class Backend(Protocol):
    """Opens any number of independent clients on one store, and controls what a test may not wait for."""

    url: str
    lease_s: float

    async def open(self) -> MetadataStore: ...
    async def pass_time(self, seconds: float) -> None: ...
    async def expire(self, lease: Lease) -> None: ...
    async def compact(self, revision: int) -> None: ...
    async def close(self) -> None: ...


class SqliteBackend:
    lease_s = 10.0

    def __init__(self, directory: Path, boot_time: Any) -> None:
        self._path = directory / "metadata.db"
        self.url = f"sqlite:{self._path}"
        self._time = boot_time
        self._opened: list[SqliteStore] = []

    async def open(self) -> MetadataStore:
        store = await open_sqlite_store(self._path, poll_s=0.01, boot_time=self._time)
        self._opened.append(store)
        return store

    async def pass_time(self, seconds: float) -> None:
        self._time.advance(seconds)

    async def expire(self, lease: Lease) -> None:
        self._time.advance(lease.ttl_s + 0.1)

    async def compact(self, revision: int) -> None:
        await self._opened[0].compact(revision)

    async def close(self) -> None:
        for store in self._opened:
            await store.close()


class EtcdBackend:
    # The shortest that leaves a renewal some room.
    lease_s = 2.0

    def __init__(self, etcd: EtcdCluster) -> None:
        self._etcd = etcd
        self.url = etcd.url
        self._opened: list[Any] = []
        everything = {"key": encoded(b"\0"), "range_end": encoded(b"\0")}
        etcd.ask(0, "kv/deleterange", everything)

    async def open(self) -> MetadataStore:
        store = await open_store(self.url, Path())
        self._opened.append(store)
        return store

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def expire(self, lease: Lease) -> None:
        def ask_until_gone() -> None:
            # Zeros are left out of its JSON: one that has half a second left has no TTL there.
            while self._etcd.ask(0, "lease/timetolive", {"ID": lease.id}).get("TTL") != "-1":
                time.sleep(0.05)

        await asyncio.to_thread(ask_until_gone)

    async def compact(self, revision: int) -> None:
        await self._opened[0].compact(revision)

    async def close(self) -> None:
        for store in self._opened:
            await store.close()


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    if etcd_binary() is None:
        pytest.skip("no etcd on this machine (Debian: apt-get install etcd-server)")
    with EtcdCluster(tmp_path_factory.mktemp("etcd"), members=1) as cluster:
        yield cluster


@pytest.fixture(params=["sqlite", "etcd"])
async def store_factory(request: pytest.FixtureRequest, tmp_path: Path, boot_time: Any) -> AsyncIterator[Backend]:
    if request.param == "sqlite":
        backend = SqliteBackend(tmp_path, boot_time)
    else:
        backend = EtcdBackend(request.getfixturevalue("etcd"))
    yield backend
    await backend.close()


@pytest.fixture
async def client(store_factory: Backend) -> MetadataStore:
    return await store_factory.open()


async def take(watch: AsyncIterator[Revision], count: int) -> list[Revision]:
    taken: list[Revision] = []
    async with asyncio.timeout(20):
        async for revision in watch:
            taken.append(revision)
            if len(taken) == count:
                break
    return taken


async def start_worker(backend: Backend, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, str(WORKER), backend.url, *arguments, stdout=asyncio.subprocess.PIPE
    )


async def finish(*workers: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(60):
        assert [await worker.wait() for worker in workers] == [0] * len(workers)


async def test_a_key_that_was_never_written_is_none(client):
    assert await client.get("/a") is None


async def test_a_put_key_is_read_back_with_its_revisions(client):
    first = await client.txn([], [Put("/a", b"1")])
    second = await client.txn([], [Put("/a", b"2")])
    item = await client.get("/a")
    assert (item.key, item.value, item.version, item.lease) == ("/a", b"2", 2, 0)
    assert (item.create_revision, item.mod_revision) == (first.revision, second.revision)
    assert second.revision == first.revision + 1


async def test_a_deleted_and_recreated_key_starts_its_life_anew(client):
    await client.txn([], [Put("/a", b"1")])
    await client.txn([], [Delete("/a")])
    assert await client.get("/a") is None
    third = await client.txn([], [Put("/a", b"1")])
    item = await client.get("/a")
    assert (item.create_revision, item.mod_revision, item.version) == (third.revision, third.revision, 1)


async def test_a_transaction_makes_one_revision_however_much_it_changes(client):
    before = (await client.range("")).revision
    result = await client.txn([], [Put("/a", b"1"), Put("/b", b"1"), Put("/c", b"1")])
    assert result.revision == before + 1
    assert {item.mod_revision for item in (await client.range("/")).items} == {result.revision}


async def test_a_transaction_that_changes_nothing_makes_no_revision(client):
    before = (await client.txn([], [Put("/a", b"1")])).revision
    assert (await client.txn([], [Get("/a")])).revision == before
    assert (await client.txn([], [Delete("/missing")])).revision == before
    assert (await client.txn([created_at("/a", 0)], [Put("/a", b"2")])).revision == before
    assert (await client.range("")).revision == before


async def test_reads_inside_a_transaction_see_its_own_earlier_writes(client):
    result = await client.txn([], [Get("/a"), Put("/a", b"1"), Get("/a")])
    assert result.reads[0] is None
    assert result.reads[1].value == b"1"


async def test_a_failed_comparison_runs_the_other_branch_only(client):
    await client.txn([], [Put("/a", b"1")])
    result = await client.txn(
        [created_at("/b", 0), created_at("/a", 0)], [Put("/b", b"1")], [Get("/a"), Put("/c", b"1")]
    )
    assert not result.ok
    assert result.reads[0].value == b"1"
    assert await client.get("/b") is None
    assert (await client.get("/c")).value == b"1"


@pytest.mark.parametrize("target", [Target.CREATE_REVISION, Target.MOD_REVISION, Target.VERSION])
async def test_the_numbers_of_a_missing_key_are_zero(client, target):
    assert (await client.txn([Compare("/missing", target, 0)], [])).ok
    assert not (await client.txn([Compare("/missing", target, 1)], [])).ok
    assert not (await client.txn([Compare("/missing", target, 0, "!=")], [])).ok


async def test_a_key_is_compared_by_creation_modification_version_and_value(client):
    created = (await client.txn([], [Put("/a", b"1")])).revision
    modified = (await client.txn([], [Put("/a", b"2")])).revision
    right = {
        Target.CREATE_REVISION: created,
        Target.MOD_REVISION: modified,
        Target.VERSION: 2,
        Target.VALUE: b"2",
    }
    wrong = {Target.CREATE_REVISION: modified, Target.MOD_REVISION: created, Target.VERSION: 1, Target.VALUE: b"1"}
    for target in Target:
        assert (await client.txn([Compare("/a", target, right[target])], [])).ok
        assert not (await client.txn([Compare("/a", target, wrong[target])], [])).ok
        assert (await client.txn([Compare("/a", target, wrong[target], "!=")], [])).ok
        assert not (await client.txn([Compare("/a", target, right[target], "!=")], [])).ok


async def test_the_value_of_a_missing_key_equals_nothing_and_differs_from_nothing(client):
    assert not (await client.txn([Compare("/missing", Target.VALUE, b"")], [])).ok
    assert not (await client.txn([Compare("/missing", Target.VALUE, b"", "!=")], [])).ok


async def test_a_range_is_the_prefix_in_order_and_nothing_else(client):
    await client.txn([], [Put(key, b"x") for key in ("/b/2", "/b/10", "/b/", "/b", "/c", "/a/9", "/b/ü", "/b0")])
    found = await client.range("/b/")
    assert [item.key for item in found.items] == ["/b/", "/b/10", "/b/2", "/b/ü"]


@pytest.mark.parametrize("where", ["compare", "then", "orelse"])
async def test_a_transaction_past_the_limit_is_a_bug_of_the_caller(client, where):
    def parts(count: int) -> dict[str, list]:
        made: dict[str, list] = {"compare": [], "then": [], "orelse": []}
        made[where] = [created_at(f"/{n}", 0) if where == "compare" else Put(f"/{n}", b"") for n in range(count)]
        return made

    await client.txn(**parts(TXN_OPERATIONS_MAX))
    with pytest.raises(AssertionError, match="129 operations"):
        await client.txn(**parts(TXN_OPERATIONS_MAX + 1))


async def test_a_transaction_may_not_write_a_key_twice(client):
    with pytest.raises(AssertionError, match="only once"):
        await client.txn([], [Put("/a", b"1"), Delete("/a")])
    assert await client.get("/a") is None


async def test_a_transaction_too_large_for_any_backend_is_a_bug_of_the_caller(client):
    with pytest.raises(AssertionError, match="bytes in a transaction"):
        await client.txn([], [Put("/a", bytes(1_500_001))])


async def test_the_largest_transaction_allowed_is_taken(client):
    share = TXN_BYTES_MAX // TXN_OPERATIONS_MAX - 10
    assert (await client.txn([], [Put(f"/a/{number:03}", bytes(share)) for number in range(TXN_OPERATIONS_MAX)])).ok
    assert (await client.txn([], [Put("/a/000", bytes(TXN_BYTES_MAX - 10))])).ok
    assert len((await client.get("/a/000")).value) == TXN_BYTES_MAX - 10


async def test_a_watch_delivers_whole_revisions_in_order_from_the_one_asked_for(client):
    await client.txn([], [Put("/w/a", b"0")])
    second = await client.txn([], [Put("/w/a", b"1"), Put("/w/b", b"1"), Put("/x", b"1")])
    third = await client.txn([], [Delete("/w/a"), Put("/w/c", b"2")])
    await client.txn([], [Put("/x", b"2")])
    fifth = await client.txn([], [Put("/w/b", b"3")])
    seen = await take(client.watch("/w/", second.revision), 3)
    assert [revision.number for revision in seen] == [second.revision, third.revision, fifth.revision]
    assert [change.key for change in seen[0].changes] == ["/w/a", "/w/b"]
    assert seen[1].changes[0] == Change("/w/a", None)
    assert seen[2].changes[0].item == await client.get("/w/b")


async def test_a_watch_wakes_for_what_is_written_while_it_waits(client):
    revision = (await client.range("")).revision
    taking = asyncio.create_task(take(client.watch("/w/", revision + 1), 2))
    await client.txn([], [Put("/w/1", b"")])
    await client.txn([], [Put("/w/2", b"")])
    assert [change.key for seen in await taking for change in seen.changes] == ["/w/1", "/w/2"]


async def test_a_watch_may_begin_in_the_future(client):
    revision = (await client.range("")).revision
    taking = asyncio.create_task(take(client.watch("/w/", revision + 2), 1))
    await client.txn([], [Put("/w/1", b"")])
    await client.txn([], [Put("/w/2", b"")])
    assert [seen.number for seen in await taking] == [revision + 2]


async def test_a_watch_brings_a_long_past_without_a_gap(client):
    start = (await client.range("")).revision
    for number in range(600):
        await client.txn([], [Put(f"/{'w' if number % 2 else 'x'}", b"%d" % number)])
    seen = await take(client.watch("/w", start + 1), 300)
    assert [int(revision.changes[0].item.value) for revision in seen] == list(range(1, 600, 2))


async def test_watching_what_was_compacted_says_so(client, store_factory):
    first = await client.txn([], [Put("/a", b"1")])
    await client.txn([], [Put("/a", b"2")])
    third = await client.txn([], [Put("/a", b"3")])
    await store_factory.compact(third.revision)
    with pytest.raises(Compacted) as caught:
        await take(client.watch("/", first.revision), 1)
    assert caught.value.revision == third.revision
    # What a watcher does then: the range is whole, and a watch from behind it works.
    snapshot = await client.range("/")
    assert [item.value for item in snapshot.items] == [b"3"]
    taking = asyncio.create_task(take(client.watch("/", snapshot.revision + 1), 1))
    await client.txn([], [Put("/b", b"4")])
    assert (await taking)[0].changes[0].key == "/b"


async def test_a_revoked_lease_takes_its_keys_with_it_in_one_revision(client):
    lease = await client.lease(10)
    put = await client.txn([], [Put("/l/1", b"", lease.id), Put("/l/2", b"", lease.id), Put("/other", b"")])
    assert (await client.get("/l/1")).lease == lease.id
    await lease.revoke()
    assert lease.lost.is_set()
    (seen,) = await take(client.watch("/", put.revision + 1), 1)
    assert seen.changes == (Change("/l/1", None), Change("/l/2", None))
    assert (await client.get("/other")) is not None
    await lease.revoke()


async def test_an_expired_lease_takes_its_keys_with_it_while_nobody_writes(client, store_factory):
    watching = await store_factory.open()
    lease = await client.lease(store_factory.lease_s)
    put = await client.txn([], [Put("/l", b"", lease.id)])
    taking = asyncio.create_task(take(watching.watch("/", put.revision + 1), 1))
    await store_factory.expire(lease)
    assert (await taking)[0].changes == (Change("/l", None),)
    with pytest.raises(LeaseLost):
        await lease.renew()
    assert lease.lost.is_set()


async def test_a_renewed_lease_lives_on(client, store_factory):
    lease = await client.lease(store_factory.lease_s)
    await client.txn([], [Put("/l", b"", lease.id)])
    for _ in range(3):
        await store_factory.pass_time(0.5 * lease.ttl_s)
        await lease.renew()
    assert (await client.txn([Compare("/l", Target.VERSION, 1)], [])).ok
    assert not lease.lost.is_set()


async def test_a_transaction_never_sees_the_keys_of_a_lease_that_is_over(client, store_factory):
    lease = await client.lease(store_factory.lease_s)
    await client.txn([], [Put("/l", b"", lease.id)])
    await store_factory.expire(lease)
    assert (await client.txn([created_at("/l", 0)], [Put("/l", b"mine")])).ok


async def test_a_key_cannot_be_bound_to_a_lease_that_is_over(client):
    lease = await client.lease(10)
    await lease.revoke()
    with pytest.raises(LeaseLost):
        await client.txn([], [Put("/other", b""), Put("/l", b"", lease.id)])
    assert await client.get("/other") is None


async def test_a_key_put_again_without_the_lease_outlives_it(client):
    lease = await client.lease(10)
    await client.txn([], [Put("/l", b"", lease.id)])
    await client.txn([], [Put("/l", b"")])
    await lease.revoke()
    assert await client.get("/l") is not None


async def test_a_lease_kept_alive_ends_when_another_client_revokes_it(client, store_factory):
    lease = await client.lease(0.3)
    keeping = asyncio.create_task(keep_alive(lease))
    await (await store_factory.open()).revoke(lease.id)
    async with asyncio.timeout(10):
        await keeping
    assert lease.lost.is_set()


class SilentLease:
    """One whose store takes a renewal and never answers."""

    id = 1
    ttl_s = 0.05

    def __init__(self) -> None:
        self.lost = asyncio.Event()

    async def renew(self) -> None:
        await asyncio.Event().wait()

    async def revoke(self) -> None: ...


async def test_a_lease_whose_renewal_is_not_answered_is_lost_when_its_time_is_over():
    lease = SilentLease()
    async with asyncio.timeout(10):
        await keep_alive(lease)
    assert lease.lost.is_set()


async def test_twenty_candidates_have_one_winner(client):
    tries = [client.txn([created_at("/leader", 0)], [Put("/leader", b"%d" % n)]) for n in range(20)]
    assert sum(result.ok for result in await asyncio.gather(*tries)) == 1


async def test_an_old_holder_is_refused_after_it_was_elected_again(client):
    old = await client.txn([created_at("/leader", 0)], [Put("/leader", b"me")])
    await client.txn([], [Delete("/leader")])
    again = await client.txn([created_at("/leader", 0)], [Put("/leader", b"me")])
    assert not (await client.txn([created_at("/leader", old.revision)], [Put("/x", b"")])).ok
    assert (await client.txn([created_at("/leader", again.revision)], [Put("/x", b"")])).ok


async def test_three_processes_lose_no_increment(client, store_factory):
    workers = [await start_worker(store_factory, "increment", "/count", "200") for _ in range(3)]
    await finish(*workers)
    assert (await client.get("/count")).value == b"600"


async def test_a_watch_sees_every_write_of_another_process_once_and_in_order(client, store_factory):
    start = (await client.range("")).revision + 1
    taking = asyncio.create_task(take(client.watch("/p/", start), 200))
    await finish(await start_worker(store_factory, "put", "/p/", "200"))
    seen = await taking
    assert [change.key for revision in seen for change in revision.changes] == [f"/p/{n:04}" for n in range(200)]


async def test_a_process_killed_while_writing_leaves_whole_transactions(store_factory):
    worker = await start_worker(store_factory, "write-forever")
    acknowledged = -1
    async with asyncio.timeout(30):
        while acknowledged < 30:
            acknowledged = int(await worker.stdout.readline())
    worker.send_signal(signal.SIGKILL)
    rest, _ = await worker.communicate()
    acknowledged = max([acknowledged, *map(int, rest.split(b"\n")[:-1])])
    store = await store_factory.open()
    values = {int(item.value) for item in (await store.range("/whole/")).items}
    assert len(values) == 1
    assert values.pop() in (acknowledged, acknowledged + 1)
    assert (await store.txn([], [Put("/after", b"")])).ok


async def test_a_closed_store_refuses_and_ends_its_watches(client):
    written = await client.txn([], [Put("/a", b"")])
    watch = client.watch("/", written.revision)
    await anext(watch)
    taking = asyncio.ensure_future(anext(watch))
    await client.get("/a")
    await client.get("/a")
    await client.close()
    with pytest.raises(Unavailable):
        await taking
    with pytest.raises(Unavailable):
        await client.get("/a")
    await client.close()


async def test_changes_of_another_client_are_compared_not_overwritten(client, store_factory):
    other = await store_factory.open()
    first = await client.txn([], [Put("/a", b"1")])
    await other.txn([modified_at("/a", first.revision)], [Put("/a", b"2")])
    assert not (await client.txn([modified_at("/a", first.revision)], [Put("/a", b"3")])).ok
    assert (await client.get("/a")).value == b"2"


async def test_three_processes_that_write_and_watch_see_one_history(client, store_factory):
    start = (await client.range("")).revision + 1
    workers = [await start_worker(store_factory, "write-and-watch", str(start), f"/h/{n}/", "100") for n in range(3)]
    told = [(await worker.communicate())[0].decode().splitlines() for worker in workers]
    await finish(*workers)
    seen = await take(client.watch("/h/", start), 300)
    history = [f"{revision.number} {change.key}" for revision in seen for change in revision.changes]
    assert len(set(history)) == 300
    assert told == [history] * 3


async def test_a_range_of_many_keys_is_whole_and_of_one_revision(client, monkeypatch):
    monkeypatch.setattr(etcd_store, "PAGE_KEYS", 2_000)
    for start in range(0, 12_000, TXN_OPERATIONS_MAX):
        keys = range(start, min(start + TXN_OPERATIONS_MAX, 12_000))
        await client.txn([], [Put(f"/many/{number:06}", b"") for number in keys])
    reading = asyncio.create_task(client.range("/many/"))
    await client.txn([], [Put(f"/many/{number:06}", b"1") for number in (0, 11_999)])
    found = await reading
    assert [item.key for item in found.items] == [f"/many/{number:06}" for number in range(12_000)]
    assert all(item.mod_revision <= found.revision for item in found.items)
    assert found.items[0].value == found.items[-1].value
