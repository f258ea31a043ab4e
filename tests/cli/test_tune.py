"""`cavalcade tune` and `cavalcade bench envs` as a user types them."""

import json

import pytest
import yaml

from cavalcade.bench import tune
from cavalcade.config import GymTrainConfig, TrainConfig
from cavalcade.presets import tuned_file
from cavalcade.runs.directory import open_run

from .helpers import refused, run


@pytest.fixture(autouse=True)
def _own_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def imagined(config, seconds):
    """A machine that likes shared memory, many environments and two minibatches."""
    ppo, host = config.ppo, getattr(config, "host", None)
    rate = 1000.0 * ppo.num_envs / (1 + abs(ppo.minibatches - 2))
    if host and host.backend == "shared":
        rate *= 2
    if ppo.num_envs > 128:
        return tune.Trial("", config, trouble="would have used more than 90% of the memory")
    return tune.Trial("", config, rate, 0.5)


def test_the_best_is_found_step_by_step():
    trials = list(tune.tune(GymTrainConfig(), 1.0, imagined))
    best = [trial for trial in trials if trial.best][-1].config
    assert (best.host.backend, best.ppo.num_envs, best.ppo.minibatches) == ("shared", 128, 2)
    assert 1 < len(trials) <= tune.count(GymTrainConfig())
    batches = {t.config.ppo.num_envs * t.config.ppo.update_steps for t in trials}
    assert batches <= {4096, 8192}
    assert not hasattr(list(tune.tune(TrainConfig(), 1.0, imagined))[-1].config, "host")


def test_differences_within_noise_change_nothing():
    def flat(config, seconds):
        return tune.Trial("", config, 1000.0 + config.ppo.num_envs / 100, 0.5)

    trials = list(tune.tune(GymTrainConfig(), 1.0, flat))
    assert [trial.words for trial in trials if trial.best] == ["as it is"]
    words = [trial.words for trial in trials]
    assert len(set(words)) == len(words)
    assert any("groups" in text and "8 workers" in text for text in words) or tune.cores() != 2


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


def test_trials_run_apart_and_can_fail():
    fine = tune.run_trial(GymTrainConfig(steps=8192, host=GymTrainConfig().host), 0.1)
    assert fine.rate > 0
    assert 0 < fine.collecting < 1
    broken = tune.run_trial(GymTrainConfig(target="gym:NoSuch-v0"), 0.1)
    assert "NoSuch" in broken.trouble


def test_a_trial_that_eats_the_memory_is_ended(monkeypatch):
    class Full:
        available, total = 1, 100

    monkeypatch.setattr(tune.psutil, "virtual_memory", lambda: Full)
    assert "more than 90% of the memory" in tune.run_trial(GymTrainConfig(), 30.0).trouble


def test_profile_takes_any_target(capsys):
    args = ("--updates", "2", "--num-envs", "4", "--update-steps", "8", "--hidden", "8", "--threads", "1")
    status, out, _ = run(capsys, "profile", "gym:CartPole-v1", *args)
    assert status == 0
    assert "64 steps in" in out
    assert "bottleneck: " in out


def test_bench_envs_prints_and_writes(capsys, tmp_path):
    args = ("--parts", "cheap,waiting", "--seconds", "0.1", "--envs", "8", "--json", tmp_path / "f.json")
    status, out, _ = run(capsys, "bench", "envs", *args)
    assert status == 0
    for name in ("serial", "pipe", "shared", "async", "Gymnasium SyncVectorEnv", "Gymnasium AsyncVectorEnv"):
        assert name in out
    assert "× the best of" in out
    figures = json.loads((tmp_path / "f.json").read_text())
    assert all(rate > 0 for rate in figures["cheap"]["8"].values())
    assert 0 <= figures["waiting"]["shared"] < 0.5


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["tune"], "no target"),
        (["tune", "chess"], "chess"),
        (["tune", "cage2", "--seconds", "0"], "seconds is 0.0"),
        (["tune", "cage2", "--seconds", "soon"], "soon"),
        (["profile", "gym:NoSuch-v0"], "cannot be made"),
        (["bench", "envs", "--parts", "cyborg"], "without --cyborg"),
        (["bench", "envs", "--envs", "2"], "envs is 2"),
        (["bench", "envs", "--kills", "0"], "kills is 0"),
    ],
)
def test_bad_input(capsys, args, words):
    assert words in refused(capsys, *args)
