"""Time that several processes of one host agree on and that a suspended host keeps counting.

Called by sqlite_store: a lease's end is written into a file that other processes read, so it must be a number they all
understand. It means nothing after a reboot, hence the boot id beside it.
"""

import time
from pathlib import Path
from typing import Protocol

_LINUX_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class BootTime(Protocol):
    @property
    def boot_id(self) -> str: ...

    def now_ms(self) -> int:
        """Milliseconds since this host started."""
        ...


class SystemBootTime:
    def __init__(self) -> None:
        self.boot_id = _read_boot_id()
        # macOS has no CLOCK_BOOTTIME: there a suspended host's leases outlive the pause, which only delays an expiry.
        self._clock: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now_ms(self) -> int:
        return time.clock_gettime_ns(self._clock) // 1_000_000


def _read_boot_id() -> str:
    if _LINUX_BOOT_ID.exists():
        return _LINUX_BOOT_ID.read_text().strip()
    # Only here: Linux needs none of it.
    import ctypes

    name = b"kern.bootsessionuuid"
    buffer = ctypes.create_string_buffer(64)
    size = ctypes.c_size_t(len(buffer))
    if ctypes.CDLL(None).sysctlbyname(name, buffer, ctypes.byref(size), None, ctypes.c_size_t(0)) != 0:
        raise OSError("this system does not tell one boot from the next, so leases cannot be kept in a file")
    return buffer.value.decode()
