"""A word to the user while something takes its time, where there is no terminal."""

import time
from types import SimpleNamespace

import numba
import pytest

from cavalcade.runs import waiting as module
from cavalcade.runs.waiting import COMPILING, waiting


def test_what_is_quick_needs_no_word(capsys):
    with waiting("thinking", after=600) as news:
        news("thinking: 1 of 2")
    assert capsys.readouterr() == ("", "")


def test_what_takes_long_is_announced_and_followed(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with waiting("thinking", after=0, every=10) as news:
        announced, deadline = "", time.monotonic() + 300
        while not announced and time.monotonic() < deadline:  # by another thread
            time.sleep(0.01)
            announced += capsys.readouterr().err
        assert announced == "thinking ...\n"
        for second, n in ((9.0, 0), (11.0, 1), (12.0, 2), (20.0, 3)):
            now[0] = second
            news(f"thinking: {n} of 3")
    assert capsys.readouterr() == ("", "thinking: 1 of 3 ...\n")


def announced(capsys):
    """The notice of another thread, however long it takes."""
    found, deadline = "", time.monotonic() + 300
    while not found and time.monotonic() < deadline:
        time.sleep(0.01)
        found += capsys.readouterr().err
    return found


def test_compiling_is_said_only_of_what_is_compiled(capsys):
    twice = numba.njit(lambda x: 2 * x)
    with waiting("playing", after=0):
        assert announced(capsys) == "playing ...\n"
        twice(1)
        assert capsys.readouterr().err == f"{COMPILING} ...\n"
        twice(1.5)  # compiled again, said once
    assert capsys.readouterr().err == ""
    with waiting("playing", after=0):
        assert announced(capsys) == "playing ...\n"
        twice(3)  # is compiled already
    assert capsys.readouterr().err == ""


def test_what_is_compiled_before_the_notice_is_said_in_its_place(capsys):
    twice = numba.njit(lambda x: 2 * x)
    timers = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.threading, "Timer", lambda _, begin: timers.append(begin) or SimpleNamespace(
            start=lambda: None, cancel=lambda: None, join=lambda: None))  # fmt: skip
        with waiting("playing"):
            twice(1)
            timers[0]()
    assert capsys.readouterr().err == f"{COMPILING} ...\n"
