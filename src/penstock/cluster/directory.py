"""A broker's claim to its data directory: one live process at a time, and an identity that outlives them all.

Called by broker before anything else in the directory is opened; membership shows the identity to the cluster.
The lock belongs to the process and ends with it, however it ends. So whoever holds it knows that every earlier user of
the directory is dead, which is what lets a restarted broker take over its own registration at once.
"""

import fcntl
import json
import os
from pathlib import Path
from uuid import UUID

from penstock.clock import Rng
from penstock.disk import Disk
from penstock.errors import PenstockError

LOCK_FILE = ".lock"
IDENTITY_FILE = "directory.json"


class DirectoryInUse(PenstockError):
    """A live process has the data directory."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(f"the data directory {path} is in use by another process ({holder}): give each broker its own")
        self.path, self.holder = path, holder


class DirectoryClaim:
    """Made by `claim_directory`; holds the lock until closed."""

    def __init__(self, path: Path, identity: UUID, lock_fd: int) -> None:
        self.path = path
        self.id = identity
        self._lock_fd = lock_fd

    def close(self) -> None:
        fd, self._lock_fd = self._lock_fd, -1
        if fd >= 0:
            os.close(fd)


def claim_directory(path: Path, disk: Disk, rng: Rng) -> DirectoryClaim:
    """Lock the directory, creating it and its identity where they are new. Blocks. Raises DirectoryInUse."""
    disk.make_directory(path)
    fd = os.open(path / LOCK_FILE, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"pid {os.getpid()}\n".encode(), 0)
        return DirectoryClaim(path, _identity(path / IDENTITY_FILE, disk, rng), fd)
    except BlockingIOError:
        holder = os.pread(fd, 64, 0).decode(errors="replace").strip() or "pid unknown"
        os.close(fd)
        raise DirectoryInUse(path, holder) from None
    except BaseException:
        os.close(fd)
        raise


def _identity(path: Path, disk: Disk, rng: Rng) -> UUID:
    if not disk.exists(path):
        disk.replace_file(path, json.dumps({"directory": str(rng.uuid())}).encode())
    return UUID(json.loads(disk.read_file(path))["directory"])
