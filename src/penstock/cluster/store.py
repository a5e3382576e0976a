"""The small store all cluster metadata lives in: compare-and-swap, watches, leases.

Two backends keep this promise and pass one conformance suite (tests/unit/cluster/test_store_*.py):
sqlite_store for one host, etcd for many. Called by controller, membership and feed.
Invariants:
- Every transaction that changes something makes exactly one new revision; one that changes nothing makes none.
- A watch delivers whole revisions, in order, each once, or ends with Compacted.
- A lease is a hint of life. What protects is the comparison inside the transaction, never the lease alone.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal, Protocol

from penstock.errors import ErrorCode, PenstockError

# etcd refuses longer transactions, so no backend accepts them: code tried on one must run on the other.
TXN_OPERATIONS_MAX = 128
TXN_BYTES_MAX = 1_500_000
NO_LEASE = 0


class Compacted(PenstockError):
    """The history a watch asked for is gone: range again, then watch from the revision after that."""

    def __init__(self, revision: int) -> None:
        super().__init__(f"metadata history up to revision {revision} is gone")
        self.revision = revision


class LeaseLost(PenstockError):
    """The lease expired or was revoked; the keys bound to it are gone or about to go."""

    def __init__(self, lease: int) -> None:
        super().__init__(f"lease {lease} has expired or was revoked")
        self.lease = lease


class Unavailable(PenstockError):
    """The store did not take the operation; nothing was changed."""

    code = ErrorCode.REQUEST_TIMED_OUT


class StoreUnusable(PenstockError):
    """The store cannot be opened as it is; the message says what an operator can do."""


class Ambiguous(PenstockError):
    """The operation may or may not have been applied: read again, never retry blindly."""

    code = ErrorCode.REQUEST_TIMED_OUT


@dataclass(frozen=True, slots=True)
class KeyValue:
    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int = NO_LEASE


class Target(Enum):
    """What of a key is compared. The numbers of a key that does not exist are all 0; its value equals nothing."""

    CREATE_REVISION = "create"
    MOD_REVISION = "mod"
    VERSION = "version"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Compare:
    key: str
    target: Target
    operand: int | bytes
    relation: Literal["==", "!="] = "=="

    def __post_init__(self) -> None:
        assert isinstance(self.operand, bytes) == (self.target is Target.VALUE), "values are bytes, revisions are ints"


def created_at(key: str, revision: int) -> Compare:
    """The key is the one created at `revision`, however often it was written since; 0: it does not exist."""
    return Compare(key, Target.CREATE_REVISION, revision)


def modified_at(key: str, revision: int) -> Compare:
    """The key was last written at `revision`; 0: it does not exist."""
    return Compare(key, Target.MOD_REVISION, revision)


def holds(compare: Compare, present: KeyValue | None) -> bool:
    """The truth of a comparison against what the store has, as etcd defines it."""
    match compare.target:
        case Target.VALUE:
            if present is None:
                return False
            seen = present.value
        case Target.CREATE_REVISION:
            seen = present.create_revision if present else 0
        case Target.MOD_REVISION:
            seen = present.mod_revision if present else 0
        case Target.VERSION:
            seen = present.version if present else 0
    return (seen == compare.operand) == (compare.relation == "==")


@dataclass(frozen=True, slots=True)
class Put:
    key: str
    value: bytes
    lease: int = NO_LEASE


@dataclass(frozen=True, slots=True)
class Delete:
    key: str


@dataclass(frozen=True, slots=True)
class Get:
    key: str


Operation = Put | Delete | Get


@dataclass(frozen=True, slots=True)
class TxnResult:
    """`reads` has one entry per Get of the branch that ran, in order."""

    ok: bool
    revision: int
    reads: tuple[KeyValue | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All keys under a prefix as they were at one revision, in key order."""

    revision: int
    items: tuple[KeyValue, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """What one revision did to one key; `item` is None where it was deleted."""

    key: str
    item: KeyValue | None


@dataclass(frozen=True, slots=True)
class Revision:
    number: int
    changes: tuple[Change, ...]


class Lease(Protocol):
    @property
    def id(self) -> int: ...

    @property
    def ttl_s(self) -> float: ...

    @property
    def lost(self) -> asyncio.Event:
        """Set once the lease is known to be gone, or could not be renewed within its own time."""
        ...

    async def renew(self) -> None:
        """Give the lease its whole time again. Raises LeaseLost, which also sets `lost`, or Unavailable."""
        ...

    async def revoke(self) -> None:
        """End the lease and delete its keys; a lease already gone is no error."""
        ...


class MetadataStore(Protocol):
    async def get(self, key: str) -> KeyValue | None: ...

    async def range(self, prefix: str) -> Snapshot: ...

    async def txn(
        self, compare: Sequence[Compare], then: Sequence[Operation], orelse: Sequence[Operation] = ()
    ) -> TxnResult:
        """Run `then` if every comparison holds, else `orelse`; all or nothing."""
        ...

    def watch(self, prefix: str, from_revision: int) -> AsyncIterator[Revision]:
        """Every revision from `from_revision` on that touched the prefix. After a range: its revision + 1."""
        ...

    async def lease(self, ttl_s: float) -> Lease: ...

    async def revoke(self, lease: int) -> None:
        """End somebody else's lease: for a broker that knows its own former life is over."""
        ...

    async def close(self) -> None: ...


def check_txn(compare: Sequence[Compare], then: Sequence[Operation], orelse: Sequence[Operation]) -> None:
    """The limits of the interface; every backend calls this before it sends anything."""
    for part in (compare, then, orelse):
        assert len(part) <= TXN_OPERATIONS_MAX, f"{len(part)} operations in a transaction, {TXN_OPERATIONS_MAX} allowed"
    for branch in (then, orelse):
        size = sum(len(operation.key) + len(operation.value) for operation in branch if isinstance(operation, Put))
        assert size <= TXN_BYTES_MAX, f"{size} bytes in a transaction, {TXN_BYTES_MAX} allowed"
        written = [operation.key for operation in branch if not isinstance(operation, Get)]
        assert len(set(written)) == len(written), "a transaction may write a key only once"


async def keep_alive(lease: Lease) -> None:
    """Renew until the lease is lost; run it in a task of the lease's owner, who cancels it before revoking."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + lease.ttl_s
    while not lease.lost.is_set():
        with contextlib.suppress(TimeoutError):
            # Three tries fit into one time-to-live, so a single slow disk or election does not cost the lease.
            async with asyncio.timeout(lease.ttl_s / 3):
                await lease.lost.wait()
                return
        asked_at = loop.time()
        try:
            async with asyncio.timeout_at(ends_at):
                await lease.renew()
            ends_at = asked_at + lease.ttl_s
        except LeaseLost:
            return
        except (Unavailable, Ambiguous, TimeoutError):
            # Others may think this lease over from now on, so its holder must think so first.
            if loop.time() >= ends_at:
                lease.lost.set()
