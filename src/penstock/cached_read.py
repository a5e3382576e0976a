"""Reads out of the page cache that fail where the disk would have to be waited for: preadv2 with RWF_NOWAIT.

Called by disk. Python offers them where it was built on a system that has them. The builds that uv installs are made on
one so old that it has not: with those the C library of the system is called, which takes a microsecond more a read.
"""

import os
import sys
from collections.abc import Callable
from struct import Struct

# (file descriptor, where to, position) -> bytes read. OSError with EAGAIN where the disk would have to be waited for.
ReadCached = Callable[[int, bytearray, int], int]

_NOWAIT = 8  # Linux's RWF_NOWAIT, on every processor


def find_read_cached() -> ReadCached | None:
    """None where the system has no such reads: every read goes to an I/O thread then."""
    return through_python() or through_libc()


def through_python() -> ReadCached | None:
    nowait: int | None = getattr(os, "RWF_NOWAIT", None)
    if nowait is None:
        return None

    def read_cached(fd: int, buffer: bytearray, position: int) -> int:
        return os.preadv(fd, (buffer,), position, nowait)

    return read_cached


def through_libc() -> ReadCached | None:
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    # Where a pointer has 32 bits, so may have the position: those systems are left to the threads.
    libc = ctypes.CDLL(None, use_errno=True)
    if ctypes.sizeof(ctypes.c_void_p) != 8 or not hasattr(libc, "preadv2"):
        return None

    preadv2, first_byte, address_of = libc.preadv2, ctypes.c_char.from_buffer, ctypes.addressof
    preadv2.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_int64, ctypes.c_int)
    preadv2.restype = ctypes.c_ssize_t
    as_piece = Struct("=QQ").pack  # struct iovec: where to, how many bytes

    def read_cached(fd: int, buffer: bytearray, position: int) -> int:
        if not buffer:
            return 0
        # Holds the buffer in its place until the call is over.
        start = first_byte(buffer)
        got = preadv2(fd, as_piece(address_of(start), len(buffer)), 1, position, _NOWAIT)
        if got < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return got

    return read_cached
