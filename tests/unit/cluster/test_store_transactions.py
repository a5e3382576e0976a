"""What every metadata store must do: keys, ranges and transactions."""

import asyncio

import pytest

from penstock.cluster import etcd_store
from penstock.cluster.store import (
    TXN_BYTES_MAX,
    TXN_OPERATIONS_MAX,
    Compare,
    Delete,
    Get,
    Put,
    Target,
    created_at,
    modified_at,
)


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


async def test_twenty_candidates_have_one_winner(client):
    tries = [client.txn([created_at("/leader", 0)], [Put("/leader", b"%d" % n)]) for n in range(20)]
    assert sum(result.ok for result in await asyncio.gather(*tries)) == 1


async def test_an_old_holder_is_refused_after_it_was_elected_again(client):
    old = await client.txn([created_at("/leader", 0)], [Put("/leader", b"me")])
    await client.txn([], [Delete("/leader")])
    again = await client.txn([created_at("/leader", 0)], [Put("/leader", b"me")])
    assert not (await client.txn([created_at("/leader", old.revision)], [Put("/x", b"")])).ok
    assert (await client.txn([created_at("/leader", again.revision)], [Put("/x", b"")])).ok


async def test_changes_of_another_client_are_compared_not_overwritten(client, store_factory):
    other = await store_factory.open()
    first = await client.txn([], [Put("/a", b"1")])
    await other.txn([modified_at("/a", first.revision)], [Put("/a", b"2")])
    assert not (await client.txn([modified_at("/a", first.revision)], [Put("/a", b"3")])).ok
    assert (await client.get("/a")).value == b"2"


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
