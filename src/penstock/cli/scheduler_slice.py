"""Short turns on a core for the broker's threads: whoever asks for little at a time is let in soon.

Called by cli.serve when the broker has started. The broker is woken thousands of times a second and works for a
fraction of a millisecond each time. With the slice that every thread has by default, one that wakes up on a busy core
may have to wait for the scheduler's next tick, milliseconds away (docs/decisions/short-slices.md). A short slice moves
nothing but the order: over time everybody gets the same share of the processor as before, and no privilege is needed.
Linux 6.12 or later; older kernels take the number and do nothing with it.
"""

import contextlib
import ctypes
import logging
import os
from struct import Struct
from typing import NamedTuple

logger = logging.getLogger(__name__)

_THREADS = "/proc/self/task"
_SET, _GET = 0, 1
_NUMBERS = {"x86_64": (314, 315), "aarch64": (274, 275), "riscv64": (274, 275)}  # of sched_setattr and sched_getattr
# struct sched_attr as it was first, which every kernel takes.
_ATTRIBUTES = Struct("=IIQiIQQQ")


class Scheduling(NamedTuple):
    """How the kernel schedules a thread."""

    size: int
    policy: int
    flags: int
    nice: int
    priority: int
    slice_ns: int  # or the runtime of a deadline
    deadline_ns: int
    period_ns: int


def shorten_slices(slice_us: int) -> None:
    """For every thread of this process; what they start later, threads and processes, has it from them."""
    try:
        for name in os.listdir(_THREADS):
            with contextlib.suppress(ProcessLookupError):  # a thread that has ended meanwhile
                _shorten(int(name), slice_us * 1000)
    except OSError as error:
        # Another system, or a sandbox that does not allow it: the broker runs as any other program does.
        logger.debug("the scheduler's slices stay as they are: %s", error)


def scheduling_of(thread: int) -> Scheduling:
    attributes = ctypes.create_string_buffer(_ATTRIBUTES.size)
    _ask_kernel(_GET, thread, attributes, _ATTRIBUTES.size, 0)
    return Scheduling(*_ATTRIBUTES.unpack(attributes.raw))


def _shorten(thread: int, slice_ns: int) -> None:
    now = scheduling_of(thread)
    # An operator who chose a real-time policy knows better; the others have a slice. All else is given back as it was.
    if now.policy in (os.SCHED_OTHER, os.SCHED_BATCH):
        _ask_kernel(_SET, thread, _ATTRIBUTES.pack(*now._replace(slice_ns=slice_ns)), 0)


def _ask_kernel(which: int, thread: int, attributes: "ctypes.Array[ctypes.c_char] | bytes", *rest: int) -> None:
    numbers = _NUMBERS.get(os.uname().machine)
    if numbers is None:
        raise OSError(f"not known how to ask on {os.uname().machine}")
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(ctypes.c_long(numbers[which]), thread, attributes, *rest) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
