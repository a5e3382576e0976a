"""Any sequence of transactions leaves the metadata store as it leaves a dictionary with revisions."""

import asyncio
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cluster.open_store import open_store
from penstock.cluster.sqlite_store import open_sqlite_store
from penstock.cluster.store import (
    Change,
    Compare,
    Delete,
    Get,
    KeyValue,
    MetadataStore,
    Operation,
    Put,
    Revision,
    Target,
    TxnResult,
)
from penstock.testing.etcd import EtcdCluster, etcd_binary

KEYS = st.sampled_from(["/a", "/a/b", "/a/c", "/b", "/ü"])
VALUES = st.sampled_from([b"", b"0", b"1"])
COMPARES = st.one_of(
    st.builds(
        Compare,
        KEYS,
        st.sampled_from([Target.CREATE_REVISION, Target.MOD_REVISION, Target.VERSION]),
        st.integers(0, 6),
        st.sampled_from(["==", "!="]),
    ),
    st.builds(Compare, KEYS, st.just(Target.VALUE), VALUES, st.sampled_from(["==", "!="])),
)
OPERATIONS = st.lists(
    st.one_of(st.builds(Put, KEYS, VALUES), st.builds(Delete, KEYS), st.builds(Get, KEYS)),
    max_size=4,
    unique_by=lambda operation: (isinstance(operation, Get), operation.key),
)
Txn = tuple[list[Compare], list[Operation], list[Operation]]
TXNS = st.lists(st.tuples(st.lists(COMPARES, max_size=2), OPERATIONS, OPERATIONS), max_size=12)


@dataclass
class Model:
    """The law of the interface, said once more in the plainest way."""

    revision: int
    live: dict[str, KeyValue] = field(default_factory=dict)
    history: list[Revision] = field(default_factory=list)

    def txn(self, compare: list[Compare], then: list[Operation], orelse: list[Operation]) -> TxnResult:
        ok = all(self.agrees(each) for each in compare)
        changes: list[Change] = []
        reads: list[KeyValue | None] = []
        for operation in then if ok else orelse:
            old = self.live.get(operation.key)
            if isinstance(operation, Get):
                reads.append(old)
            elif isinstance(operation, Delete):
                if self.live.pop(operation.key, None) is not None:
                    changes.append(Change(operation.key, None))
            else:
                created, version = (old.create_revision, old.version) if old else (self.revision + 1, 0)
                new = KeyValue(operation.key, operation.value, created, self.revision + 1, version + 1)
                self.live[operation.key] = new
                changes.append(Change(operation.key, new))
        if changes:
            self.revision += 1
            self.history.append(Revision(self.revision, tuple(changes)))
        return TxnResult(ok, self.revision, tuple(reads))

    def agrees(self, compare: Compare) -> bool:
        item = self.live.get(compare.key)
        if compare.target is Target.VALUE:
            return item is not None and (item.value == compare.operand) is (compare.relation == "==")
        name = {Target.CREATE_REVISION: "create_revision", Target.MOD_REVISION: "mod_revision"}.get(
            compare.target, "version"
        )
        return ((getattr(item, name) if item else 0) == compare.operand) is (compare.relation == "==")


def shifted(compare: Compare, base: int) -> Compare:
    """Revisions are counted from the beginning of the example; 0 stays: the key does not exist."""
    if compare.target in (Target.CREATE_REVISION, Target.MOD_REVISION) and compare.operand:
        return replace(compare, operand=compare.operand + base - 1)
    return compare


async def run(store: MetadataStore, txns: list[Txn], prefix: str) -> None:
    """The store is empty, whatever happened in it before."""
    start = (await store.range("")).revision
    model = Model(start)
    for compare, then, orelse in txns:
        compare = [shifted(each, start) for each in compare]
        assert await store.txn(compare, then, orelse) == model.txn(compare, then, orelse)
    snapshot = await store.range(prefix)
    assert snapshot.revision == model.revision
    under = {key: item for key, item in model.live.items() if key.startswith(prefix)}
    assert list(snapshot.items) == [under[key] for key in sorted(under, key=str.encode)]
    expected = [
        Revision(revision.number, changes)
        for revision in model.history
        if (changes := tuple(change for change in revision.changes if change.key.startswith(prefix)))
    ]
    watch = store.watch(prefix, start + 1)
    assert [await anext(watch) for _ in expected] == expected
    await watch.aclose()


PREFIXES = st.sampled_from(["", "/", "/a", "/a/", "/ü"])


@settings(max_examples=60, deadline=None)
@given(TXNS, PREFIXES)
def test_a_store_in_a_file_behaves_like_a_dictionary_with_revisions(txns, prefix):
    async def example() -> None:
        with tempfile.TemporaryDirectory() as directory:
            store = await open_sqlite_store(Path(directory) / "metadata.db", poll_s=60)
            await run(store, txns, prefix)
            await store.close()

    asyncio.run(example())


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    if etcd_binary() is None:
        pytest.skip("no etcd on this machine (Debian: apt-get install etcd-server)")
    with EtcdCluster(tmp_path_factory.mktemp("etcd"), members=1) as cluster:
        yield cluster


@settings(max_examples=20, deadline=None)
@given(txns=TXNS, prefix=PREFIXES)
def test_a_store_in_etcd_behaves_like_a_dictionary_with_revisions(etcd, txns, prefix):
    async def example() -> None:
        store = await open_store(etcd.url, Path())
        await store.txn([], [Delete(item.key) for item in (await store.range("")).items])
        await run(store, txns, prefix)
        await store.close()

    asyncio.run(example())
