"""`cavalcade tune` and `cavalcade profile` as a user types them."""

import pytest
import yaml

from cavalcade.config.presets import tuned_file
from cavalcade.runs.directory import open_run
from cavalcade.tuning import tune

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


def test_tune_looks_first_whether_it_can_keep_what_it_finds(capsys, monkeypatch):
    monkeypatch.setattr("cavalcade.cli.tune.tune", None)
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
        (["tune", "cage2", "--device", "cuda"], "only trainings on the CPU are tuned"),
        (["tune", "mettagrid"], "bench mettagrid --parts ablation"),
        (["profile", "gym:NoSuch-v0"], "cannot be made"),
    ],
)
def test_bad_input(capsys, args, words):
    assert words in refused(capsys, *args)
