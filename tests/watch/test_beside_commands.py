"""`train --watch` and `search --watch`: while the command works, the page that it announced shows its run."""

import io
import json
import urllib.request
from contextlib import redirect_stdout

import pytest

from cavalcade.cli import main, search, train

TINY = ("--hidden", "8", "--threads", "1")
TRAIN = ("train", "cage2", *TINY, "--num-envs", "2", "--rollout-steps", "5", "--horizon", "5", "--episodes", "8")
SEARCH = (
    "search", "gridworld", *TINY, "--num-envs", "5", "--max-episodes", "2", "--total-episodes", "30",
    "--n-workflows", "2", "--score-episodes", "4", "--confirm", "1", "--rivals", "1",
)  # fmt: skip


def watched(monkeypatch, module, name, args, look):
    """Runs a command with --watch; look(address) is called when `name` of its module has done its work."""
    said, work, seen = io.StringIO(), getattr(module, name), []

    def then_look(*args, **options):
        found = work(*args, **options)
        seen.append(look(said.getvalue().split("watch ")[1].split()[0]))
        return found

    monkeypatch.setattr(module, name, then_look)
    with redirect_stdout(said), pytest.raises(SystemExit) as stop:
        main([str(arg) for arg in args])
    assert not stop.value.code
    return seen


def asked(address, what):
    base, _, path = address.partition("#/run/")
    with urllib.request.urlopen(f"{base}api/{what}{path}") as answer:
        return json.load(answer)


def test_a_training_with_its_phases(monkeypatch, runs):
    def look(address):
        return asked(address, "run?path=")

    (found,) = watched(monkeypatch, train, "run_training", (*TRAIN, "--watch", "--run", runs / "one"), look)
    assert found["summary"]["state"] == "finished"
    assert found["summary"]["update"] == 4
    assert {"act", "step", "update"} <= found["phases"].keys()
    rounding = 0.0005 * len(found["phases"])  # they are shown in whole milliseconds
    assert 0 < sum(found["phases"].values()) <= found["checkpoints"][-1]["seconds"] + rounding


def test_a_search_with_its_ranking_in_the_browser(monkeypatch, page, runs):
    def look(address):
        page.goto(address)
        page.wait_for_selector(".page-run h1:has-text('found')")
        page.wait_for_selector("tr:has-text('north east')")
        page.wait_for_selector(".fact:has-text('best score')")
        page.goto("about:blank")  # the server is about to end
        return asked(address, "search?path=")

    (found,) = watched(monkeypatch, search, "_search", (*SEARCH, "--watch", "--run", runs / "found"), look)
    assert found["trainings"]


def test_several_searches_are_a_list(monkeypatch, runs):
    def look(address):
        return asked(address, "runs")

    options = ("--watch", "--seeds", "2", "--quiet", "--run", runs / "found")
    found = watched(monkeypatch, search, "_search", (*SEARCH, *options), look)
    assert [sorted(run["path"] for run in each["runs"]) for each in found] == [["seed-0"], ["seed-0", "seed-1"]]
