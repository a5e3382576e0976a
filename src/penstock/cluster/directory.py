"""A broker's claim to its data directory: one live process at a time, and an identity that outlives them all.

Called by broker before anything else in the directory is opened; membership shows the identity to the cluster. Once
the directory has been part of a cluster it is of no other: its logs would pass for replicas of topics of the same name.
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


class ClusterIdMismatch(PenstockError):
    """The data directory is part of another cluster than the metadata store."""

    def __init__(self, path: Path, own: str, other: str) -> None:
        super().__init__(
            f"the data directory {path} belongs to cluster {own}, but the metadata store is that of cluster {other}: "
            "give --metadata the store of the directory's cluster, or this broker an empty directory"
        )
        self.path, self.own, self.other = path, own, other


class NodeIdMismatch(PenstockError):
    """The data directory is that of another node of the cluster."""

    def __init__(self, path: Path, own: str, other: int) -> None:
        super().__init__(
            f"the data directory {path} is that of node {own}, not of node {other}: start it with --node-id {own}, or "
            "give this broker a directory of its own"
        )
        self.path, self.own, self.other = path, own, other


class DirectoryClaim:
    """Made by `claim_directory`; holds the lock until closed."""

    def __init__(self, path: Path, disk: Disk, fields: dict[str, str], lock_fd: int) -> None:
        self.path = path
        self.id = UUID(fields["directory"])
        self._disk = disk
        self._fields = fields
        self._lock_fd = lock_fd

    def serve_node(self, node_id: int) -> None:
        """Be this node's from now on: its replicas would not be found under another id. Raises NodeIdMismatch."""
        own = self._fields.get("node")
        if own is None:
            self._fields = {**self._fields, "node": str(node_id)}
            self._disk.replace_file(self.path / IDENTITY_FILE, json.dumps(self._fields).encode())
        elif own != str(node_id):
            raise NodeIdMismatch(self.path, own, node_id)

    @property
    def lives(self) -> frozenset[str]:
        """The last life that was begun on this disk, and the one before: the cluster may not have heard of the last."""
        return frozenset(self._fields.get("lives", "").split())

    def begin_life(self, life: str, former: str) -> None:
        """Before the cluster hears of it: a disk put back from a copy then lacks what the cluster heard of since."""
        self._fields = {**self._fields, "lives": f"{life} {former}".strip()}
        self._disk.replace_file(self.path / IDENTITY_FILE, json.dumps(self._fields).encode())

    def join_cluster(self, cluster_id: str) -> None:
        """Be part of this cluster from now on. Blocks. Raises ClusterIdMismatch."""
        own = self._fields.get("cluster")
        if own is None:
            self._fields = {**self._fields, "cluster": cluster_id}
            self._disk.replace_file(self.path / IDENTITY_FILE, json.dumps(self._fields).encode())
        elif own != cluster_id:
            raise ClusterIdMismatch(self.path, own, cluster_id)

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
        return DirectoryClaim(path, disk, _identity(path / IDENTITY_FILE, disk, rng), fd)
    except BlockingIOError:
        holder = os.pread(fd, 64, 0).decode(errors="replace").strip() or "pid unknown"
        os.close(fd)
        raise DirectoryInUse(path, holder) from None
    except BaseException:
        os.close(fd)
        raise


def _identity(path: Path, disk: Disk, rng: Rng) -> dict[str, str]:
    if not disk.exists(path):
        disk.replace_file(path, json.dumps({"directory": str(rng.uuid())}).encode())
    return json.loads(disk.read_file(path))
