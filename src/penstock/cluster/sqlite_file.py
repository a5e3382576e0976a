"""The metadata store's file: tables, transactions and leases in SQLite, all of it blocking.

Called by sqlite_store only, and only on its one thread.
Invariants:
- Writing, checkpointing and opening happen under an flock beside the file. SQLite's own locks allow a checkpoint of one
  process to meet the commit of another, and versions before 3.51.3 can then corrupt the file ("WAL-reset bug").
- A transaction is in the write-ahead log and synced before it is reported. One whose sync failed is reported as
  Ambiguous, and the file is not written again by this process: a second sync could lie.
- Leases that are due end before a transaction looks at anything, each as a revision of its own.
- All leases are of one machine: another one's clock and boot say nothing about ours.
"""

import contextlib
import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

from penstock.cluster.boot_time import BootTime
from penstock.cluster.sqlite_place import Machine, other_machine, refuse_network_file_system
from penstock.cluster.store import (
    NO_LEASE,
    Ambiguous,
    Change,
    Compacted,
    Compare,
    Delete,
    Get,
    KeyValue,
    LeaseLost,
    Operation,
    Put,
    Revision,
    Snapshot,
    StoreUnusable,
    TxnResult,
    Unavailable,
    holds,
)

SCHEMA_VERSION = 2
LOCK_WAIT_S = 5.0
LOCK_RETRY_S = 0.0005
HISTORY_WINDOW_REVISIONS = 256
COMPACT_EVERY_CHANGES = 1_000

SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('schema', 2), ('revision', 1), ('compacted', 0);
CREATE TABLE live (
    key TEXT PRIMARY KEY, value BLOB NOT NULL, create_revision INTEGER NOT NULL,
    mod_revision INTEGER NOT NULL, version INTEGER NOT NULL, lease INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX live_by_lease ON live (lease) WHERE lease <> 0;
-- A row per change, so that a watch can start in the past; value is NULL where the key was deleted.
CREATE TABLE history (
    revision INTEGER NOT NULL, sequence INTEGER NOT NULL, key TEXT NOT NULL, value BLOB,
    create_revision INTEGER NOT NULL, version INTEGER NOT NULL, lease INTEGER NOT NULL,
    PRIMARY KEY (revision, sequence)
) WITHOUT ROWID;
-- AUTOINCREMENT: an id is never given twice, so revoking a former life's lease can not hit a newer one.
CREATE TABLE leases (
    id INTEGER PRIMARY KEY AUTOINCREMENT, ttl_ms INTEGER NOT NULL, boot_id TEXT NOT NULL, expires_ms INTEGER NOT NULL,
    machine TEXT NOT NULL DEFAULT '', machine_name TEXT NOT NULL DEFAULT ''
);
"""
# A lease held by another machine. One whose machine, or ours, does not tell its id is taken for one of an earlier boot.
FOREIGN = "(boot_id <> :boot AND :machine <> '' AND machine NOT IN ('', :machine))"

# From the schema of that number to the next.
MIGRATIONS = {
    1: """
ALTER TABLE leases ADD COLUMN machine TEXT NOT NULL DEFAULT '';
ALTER TABLE leases ADD COLUMN machine_name TEXT NOT NULL DEFAULT '';
UPDATE meta SET value = 2 WHERE name = 'schema';
"""
}


class SqliteFile:
    def __init__(
        self,
        path: Path,
        boot_time: BootTime,
        machine: Machine,
        history_changes_max: int,
        on_change: Callable[[], None],
    ) -> None:
        self._path = path
        self._boot_time = boot_time
        self._machine = machine
        self._history_changes_max = history_changes_max
        self._on_change = on_change
        self._failed: str | None = None
        self._changes_since_compaction = 0
        self._next_expiry_ms: int | None = None
        refuse_network_file_system(path.parent)
        self._lock_fd = os.open(f"{path}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            self._db = self._open()
        except BaseException:
            os.close(self._lock_fd)
            raise
        self._data_version = self._read_data_version()
        with self._reading():
            self._note_next_expiry()

    def _open(self) -> sqlite3.Connection:
        with self._locked():
            # Not opened when it exists: closing a second descriptor would drop SQLite's own locks in this process.
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
            self._path.chmod(0o600)
            db = sqlite3.connect(self._path, timeout=LOCK_WAIT_S, isolation_level=None)
            try:
                self._prepare(db)
            except sqlite3.DatabaseError as error:
                db.close()
                raise StoreUnusable(f"the metadata file {self._path} cannot be used: {error}") from error
            except BaseException:
                db.close()
                raise
            return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        found = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise StoreUnusable(f"the metadata file {self._path} is damaged ({found}); restore it from a backup")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA fullfsync = ON")  # macOS: an fsync there stops at the drive's cache
        db.execute(f"PRAGMA journal_size_limit = {4 << 20}")
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone():
            db.executescript(f"BEGIN IMMEDIATE; {SCHEMA} COMMIT;")
        schema = db.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone()[0]
        if schema > SCHEMA_VERSION:
            raise StoreUnusable(
                f"the metadata file {self._path} was written by a newer penstock (schema {schema}, this one knows "
                f"{SCHEMA_VERSION}): start that version, or restore the backup made before the upgrade"
            )
        for old in range(schema, SCHEMA_VERSION):
            db.executescript(f"BEGIN IMMEDIATE; {MIGRATIONS[old]} COMMIT;")
        self._refuse_other_machines(db)

    def _refuse_other_machines(self, db: sqlite3.Connection) -> None:
        """Raises StoreUnusable if a lease is held by a kernel that is neither this one nor an earlier boot of it."""
        row = db.execute(f"SELECT machine_name FROM leases WHERE {FOREIGN}", self._whereabouts()).fetchone()
        if row:
            raise other_machine(self._path, row[0])

    def get(self, key: str) -> KeyValue | None:
        with self._reading():
            return self._get(key)

    def range(self, prefix: str) -> Snapshot:
        with self._reading():
            rows = self._db.execute(
                "SELECT key, value, create_revision, mod_revision, version, lease FROM live "
                "WHERE key >= ? AND key < ? ORDER BY key",
                _bounds(prefix),
            )
            return Snapshot(self._number("revision"), tuple(KeyValue(*row) for row in rows))

    def txn(self, compare: Sequence[Compare], then: Sequence[Operation], orelse: Sequence[Operation]) -> TxnResult:
        with self._writing():
            self._expire()
            ok = all(holds(each, self._get(each.key)) for each in compare)
            revision = self._number("revision") + 1
            reads: list[KeyValue | None] = []
            changed = 0
            for operation in then if ok else orelse:
                match operation:
                    case Put(key, value, lease):
                        if lease != NO_LEASE and not self._has_lease(lease):
                            raise LeaseLost(lease)
                        self._put(revision, changed, key, value, lease)
                        changed += 1
                    case Delete(key):
                        changed += self._delete(revision, changed, key)
                    case Get(key):
                        reads.append(self._get(key))
            if changed:
                self._set_number("revision", revision)
                self._compact_sometimes(changed)
            return TxnResult(ok, revision if changed else revision - 1, tuple(reads))

    def history(self, prefix: str, from_revision: int) -> tuple[list[Revision], int]:
        """The next few revisions that touched the prefix, and the revision up to which the caller now knows all."""
        with self._reading():
            compacted = self._number("compacted")
            if from_revision <= compacted:
                raise Compacted(compacted)
            reached = min(self._number("revision"), from_revision + HISTORY_WINDOW_REVISIONS - 1)
            rows = self._db.execute(
                "SELECT revision, key, value, create_revision, version, lease FROM history "
                "WHERE revision BETWEEN ? AND ? AND key >= ? AND key < ? ORDER BY revision, sequence",
                (from_revision, reached, *_bounds(prefix)),
            )
            found: dict[int, list[Change]] = {}
            for revision, key, value, create_revision, version, lease in rows:
                item = None if value is None else KeyValue(key, value, create_revision, revision, version, lease)
                found.setdefault(revision, []).append(Change(key, item))
            return [Revision(number, tuple(changes)) for number, changes in found.items()], reached

    def grant(self, ttl_ms: int) -> int:
        with self._writing():
            # Two machines may have opened the file before either had a lease in it.
            self._refuse_other_machines(self._db)
            now_ms = self._boot_time.now_ms()
            cursor = self._db.execute(
                "INSERT INTO leases (ttl_ms, boot_id, expires_ms, machine, machine_name) VALUES (?, ?, ?, ?, ?)",
                (ttl_ms, self._boot_time.boot_id, now_ms + ttl_ms, self._machine.id, self._machine.name),
            )
            self._note_next_expiry()
            assert cursor.lastrowid is not None
            return cursor.lastrowid

    def renew(self, lease: int) -> None:
        # Need not survive a power failure: with the reboot every lease ends anyhow.
        with self._writing(durable=False):
            self._expire()
            if not self._has_lease(lease):
                raise LeaseLost(lease)
            self._db.execute(
                "UPDATE leases SET expires_ms = ttl_ms + ? WHERE id = ?", (self._boot_time.now_ms(), lease)
            )
            self._note_next_expiry()

    def revoke(self, lease: int) -> None:
        with self._writing():
            self._end_lease(lease)
            self._note_next_expiry()

    def tick(self) -> bool:
        """Look for what other processes wrote and for leases that are due; true if a watcher should look again."""
        self._check_not_failed()
        data_version = self._read_data_version()
        changed = data_version != self._data_version
        if changed:
            self._data_version = data_version
            with self._reading():
                self._note_next_expiry()
        if self._next_expiry_ms is not None and self._boot_time.now_ms() >= self._next_expiry_ms:
            with self._writing():
                self._expire()
            changed = True
        return changed

    def compact(self, revision: int) -> None:
        with self._writing():
            self._compact(revision)

    def close(self) -> None:
        try:
            # The last connection to close checkpoints, so this is a write like any other.
            with contextlib.suppress(Unavailable), self._locked():
                self._db.close()
        finally:
            self._db.close()
            os.close(self._lock_fd)

    @contextlib.contextmanager
    def _reading(self) -> Generator[None]:
        self._check_not_failed()
        try:
            self._db.execute("BEGIN")
            try:
                yield
            finally:
                self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise Unavailable(f"the metadata file cannot be read: {error}") from error

    @contextlib.contextmanager
    def _writing(self, *, durable: bool = True) -> Generator[None]:
        self._check_not_failed()
        with self._locked():
            before = self._db.total_changes
            try:
                if not durable:
                    self._db.execute("PRAGMA synchronous = NORMAL")
                self._db.execute("BEGIN IMMEDIATE")
                yield
                self._commit()
            except sqlite3.Error as error:
                raise Unavailable(f"the metadata file cannot be written: {error}") from error
            finally:
                # A file that fails here failed above as well, and that error is the one to tell.
                with contextlib.suppress(sqlite3.Error):
                    if self._db.in_transaction:
                        self._db.execute("ROLLBACK")
                    if not durable:
                        self._db.execute("PRAGMA synchronous = FULL")
        if self._db.total_changes != before:
            self._on_change()

    def _commit(self) -> None:
        try:
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            # Full: the commit record did not fit, so nothing of it counts. Busy: it never began to write.
            if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY):
                raise
            self._failed = f"a commit to the metadata file failed ({error}); restart this broker once the disk is well"
            raise Ambiguous(self._failed) from error

    @contextlib.contextmanager
    def _locked(self) -> Generator[None]:
        tries = int(LOCK_WAIT_S / LOCK_RETRY_S)
        pause = threading.Event()
        while True:
            try:
                fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                # Not the blocking call: a stopped process that holds the lock must not stop this one for ever.
                tries -= 1
                if tries == 0:
                    raise Unavailable(f"another process held {self._path}.lock for {LOCK_WAIT_S:g} s") from None
                pause.wait(LOCK_RETRY_S)
        try:
            yield
        finally:
            fcntl.flock(self._lock_fd, fcntl.LOCK_UN)

    def _check_not_failed(self) -> None:
        if self._failed is not None:
            raise Unavailable(self._failed)

    def _number(self, name: str) -> int:
        return self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()[0]

    def _set_number(self, name: str, value: int) -> None:
        self._db.execute("UPDATE meta SET value = ? WHERE name = ?", (value, name))

    def _read_data_version(self) -> int:
        try:
            return self._db.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error as error:
            raise Unavailable(f"the metadata file cannot be read: {error}") from error

    def _get(self, key: str) -> KeyValue | None:
        row = self._db.execute(
            "SELECT key, value, create_revision, mod_revision, version, lease FROM live WHERE key = ?", (key,)
        ).fetchone()
        return KeyValue(*row) if row else None

    def _put(self, revision: int, sequence: int, key: str, value: bytes, lease: int) -> None:
        row = self._db.execute(
            "INSERT INTO live VALUES (?1, ?2, ?3, ?3, 1, ?4) ON CONFLICT (key) DO UPDATE SET "
            "value = ?2, mod_revision = ?3, version = version + 1, lease = ?4 RETURNING create_revision, version",
            (key, value, revision, lease),
        ).fetchone()
        self._db.execute(
            "INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?)", (revision, sequence, key, value, *row, lease)
        )

    def _delete(self, revision: int, sequence: int, key: str) -> bool:
        if self._db.execute("DELETE FROM live WHERE key = ?", (key,)).rowcount == 0:
            return False
        self._db.execute("INSERT INTO history VALUES (?, ?, ?, NULL, 0, 0, 0)", (revision, sequence, key))
        return True

    def _has_lease(self, lease: int) -> bool:
        return self._db.execute("SELECT 1 FROM leases WHERE id = ?", (lease,)).fetchone() is not None

    def _expire(self) -> None:
        due = self._db.execute(
            f"SELECT id FROM leases WHERE NOT {FOREIGN} AND (boot_id <> :boot OR expires_ms <= :now)",
            self._whereabouts(),
        ).fetchall()
        for (lease,) in due:
            self._end_lease(lease)
        if due:
            self._note_next_expiry()

    def _end_lease(self, lease: int) -> None:
        self._db.execute("DELETE FROM leases WHERE id = ?", (lease,))
        keys = self._db.execute("SELECT key FROM live WHERE lease = ? AND lease <> 0 ORDER BY key", (lease,)).fetchall()
        if not keys:
            return
        revision = self._number("revision") + 1
        for sequence, (key,) in enumerate(keys):
            self._delete(revision, sequence, key)
        self._set_number("revision", revision)

    def _note_next_expiry(self) -> None:
        # A lease of an earlier boot is due since that boot ended.
        self._next_expiry_ms = self._db.execute(
            f"SELECT min(CASE WHEN boot_id = :boot THEN expires_ms ELSE 0 END) FROM leases WHERE NOT {FOREIGN}",
            self._whereabouts(),
        ).fetchone()[0]

    def _whereabouts(self) -> dict[str, str | int]:
        return {"boot": self._boot_time.boot_id, "now": self._boot_time.now_ms(), "machine": self._machine.id}

    def _compact_sometimes(self, changed: int) -> None:
        self._changes_since_compaction += changed
        if self._changes_since_compaction < COMPACT_EVERY_CHANGES:
            return
        self._changes_since_compaction = 0
        oldest_too_many = self._db.execute(
            "SELECT revision FROM history ORDER BY revision DESC LIMIT 1 OFFSET ?", (self._history_changes_max,)
        ).fetchone()
        if oldest_too_many:
            self._compact(oldest_too_many[0])

    def _compact(self, revision: int) -> None:
        assert revision <= self._number("revision"), "only the past can be forgotten"
        if revision > self._number("compacted"):
            self._db.execute("DELETE FROM history WHERE revision <= ?", (revision,))
            self._set_number("compacted", revision)


def _bounds(prefix: str) -> tuple[str, str]:
    """The first key with the prefix and the first key after all of them, in the order of UTF-8 bytes."""
    return prefix, prefix + "\U0010ffff"
