"""Time slices: as short as asked for, in all threads, and nothing else changes."""

import ctypes
import os
import platform
import subprocess
import sys
import threading

import pytest

from cavalcade.core import slices
from cavalcade.core.slices import _Attributes, short_slices

GETATTR = {"x86_64": 315, "aarch64": 275}
needs_linux = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in GETATTR, reason="a system call of Linux"
)


def attributes(thread):
    found = _Attributes()
    ctypes.CDLL(None).syscall(GETATTR[platform.machine()], thread, ctypes.byref(found), ctypes.sizeof(found), 0)
    return found


@needs_linux
def test_every_thread_gets_them_and_keeps_its_priority():
    code = (
        "import os, sys; os.nice(3)\n"
        "from tests.core.test_slices import check\n"
        "check()\n"
    )  # fmt: skip
    subprocess.run([sys.executable, "-c", code], check=True)


def check():
    """In a process of its own: threads that are there, and those that they start."""
    ended, seen = threading.Event(), []
    other = threading.Thread(target=ended.wait)
    other.start()
    assert short_slices()
    later = threading.Thread(target=lambda: seen.append(attributes(0)))
    later.start()
    later.join()
    found = [attributes(0), attributes(other.native_id), *seen]
    ended.set()
    newer = tuple(map(int, platform.release().split("-")[0].split(".")[:2])) >= (6, 12)
    assert [(one.policy, one.nice) for one in found] == [(os.SCHED_OTHER, 3)] * 3
    assert [one.runtime for one in found] == [100_000] * 3 or not newer


def test_other_systems_and_policies_are_left_alone(monkeypatch):
    monkeypatch.setattr(slices.ctypes, "CDLL", lambda *_, **__: pytest.fail("called"))
    monkeypatch.setattr(slices.platform, "machine", lambda: "riscv64")
    assert not short_slices()
    monkeypatch.undo()
    if sys.platform == "linux":
        monkeypatch.setattr(slices.ctypes, "CDLL", lambda *_, **__: pytest.fail("called"))
        monkeypatch.setattr(slices.os, "sched_getscheduler", lambda _: os.SCHED_BATCH)
        assert not short_slices()
