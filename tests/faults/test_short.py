"""A short form of `python -m benchmarks.faults`: a few faults of every kind, with a seed.

Cases are forked from a process that has loaded its kernels, which is none of those that run other tests.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from benchmarks.faults import crashes, files, forked, options
from benchmarks.faults.chains import chains
from benchmarks.faults.crashes import every
from benchmarks.faults.table import Tally

from tests.processes import Process


def tried(call: Callable, *args: Any, **more: Any) -> Tally:
    """What a part of the machine found, in a process that cases can be forked from."""
    done = Process(_printed, call, args, more).wait()
    assert done.returncode == 0, done.stderr
    tally = Tally("short")
    tally.merge(done.stdout.splitlines()[-1])
    return tally


def _printed(call: Callable, args: tuple, more: dict[str, Any]) -> None:
    forked.prepare()
    tally = Tally("short")
    call(tally, *args, **more)
    print(tally.text())


CRASHES = {"train cpu": 60, "train torch": 10, "train hosted": 10, "export": 12, "export agent": 12, "report": 4}


def _crashes(tally: Tally) -> None:
    for name, count in CRASHES.items():
        every(name, tally, seed=1, count=count)


def test_crashes():
    tally = tried(_crashes)
    assert tally.faults == {}
    assert {name: counts["equal"] for name, counts in tally.counts.items()} == CRASHES


def _chains(tally: Tally) -> None:
    chains(["train cpu", "train torch"], tally, seed=1, count=30)


def test_crashes_in_a_row():
    tally = tried(_chains)
    assert tally.faults == {}
    resumed, crashed = (sum(counts[name] for counts in tally.counts.values()) for name in ("resumed", "crashes"))
    assert resumed == 30
    assert crashed > 40


FILES = {"run": 60, "policy file": 30, "recipe": 60, "presets": 60, "tuned preset": 30, "traces": 30}


def _files(tally: Tally) -> None:
    for kind, count in FILES.items():
        files.try_all(tally, SimpleNamespace(seed=0, count=count, only=[kind]), (0, 1))


def test_broken_files():
    tally = tried(_files)
    assert tally.faults == {}
    assert {kind: counts["variants"] for kind, counts in tally.counts.items()} == FILES


def _options(tally: Tally) -> None:
    for command in ("train cage2", "evaluate", "export", "search cage2", "report"):
        options.command_lines(command, tally, 20, 0)
    options.recipes(tally, 30, 0)
    troubles = ("none", "shape", "nan reward", "late exception", "system exit", "close exception", "object")
    options.environments(tally, troubles, options.BACKENDS[:1])
    options.spaces(tally, 30, 0)


def test_options_recipes_environments_and_spaces():
    """Environments are really made, and really misbehave."""
    tally = tried(_options)
    assert tally.faults == {}
    assert all(tally.counts[row]["tried"] >= 10 for row in tally.counts if row != "environments")
    assert tally.counts["environments"]["tried"] == 7
    assert tally.counts["spaces"]["accepted"] >= 5


def _not_mended(tally: Tally) -> None:
    with mock.patch("cavalcade.runs.logs.Log.sync", lambda log: log.flush()):
        every("train cpu", tally, seed=1, count=60)


def test_a_fault_that_is_not_mended_is_found():
    """Without flushing its log, a run cannot be resumed after a power cut."""
    tally = tried(_not_mended)
    assert any("the log was truncated" in fault for fault in tally.faults["train cpu"])
    assert crashes.promised([]) == ""


def _loops(seconds: int) -> None:
    while seconds:
        pass


def _misbehave(tally: Tally) -> None:
    import os

    for name, function, args in (
        ("returns", len, ["abc"]), ("raises", int, ["x"]), ("dies", os._exit, [3]), ("hangs", _loops, [1]),
    ):  # fmt: skip
        found = forked.forked(function, *args, seconds=1)
        tally.faults[name] = [f"{found.value}, {found.wrong}, {found.status}"]


def test_a_process_that_dies_or_hangs_is_noticed():
    assert tried(_misbehave).faults == {
        "returns": ["3, , 0"],
        "raises": ["None, traceback ValueError: invalid literal for int() with base 10: 'x', 0"],
        "dies": ["None, ended with 3, 3"],
        "hangs": ["None, traceback HangError: computes for more than 1 s, 0"],
    }


@pytest.mark.parametrize("name", ["run/file", "run/deeper"])
def test_a_copy_is_made_whole_again(tmp_path, name):
    from benchmarks.faults.copies import Copy

    whole = tmp_path / "whole"
    (whole / "run" / "deeper").mkdir(parents=True)
    (whole / "run" / "file").write_text("a")
    copy = Copy(whole, tmp_path / "copy")
    assert copy.changed() == []
    (copy.path / "new").mkdir()
    (copy.path / "new" / "one").write_text("b")
    broken = copy.path / name
    if broken.is_dir():
        broken.rmdir()
        broken.write_text("c")
    else:
        broken.unlink()
        broken.symlink_to("nowhere")
    assert copy.changed() == sorted(["new", "new/one", name])
    copy.restore()
    assert copy.changed() == []
    assert sorted(path.relative_to(copy.path).as_posix() for path in copy.path.rglob("*")) == [
        "run", "run/deeper", "run/file",
    ]  # fmt: skip
    assert (copy.path / "run" / "file").read_text() == "a"
