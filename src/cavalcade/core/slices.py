"""Short time slices beside busy processes: the same share of a core, but in turns that come sooner.

Threads of a kernel wait for each other. With the kernel's usual slices, one that has lost its core keeps the others
waiting for milliseconds.
"""

import ctypes
import os
import platform
import sys
from contextlib import suppress
from pathlib import Path

_SHORTEST = 100_000  # nanoseconds: the shortest slice that Linux grants
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}  # numbers of the system call
_TASKS = Path("/proc/self/task")


class _Attributes(ctypes.Structure):
    """`struct sched_attr` of Linux."""

    _fields_ = (
        ("size", ctypes.c_uint32), ("policy", ctypes.c_uint32), ("flags", ctypes.c_uint64), ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32), ("runtime", ctypes.c_uint64), ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    )  # fmt: skip


def short_slices() -> bool:
    """Asks for short slices for all threads of this process and those that they start; whether the system took it.

    Linux has them since 6.12; older kernels ignore the request. Real-time and batch policies are left alone.
    """
    number = _SCHED_SETATTR.get(platform.machine())
    if sys.platform != "linux" or number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    taken = False
    with suppress(OSError):  # no /proc, or a thread that has just ended
        call = ctypes.CDLL(None, use_errno=True).syscall
        for thread in map(int, os.listdir(_TASKS)):
            nice = os.getpriority(os.PRIO_PROCESS, thread)
            given = _Attributes(ctypes.sizeof(_Attributes), os.SCHED_OTHER, 0, nice, 0, _SHORTEST, 0, 0)
            taken = call(number, thread, ctypes.byref(given), 0) == 0 or taken
    return taken
