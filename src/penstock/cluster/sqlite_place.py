"""Where a metadata file may live: on a local file system, and in use by one machine at a time.

Called by sqlite_file. SQLite's write-ahead log needs locks and shared memory that only one kernel can give.
"""

import hashlib
import os
import platform
from dataclasses import dataclass
from pathlib import Path

from penstock.cluster.store import StoreUnusable

# POSIX locks and shared memory do not work there, or only as long as nobody else looks.
NETWORK_FILE_SYSTEMS = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "nfs",
        "nfs4",
        "ocfs2",
        "smb2",
        "smb3",
        "smbfs",
    }
)
_FUSE = "fuse."
_MACHINE_ID = Path("/etc/machine-id")


@dataclass(frozen=True, slots=True)
class Machine:
    """`id` is empty where this system does not tell, as in many containers: then one machine looks like any other."""

    id: str
    name: str


def this_machine(machine_id: Path = _MACHINE_ID) -> Machine:
    try:
        told = machine_id.read_text().strip()
    except OSError:
        told = ""
    # Its manual asks that the id itself be kept to the machine.
    hidden = hashlib.sha256(b"penstock " + told.encode()).hexdigest()[:32] if len(told) == 32 else ""
    return Machine(hidden, platform.node())


def network_file_system(mounts: str, device: int) -> str | None:
    """The type of file system a device number belongs to, if it is one of those; `mounts` is Linux's mountinfo."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        kind = after.split()[0]
        if before.split()[2] == wanted and (kind in NETWORK_FILE_SYSTEMS or kind.startswith(_FUSE)):
            return kind
    return None


def refuse_network_file_system(directory: Path) -> None:
    mounts = Path("/proc/self/mountinfo")
    if not mounts.exists():
        return
    kind = network_file_system(mounts.read_text(errors="replace"), os.stat(directory).st_dev)
    if kind is not None:
        raise StoreUnusable(
            f"{directory} is on a network file system ({kind}), where file locks cannot be trusted: put the data "
            "directory on a local disk, or use etcd for a cluster of several hosts"
        )


def other_machine(file: Path, name: str) -> StoreUnusable:
    """Leases of two machines never stand in one file: each would think the other's long over."""
    return StoreUnusable(
        f"the metadata file {file} is in use by a broker on the machine {name!r}: SQLite serves one host, so use etcd "
        "for a cluster of several. A file whose brokers were stopped cleanly may be moved. If that machine is gone for "
        f"good, run: sqlite3 {file} \"UPDATE leases SET machine = ''\""
    )
