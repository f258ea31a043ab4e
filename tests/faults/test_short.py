"""A short form of `python -m benchmarks.faults`: a few faults of every kind, with a seed."""

from types import SimpleNamespace

import pytest
from benchmarks.faults import crashes, files, options
from benchmarks.faults.crashes import chains, every
from benchmarks.faults.table import Tally


def tried(part, only, count):
    tally = Tally("short")
    part.try_all(tally, SimpleNamespace(seed=0, count=count, only=only), (0, 1))
    return tally


@pytest.mark.parametrize(
    ("name", "count"), [("train cpu", 30), ("train hosted", 8), ("export", 12), ("export agent", 12), ("report", 4)]
)
def test_crashes(name, count):
    tally = Tally("crashes")
    every(name, tally, seed=1, count=count)
    assert tally.faults == {}
    assert tally.counts[name]["equal"] == count


def test_crashes_in_a_row():
    tally = Tally("chains")
    chains(["train cpu"], tally, seed=1, count=6)
    assert tally.faults == {}


@pytest.mark.parametrize(
    ("kind", "count"),
    [("run", 25), ("policy file", 15), ("recipe", 40), ("presets", 20), ("trace", 15), ("MettaGrid trace", 10)],
)
def test_broken_files(kind, count):
    tally = tried(files, [kind], count)
    assert tally.faults == {}
    assert tally.counts[kind]["variants"] == count


@pytest.mark.parametrize("command", ["train cage2", "evaluate", "export", "search cage2", "report"])
def test_command_lines(command):
    tally = Tally("options")
    options._drawn(command, options.lines(command), tally, 15, 0)
    assert tally.faults == {}
    assert tally.counts[command]["tried"] >= 10


def test_recipes():
    tally = Tally("options")
    options.recipes(tally, 20, 0)
    assert tally.faults == {}


def test_environments_that_misbehave():
    """In this process; they are really made, and really misbehave."""
    tally = Tally("options")
    troubles = ("none", "shape", "nan reward", "late exception", "system exit", "close exception", "object")
    options.environments(tally, troubles, options.BACKENDS[:1])
    assert tally.faults == {}
    assert tally.counts["environments"]["tried"] == len(troubles)


def test_spaces():
    tally = Tally("options")
    options.spaces(tally, 30, (0, 1))
    assert tally.faults == {}
    assert tally.counts["spaces"]["accepted"] >= 5


def test_a_fault_that_is_not_mended_is_found(monkeypatch):
    """Without flushing its log, a run cannot be resumed after a power cut."""
    monkeypatch.setattr("cavalcade.runs.logs.Log.sync", lambda log: log.flush())
    tally = Tally("crashes")
    every("train cpu", tally, seed=1, count=60)
    assert any("the log was truncated" in fault for fault in tally.faults["train cpu"])
    assert crashes.promised([]) == ""
