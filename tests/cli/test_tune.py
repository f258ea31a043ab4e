"""`cavalcade tune` and `cavalcade profile` as a user types them."""

import re

import pytest
import yaml

from cavalcade.config.presets import tuned_file
from cavalcade.runs.directory import open_run
from cavalcade.tuning import by_reward, tune

from ..tuning.test_by_reward import Machine
from ..tuning.test_tune import imagined
from .helpers import refused, run


@pytest.fixture(autouse=True)
def _own_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_tune_writes_what_the_next_run_uses(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("cavalcade.cli.tune.tune", lambda config, seconds: tune.tune(config, seconds, imagined))
    args = ("gym:CartPole-v1", "--seconds", "0.5")
    assert "run: cavalcade tune gym:CartPole-v1" in refused(capsys, "train", "gym:CartPole-v1", "--hardware", "tuned")
    status, out, _ = run(capsys, "tune", *args)
    assert status == 0
    assert "would have used more than 90% of the memory" in out
    assert "use it with: cavalcade train gym:CartPole-v1 --hardware tuned" in out
    preset = yaml.safe_load(tuned_file("gym:CartPole-v1").read_text())
    assert preset["host"]["backend"] == "shared"
    small = ("--steps", "16384", "--hidden", "8", "--threads", "1", "--quiet", "--run", tmp_path / "a")
    assert run(capsys, "train", "gym:CartPole-v1", "--hardware", "tuned", *small, "--backend", "serial")[0] == 0
    config = open_run(tmp_path / "a").config()
    assert (config.ppo.num_envs, config.ppo.minibatches, config.host.backend) == (128, 2, "serial")


def test_mettagrid_is_tuned_by_reward(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("cavalcade.cli.tune.tune_by_reward", lambda *given: by_reward.tune_by_reward(*given, Machine()))
    sizes = ("--num-envs", "2", "--batch-size", "1024", "--minibatch-size", "256", "--bptt-horizon", "16")
    status, out, _ = run(capsys, "tune", "mettagrid", *sizes, "--learning-rate", "1e-3", "--train-seconds", "30")
    assert status == 0
    assert "CUDA out of memory" in out
    assert re.search(r"best: 8 environments, batch 4,096 / 512, rate 0.004, 4,096 steps/s, reward 0.33", out)
    found = yaml.safe_load(tuned_file("mettagrid").read_text())["ppo"]
    assert (found["num_envs"], found["batch_size"], found["minibatch_size"]) == (8, 4096, 512)
    arena = ("--env-options", "agents=4", "size=11", "max_steps=20", "mines=6", "--width", "16", "--device", "cpu")
    small = ("--steps", "4096", "--threads", "1", "--quiet", "--run", tmp_path / "a")
    assert run(capsys, "train", "mettagrid", "--hardware", "tuned", *arena, *small)[0] == 0
    config = open_run(tmp_path / "a").config()
    assert {name: getattr(config.ppo, name) for name in found} == found


def test_tune_looks_first_whether_it_can_keep_what_it_finds(capsys, monkeypatch):
    monkeypatch.setattr("cavalcade.cli.tune.tune", lambda *given: iter(()))
    monkeypatch.setenv("XDG_CONFIG_HOME", "/proc/nowhere")
    assert "/proc/nowhere/cavalcade/tuned cannot be created" in refused(capsys, "tune", "cage2")


def test_profile_takes_any_target(capsys):
    args = ("--updates", "2", "--num-envs", "4", "--rollout-steps", "8", "--hidden", "8", "--threads", "1")
    status, out, _ = run(capsys, "profile", "gym:CartPole-v1", *args)
    assert status == 0
    assert "64 steps in" in out
    assert "bottleneck: " in out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["tune"], "no target"),
        (["tune", "chess"], "chess"),
        (["tune", "cage2", "--seconds", "0"], "seconds is 0.0"),
        (["tune", "cage2", "--seconds", "soon"], "soon"),
        (["tune", "cage2", "--by", "luck"], "luck"),
        (["tune", "cage2", "--largest-batch", "0"], "largest_batch is 0"),
        (["tune", "mettagrid", "--train-seconds", "0"], "train_seconds is 0.0"),
        (["tune", "mettagrid", "--by", "speed"], "mettagrid is tuned by reward"),
        (["tune", "cage2", "--device", "cuda"], "torch sees no GPU"),
        (["profile", "gym:NoSuch-v0"], "cannot be made"),
    ],
)
def test_bad_input(capsys, args, words):
    assert words in refused(capsys, *args)
