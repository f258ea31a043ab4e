"""Training on hosted environments."""

import json
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from cavalcade.cli.bench.kills import hail
from cavalcade.config import HostConfig, PPOConfig
from cavalcade.ppo.engines.cpu.engine import CpuEngine
from cavalcade.ppo.engines.torch import TorchEngine
from cavalcade.runs.checkpoint import checkpoints
from cavalcade.runs.directory import open_run
from cavalcade.targets.gym import GymConfig
from cavalcade.vector.hosted import Hosted
from cavalcade.vector.source import gym_source

from ..cli.helpers import refused, run
from ..processes import command, start

ROOT = Path(__file__).parent.parent.parent
GAMES = "gym:tests.vector.games"
SMALL = ("--num-envs", "8", "--rollout-steps", "16", "--minibatches", "2", "--hidden", "16", "--threads", "1")


@pytest.mark.parametrize("kind", [CpuEngine, TorchEngine])
def test_what_is_collected_does_not_depend_on_the_backend(kind):
    """Groups at their own pace give the same rollouts, episodes and weights, to the bit."""
    source, found = gym_source("CartPole-v1"), []
    for backend, factor in (("serial", 1), ("pipe", 1), ("shared", 1), ("async", 4)):
        env = Hosted(source, 8, HostConfig(backend=backend, workers=2, async_factor=factor))
        learner = kind(env, PPOConfig(num_envs=8, rollout_steps=40, hidden=(8,), minibatches=2), [3])
        env.reset()
        ended = [learner.collect()]
        learner.update(0.0)
        ended.append(learner.collect())
        env.close()
        rollout = [x.numpy().copy() for x in (*vars(learner.rollout).values(), learner.state.weights)]
        found.append((rollout, [np.concatenate(column) for column in zip(*ended, strict=True)]))
    for rollout, episodes in found[1:]:
        for a, b in zip(found[0][0], rollout, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=0 if kind is CpuEngine else 1e-6)
        for a, b in zip(found[0][1], episodes, strict=True):
            np.testing.assert_array_equal(a, b)


def test_cartpole_is_learnt_and_scored(capsys, tmp_path):
    args = ("train", "gym:CartPole-v1", "--steps", "80000", "--num-envs", "32", "--backend", "serial", "--threads", "1")
    status, out, _ = run(capsys, *args, "--run", tmp_path / "a")
    assert status == 0
    assert re.search(r"79,872 steps in [\d.]+ s", out)
    assert float(re.search(r"new seeds, greedy, 128 episodes: ([\d.]+) ±", out)[1]) > 150
    status, out, _ = run(capsys, "evaluate", tmp_path / "a", "--episodes", "10", "--json", tmp_path / "f.json")
    assert status == 0
    assert len(json.loads((tmp_path / "f.json").read_text())["returns"]) == 10
    assert run(capsys, "evaluate", tmp_path / "a", "--episodes", "10")[1] == out
    few = ("--episodes", "2", "--max-steps", "600")
    assert run(capsys, "evaluate", tmp_path / "a", *few)[0] == 0
    assert run(capsys, "export", tmp_path / "a", "--onnx", tmp_path / "p.onnx")[0] == 0


@pytest.mark.parametrize(("game", "least"), [("Steered-v0", -3.0), ("Picture-v0", None)])
def test_points_and_several_choices_are_learnt(capsys, tmp_path, game, least):
    args = ("train", f"{GAMES}:{game}", *SMALL, "--steps", "40000", "--learning-rate", "0.01", "--backend", "serial")
    status, out, _ = run(capsys, *args, "--run", tmp_path / "a")
    assert status == 0
    assert "torch engine: actions are" in out
    status, said, err = run(capsys, "export", tmp_path / "a", "--onnx", tmp_path / "p.onnx")
    assert status == 0, err
    assert "largest difference from torch" in said
    if least is None:  # no episode ever ends
        more = f"cavalcade evaluate {shlex.quote(str(tmp_path / 'a'))} --max-steps 40000"
        assert f"too few for a score; give them more steps: {more}\n" in out
        assert run(capsys, "evaluate", tmp_path / "a", "--max-steps", "10")[0] == 1
        return
    scores = [run(capsys, "evaluate", tmp_path / "a", *more)[1] for more in ((), ("--sampled",))]
    greedy, sampled = (float(re.search(r"episodes: (-[\d.]+) ±", text)[1]) for text in scores)
    assert greedy > least
    assert sampled < greedy


@pytest.mark.parametrize("staleness", [0, 1])
def test_deduplication_names_the_environment_that_has_none(capsys, tmp_path, staleness):
    args = ("train", "gym:CartPole-v1", *SMALL, "--dedup", "on", "--staleness", staleness, "--run", tmp_path / "a")
    assert "observations of CartPole-v1 are not packed" in run(capsys, *args)[2]


@pytest.mark.parametrize(("at", "advised"), [(2, False), (20, True)])
def test_resuming_is_advised_only_after_an_update(capsys, tmp_path, at, advised):
    small = ("--num-envs", "1", "--rollout-steps", "8", "--minibatches", "1", "--hidden", "8", "--threads", "1")
    trouble = ("--env-options", "trouble=raise", f"at={at}", f"flag={tmp_path / 'flag'}")
    args = ("train", f"{GAMES}:Counting-v0", *small, "--steps", "64", "--backend", "serial", *trouble)
    status, _, err = run(capsys, *args, "--run", tmp_path / "a")
    assert status == 2
    assert "an environment failed" in err
    assert ("resume with" in err) == advised


def test_runs_stop_and_go_on(capsys, tmp_path):
    args = ("train", f"{GAMES}:Informed-v0", *SMALL, "--steps", "4096", "--checkpoint-every", "5", "--quiet")
    assert run(capsys, *args, "--run", tmp_path / "a", "--infos", "half,word")[0] == 0
    folder = tmp_path / "a" / "checkpoints"
    newest = checkpoints(folder)[-1]
    assert newest.name == "00000032"
    shutil.rmtree(newest)
    assert run(capsys, "train", "--resume", tmp_path / "a", "--quiet")[0] == 0
    assert checkpoints(folder)[-1].name == "00000032"
    head, *rows = [row.split(",") for row in (tmp_path / "a" / "episodes.csv").read_text().splitlines()]
    assert head[-3:] == ["length", "half", "word"]
    for row in rows:
        assert int(row[5]) in (5, 7)
        assert float(row[6]) == int(row[5]) / 2
        assert row[7] == "nan"
    assert open_run(tmp_path / "a").config().infos == ("half", "word")


def test_a_broken_environment_stops_the_run_with_a_checkpoint(tmp_path):
    options = ["--max-restarts", "2", "--workers", "1", "--run", tmp_path / "a", "--quiet"]
    done = command("train", f"{GAMES}:Broken-v0", *SMALL, "--steps", "100000", *options, cwd=ROOT)
    assert done.returncode == 2
    assert "after 2 restarts" in done.stderr
    assert "ValueError: something went wrong in the game" in done.stderr
    resume = f"cavalcade train --resume {tmp_path / 'a'}"
    assert done.stderr.endswith(f"resume with: {resume}\nor allow more restarts: {resume} --max-restarts 10\n")
    assert checkpoints(tmp_path / "a" / "checkpoints")


def test_nothing_is_resumed_that_never_began(capsys, tmp_path):
    args = ("train", f"{GAMES}:Stillborn-v0", *SMALL, "--workers", "1", "--max-restarts", "1", "--quiet")
    status, _, err = run(capsys, *args, "--run", tmp_path / "a")
    assert status == 2
    assert "ValueError: nothing works in this game" in err
    assert "resume" not in err
    assert not checkpoints(tmp_path / "a" / "checkpoints")


def test_a_violation_of_the_api_is_told_before_workers_start(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("cavalcade.vector.pool.ProcessPool._start", None)
    said = refused(capsys, "train", f"{GAMES}:Bare-v0", *SMALL, "--run", tmp_path / "a")
    assert "reset of tests.vector.games:Bare-v0 returns one value of type ndarray; Gymnasium requires" in said


def test_an_evaluation_has_the_patience_of_its_training_and_advises_nothing_that_it_refuses(capfd, tmp_path):
    """Options of a training are none of an evaluation, which plays longer here than the training did."""
    args = ("train", f"{GAMES}:Broken-v0", *SMALL, "--steps", "128", "--workers", "1", "--max-restarts", "1", "--quiet")
    assert run(capfd, *args, "--run", tmp_path / "a")[0] == 0
    status, _, err = run(capfd, "evaluate", tmp_path / "a", "--episodes", "200")
    assert status == 2
    assert "after 1 restarts; fix the environment" in err
    assert "--max-restarts" not in err
    assert "resume" not in err


@pytest.mark.parametrize("way", [{"backend": "shared"}, {"backend": "async"}, {"backend": "pipe"}, {"staleness": 2}])
def test_a_hail_of_kills(way, capfd):
    """Every delivered transition is used exactly once, whatever happens to workers."""
    found = hail(6, way)
    assert found.kills == 6
    assert found.wrong == 0
    assert found.handles == 0
    assert found.broken > 0
    assert 4 <= found.restarts <= 6  # a worker can be killed while it is being replaced
    assert "was killed by signal 9" in capfd.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_run_leaves_nobody_behind(tmp_path, number):
    options = ["--steps", "100000000", "--workers", "2", "--run", tmp_path / "a", "--quiet"]
    process = start("train", f"{GAMES}:Counting-v0", *SMALL, *options, cwd=ROOT)
    log = tmp_path / "a" / "episodes.csv"
    while not (log.exists() and log.stat().st_size > 100):
        assert process.poll() is None
        time.sleep(0.05)
    workers = psutil.Process(process.pid).children(recursive=True)
    assert len(workers) == 2
    time.sleep(random.random() / 10)
    process.send_signal(number)
    process.wait()
    _, alive = psutil.wait_procs(workers, timeout=300)
    assert alive == []
    if number != signal.SIGKILL:
        assert checkpoints(tmp_path / "a" / "checkpoints")


def test_packages_in_the_working_folder_are_found(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "gymnasium.register('Mine-v0', entry_point=CartPoleEnv, max_episode_steps=20)\n"
    )
    code = "from cavalcade.cli import main; main()"
    command = [sys.executable, "-c", code, "train", "gym:mine:Mine-v0", *SMALL, "--workers", "1"]
    done = subprocess.run(
        [*command, "--steps", "1000", "--run", "r"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    lengths = [int(row.split(",")[5]) for row in (tmp_path / "r" / "episodes.csv").read_text().splitlines()[1:]]
    assert max(lengths) <= 20


def test_old_gym_goes_through_shimmy(tmp_path):
    options = ["--env-options", "env_id=CartPole-v1", "make_kwargs={disable_env_checker: true}"]
    target = "gym:shimmy:GymV26Environment-v0"
    done = command("train", target, *SMALL, *options, "--steps", "2000", "--run", "r", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "restarting" not in done.stderr
    assert len((tmp_path / "r" / "episodes.csv").read_text().splitlines()) > 20


def test_options_reach_the_environment():
    config = GymConfig(env_options=("is_slippery=false", "size=3", "name=x"), target="gym:FrozenLake-v1")
    assert config.options == {"is_slippery": False, "size": 3, "name": "x"}


def test_bad_input(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for args, words in (
        (("gym:NoSuch-v0",), "cannot be made"),
        (("gym:",), "gym: and the name of an environment"),
        (("gym:CartPole-v1", "--steps", "5"), "fewer than one update"),
        (("gym:CartPole-v1", "--red", "bline"), "--red"),
        (("gym:CartPole-v1", "--workers", "-1"), "workers is -1"),
        (("gym:CartPole-v1", "--worker-timeout", "0"), "worker_timeout is 0"),
        (("gym:CartPole-v1", "--backend", "magic"), "magic"),
        (("gym:CartPole-v1", "--env-options", "x"), "env_options has 'x'"),
        (("gym:CartPole-v1", "--env-options", "x=1"), "cannot be made"),
        (
            ("gym:CartPole-v1", "--true-state-every", "1"),
            "unknown option --true-state-every; gym:CartPole-v1 does not have it, but cyborg",
        ),
        (("gym:CartPole-v1", "--target", "gym:Acrobot-v1"), "the target comes first, without a flag"),
        (("gym:CartPole-v1", "--hardware", "fast"), "hardware is 'fast'"),
        (("cyborg",), "without --cyborg"),
        (("cyborg", "--cyborg", "/tmp"), "/tmp is not a clone"),
    ):
        assert words in refused(capsys, "train", *args), args
