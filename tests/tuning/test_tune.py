"""Trials of settings: which are made, which are kept, and what becomes of those that fail."""

import psutil

from cavalcade.api import make_config
from cavalcade.targets.cage2.config import Cage2Config
from cavalcade.targets.gym import GymConfig
from cavalcade.tuning import trials, tune
from cavalcade.tuning.tune import _backends


def imagined(config, seconds):
    """A machine that likes shared memory, many environments and two minibatches."""
    ppo, host = config.ppo, getattr(config, "host", None)
    rate = 1000.0 * ppo.num_envs / (1 + abs(ppo.minibatches - 2))
    if host and host.backend == "shared":
        rate *= 2
    if ppo.num_envs > 128:
        return trials.Trial("", config, trouble="would have used more than 90% of the memory")
    return trials.Trial("", config, rate, 0.5)


def test_the_best_is_found_step_by_step():
    made = list(tune.tune(GymConfig(), 1.0, imagined))
    best = [trial for trial in made if trial.best][-1].config
    assert (best.host.backend, best.ppo.num_envs, best.ppo.minibatches) == ("shared", 128, 2)
    assert 1 < len(made) <= tune.count(GymConfig())
    batches = {t.config.ppo.num_envs * t.config.ppo.rollout_steps for t in made}
    assert batches <= {4096, 8192}
    assert not hasattr(list(tune.tune(Cage2Config(), 1.0, imagined))[-1].config, "host")


def test_differences_within_noise_change_nothing():
    def flat(config, seconds):
        return trials.Trial("", config, 1000.0 + config.ppo.num_envs / 100, 0.5)

    made = list(tune.tune(GymConfig(), 1.0, flat))
    assert [trial.words for trial in made if trial.best] == ["as it is"]
    words = [trial.words for trial in made]
    assert len(set(words)) == len(words)
    assert any("groups" in text and "8 workers" in text for text in words) or tune.cores() != 2


def test_trials_run_apart_and_can_fail():
    fine = trials.run_on_cpu(GymConfig(steps=8192, host=GymConfig().host), 0.1)
    assert fine.rate > 0
    assert 0 < fine.collecting < 1
    broken = trials.run_on_cpu(GymConfig(target="gym:NoSuch-v0"), 0.1)
    assert "NoSuch" in broken.trouble


def test_a_trial_that_eats_the_memory_is_ended(monkeypatch):
    class Full:
        available, total = 1, 100

    monkeypatch.setattr(psutil, "virtual_memory", lambda: Full)
    assert "more than 90% of the memory" in trials.run_on_cpu(GymConfig(), 30.0).trouble


def test_with_staleness_serial_is_not_tried():
    config = make_config("gym:CartPole-v1", {"backend": "async", "staleness": 2})
    assert not [name for name, _ in _backends(config) if name == "serial"]
    assert "serial" in [name for name, _ in _backends(make_config("gym:CartPole-v1", {}))]
