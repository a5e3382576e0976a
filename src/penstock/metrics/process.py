"""What the kernel says about this process. Linux from /proc; elsewhere the nearest thing there is.

Called by broker_metrics and server.gauges when the page is read.
"""

import os
import resource
import sys
from pathlib import Path

_STATM = Path("/proc/self/statm")
_DESCRIPTORS = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"


def resident_bytes() -> int:
    if sys.platform == "linux":
        return int(_STATM.read_text("ascii").split()[1]) * resource.getpagesize()
    # macOS tells the peak only, and in bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system


def open_files() -> int:
    return len(os.listdir(_DESCRIPTORS))


def open_files_max() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def disk_bytes(path: Path) -> int:
    """The size of the file system that a path is on."""
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize
