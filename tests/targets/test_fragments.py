"""Training on fragments from the command line: the same without staleness, resumed, and in CybORG's stand-in."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from cavalcade.config.io import from_dict
from cavalcade.targets.gym import GymConfig

from ..cli.helpers import run
from ..envs.cage2.fake_cyborg import make_clone

SMALL = ("--num-envs", "8", "--rollout-steps", "16", "--workers", "2", "--hidden", "8", "--threads", "1", "--quiet")


def weights(folder):
    newest = max((folder / "checkpoints").iterdir())
    return load_file(newest / "policy.safetensors")


def rows(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_staleness_0_is_synchronous_training_to_the_bit(capsys, tmp_path):
    args = ("train", "gym:CartPole-v1", *SMALL, "--steps", "640", "--engine", "torch")
    for name, more in (("a", ()), ("b", ("--staleness", "0"))):
        assert run(capsys, *args, *more, "--run", tmp_path / name)[0] == 0
    one, two = weights(tmp_path / "a"), weights(tmp_path / "b")
    for name, array in one.items():
        np.testing.assert_array_equal(array, two[name])
    assert "staleness" not in rows(tmp_path / "b")[-1]


def test_a_run_is_resumed_and_scored(capsys, tmp_path):
    args = ("train", "gym:CartPole-v1", *SMALL, "--staleness", "2", "--engine", "torch", "--monitor-every", "2")
    assert run(capsys, *args, "--steps", "1280", "--run", tmp_path / "a")[0] == 0
    assert run(capsys, "train", "--resume", tmp_path / "a", "--steps", "1920", "--quiet")[0] == 0
    found = rows(tmp_path / "a")
    assert [row["steps"] for row in found] == [128 * (i + 1) for i in range(15)]
    assert max(row["staleness"][0] for row in found) <= 2
    assert "workers_waiting" in found[1]
    assert "workers_waiting" not in found[0]
    assert run(capsys, "evaluate", tmp_path / "a", "--episodes", "4")[0] == 0


def test_cyborg_plays_by_itself(capsys, tmp_path):
    clone = make_clone(tmp_path / "clone")
    args = ("train", "cyborg", "--cyborg", clone, *SMALL, "--horizon", "8", "--episodes", "80", "--max-restarts", "90")
    assert run(capsys, *args, "--staleness", "2", "--run", tmp_path / "a")[0] == 0
    lines = (tmp_path / "a" / "episodes.csv").read_text().splitlines()
    assert lines[0] == "update,policy,environment,kind,return,length"
    kinds = {line.split(",")[3] for line in lines[1:]}
    assert "bline" in kinds <= {"bline", "broken"}  # the stand-in fails on one of the actions
    assert rows(tmp_path / "a")[-1]["steps"] == 640


@pytest.mark.parametrize("memory", ["none", "lstm"])
def test_workers_that_never_answer_end_the_run_with_a_checkpoint(capsys, tmp_path, memory):
    args = ("train", "gym:tests.vector.games:Mute-v0", *SMALL, "--staleness", "2", "--memory", memory)
    folder, limits = tmp_path / "a", ("--worker-timeout", "1", "--max-restarts", "1")
    status, out, err = run(capsys, *args, *limits, "--steps", "12800", "--run", folder)
    assert status == 2
    assert "Traceback" not in out
    assert "has not answered for 1 s; restarting it (1 of 1)" in err
    assert "has not answered for 1 s, after 1 restarts; fix the environment" in err
    assert "resume with" not in err  # no update was made
    assert list((folder / "checkpoints").iterdir())


def test_policies_with_memory_collect_while_they_learn(capsys, tmp_path):
    args = ("train", "gym:CartPole-v1", *SMALL, "--staleness", "2", "--memory", "gru")
    assert run(capsys, *args, "--steps", "1280", "--run", tmp_path / "a")[0] == 0
    assert run(capsys, "train", "--resume", tmp_path / "a", "--steps", "1920", "--quiet")[0] == 0
    found = rows(tmp_path / "a")
    assert [row["steps"] for row in found] == [128 * (i + 1) for i in range(15)]
    assert 1 <= max(row["staleness"][0] for row in found) <= 2
    assert run(capsys, "evaluate", tmp_path / "a", "--episodes", "4")[0] == 0


@pytest.mark.parametrize(("backend", "lag"), [("async", 0), ("ray", 3)])
def test_settings_of_older_runs_are_read(backend, lag):
    old = {"target": "gym:CartPole-v1", "staleness": 3, "vtrace": True, "host": {"backend": backend}}
    assert from_dict(GymConfig, old).host.lag == lag
