"""State and progress of runs, from their files."""

import shutil

import pytest

from cavalcade.config.io import as_dict
from cavalcade.targets import target_named
from cavalcade.watch.runs import Listing, is_locked, planned

from .helpers import held, make_run, row


def states(runs):
    return {run["path"]: run["state"] for run in Listing(runs)()}


def test_states(runs):
    make_run(runs / "finished", updates=100, checkpoint=100)
    make_run(runs / "stopped", checkpoint=20)
    make_run(runs / "failed", checkpoint=10)
    make_run(runs / "young", updates=0)
    make_run(runs / "damaged")
    (runs / "damaged" / "config.yaml").write_text("[unclosed")
    make_run(runs / "deeper" / "still" / "running", checkpoint=10)
    with held(runs / "deeper/still/running"):
        assert states(runs) == {
            "finished": "finished", "stopped": "stopped", "failed": "failed", "young": "failed", "damaged": "damaged",
            "deeper/still/running": "running",
        }  # fmt: skip
        shutil.copytree(runs / "deeper/still/running", runs / "copy")
        assert states(runs)["copy"] == "failed"  # nobody holds the lock of a copy
    assert states(runs)["deeper/still/running"] == "failed"


def test_looking_leaves_the_lock_free(runs):
    path = make_run(runs / "a")
    assert not is_locked(path)
    with held(path):
        assert is_locked(path)
    assert not is_locked(path)


def test_numbers(runs):
    make_run(runs / "a", updates=40, planned=100, policies=2)
    (found,) = Listing(runs)()
    assert (found["update"], found["updates"], found["steps"], found["policies"]) == (40, 100, 400_000, 2)
    assert found["speed"] == pytest.approx(20_000)
    assert found["score"] < 0
    assert found["spread"][0] < found["spread"][1]


def test_only_changed_runs_are_read_again(runs, monkeypatch):
    make_run(runs / "a")
    make_run(runs / "b")
    listing = Listing(runs)
    listing()
    read = []
    monkeypatch.setattr("cavalcade.watch.runs.read_yaml", lambda path: read.append(path.parent.name) or {})
    with (runs / "b" / "metrics.jsonl").open("a") as file:
        file.write(row(21))
    listing()
    assert read == ["b"]


def test_a_run_that_vanishes_leaves_the_list(runs):
    make_run(runs / "a")
    listing = Listing(runs)
    assert len(listing()) == 1
    shutil.rmtree(runs / "a")
    assert listing() == []


@pytest.mark.parametrize("target", ["cage2", "gym:CartPole-v1", "mettagrid"])
def test_planned_updates_are_those_of_the_configuration(target):
    config = target_named(target).Config(target=target)
    policies = getattr(config, "policies", 1)
    ppo = config.ppo
    batch = getattr(ppo, "batch_size", 0) or policies * ppo.num_envs * ppo.rollout_steps
    latest = {"update": 7, "steps": 7 * batch, "policies": policies}
    assert planned(as_dict(config), latest, search=False) == config.updates


def test_a_folder_that_is_a_run(runs):
    (found,) = Listing(make_run(runs / "a"))()
    assert (found["path"], found["name"]) == (".", "a")
