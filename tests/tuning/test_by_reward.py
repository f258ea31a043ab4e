"""Tuning by reward: sizes double until memory ends, then trainings of equal time are compared."""

import json
import sys
from dataclasses import replace

import pytest

from cavalcade.config.io import as_dict
from cavalcade.config.recurrent import MachineConfig, RecurrentPPOConfig, TokenPolicyConfig
from cavalcade.core.errors import ConfigError
from cavalcade.envs.mettagrid.task import MettagridTask
from cavalcade.ppo.engines.recurrent.engine import RecurrentEngine
from cavalcade.targets.cage2.config import Cage2Config
from cavalcade.targets.mettagrid.config import MettagridConfig
from cavalcade.tuning import trial, trials
from cavalcade.tuning.by_reward import Budget, most_trials, preset_by_reward, tune_by_reward
from cavalcade.tuning.trials import Trial

SMALL = RecurrentPPOConfig(num_envs=2, batch_size=1024, minibatch_size=256, bptt_horizon=16, learning_rate=1e-3)
CONFIG = MettagridConfig(ppo=SMALL)
BUDGET = Budget(seconds=1.0, train_seconds=30.0, largest_batch=2**20)
FULL = "torch.OutOfMemoryError: CUDA out of memory"


class Machine:
    """Runs out of memory beyond a batch, is faster with larger ones, and learns best with one size and rate."""

    def __init__(self, memory=8192, saturated=4096, best=(4096, 512, 4e-3)):
        self.memory, self.saturated, self.best = memory, saturated, best
        self.trained = []

    def __call__(self, config, seconds):
        p = config.ppo
        if p.batch_size > self.memory:
            return Trial("", config, trouble=FULL)
        if seconds == BUDGET.train_seconds:
            self.trained.append(p)
        off = [max(a / b, b / a) for a, b in zip((p.batch_size, p.minibatch_size, p.learning_rate), self.best)]  # noqa: B905
        return Trial("", config, float(min(p.batch_size, self.saturated)), 0.5, reward=1 / sum(off))


def test_sizes_double_until_memory_ends():
    trials = list(tune_by_reward(CONFIG, BUDGET, Machine()))
    speeds = [t for t in trials if ", rate" not in t.words]
    assert [t.config.ppo.batch_size for t in speeds] == [1024, 2048, 4096, 8192, 16384]
    assert [t.config.ppo.num_envs for t in speeds] == [2, 4, 8, 16, 32]
    assert [bool(t.trouble) for t in speeds] == [False] * 4 + [True]
    assert speeds[-1].trouble == FULL
    assert len(trials) <= most_trials(CONFIG, BUDGET.largest_batch)


def test_the_best_is_the_one_with_the_highest_reward():
    machine = Machine()
    trials = list(tune_by_reward(CONFIG, BUDGET, machine))
    best = [t for t in trials if t.best][-1]
    assert (best.config.ppo.batch_size, best.config.ppo.minibatch_size) == (4096, 512)
    assert best.config.ppo.learning_rate == pytest.approx(4e-3)
    assert best.reward == max(t.reward for t in trials if ", rate" in t.words)
    assert 8192 not in {p.batch_size for p in machine.trained}  # as slow as 4096, and it learns less per step
    assert preset_by_reward(best.config)["ppo"]["bptt_horizon"] == 16


def test_a_limit_ends_the_doubling_too():
    trials = tune_by_reward(CONFIG, replace(BUDGET, largest_batch=2048), Machine())
    assert {t.config.ppo.batch_size for t in trials} == {1024, 2048}


def test_populations_of_perceptrons_are_tuned_the_same_way():
    def flat(config, seconds):
        return Trial("", config, float(config.ppo.num_envs), 0.5, reward=-100.0 + config.ppo.minibatches)

    config = Cage2Config()
    trials = list(tune_by_reward(config, replace(BUDGET, largest_batch=20_000), flat))
    assert [t.config.ppo.num_envs for t in trials[:3]] == [50, 100, 200]
    best = [t for t in trials if t.best][-1]
    assert best.config.ppo.minibatches == 4
    assert set(preset_by_reward(best.config)["ppo"]) == {
        "num_envs", "rollout_steps", "minibatches", "epochs", "learning_rate",
    }  # fmt: skip


def test_a_trial_tells_speed_and_reward(monkeypatch):
    begun = []
    monkeypatch.setattr(RecurrentEngine, "refresh", lambda engine: begun.append(engine.env.begun))
    arena = MettagridTask(env_options=("agents=4", "size=11", "max_steps=20", "mines=6"))
    ppo = replace(SMALL, batch_size=128, minibatch_size=64)
    config = MettagridConfig(
        arena=arena, ppo=ppo, policy=TokenPolicyConfig(width=16), machine=MachineConfig(device="cpu")
    )
    found = trial.main({"config": as_dict(config), "seconds": 0.01, "path": sys.path})
    assert found["rate"] > 0
    assert found["reward"] >= 0
    assert found["notes"] == []
    assert begun == [True]  # a device sees games once they have begun


def test_memory_that_runs_out_within_a_trial_is_trouble(monkeypatch):
    """The engine goes on in halves, and says so; a larger batch is not tried."""
    told = {"rate": 1.0, "collecting": 0.5, "reward": 1.0, "notes": ["out of memory: minibatches of 64 are …"]}
    script = f"print({json.dumps(json.dumps(told))})"
    monkeypatch.setattr(trials, "_command", lambda task: [sys.executable, "-S", "-c", script])
    assert trials.run_trial(CONFIG, 0.1).trouble.startswith("out of memory")


def test_what_does_not_run_is_refused():
    with pytest.raises(ConfigError, match=r"do not run: torch\.OutOfMemoryError"):
        list(tune_by_reward(CONFIG, BUDGET, Machine(memory=100)))
    with pytest.raises(ConfigError, match="give more --train-seconds"):
        list(tune_by_reward(CONFIG, BUDGET, lambda config, seconds: Trial("", config, 1.0, 0.5)))
