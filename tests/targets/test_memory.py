"""Runs with recurrent policies: loaded, they act with a state as their runner does."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch

from cavalcade.config import PPOConfig, WorkerConfig
from cavalcade.config.memory import MemoryConfig
from cavalcade.core.errors import ActionError, ConfigError, StateError
from cavalcade.runs.directory import RunDirectory
from cavalcade.runs.policies import load_policy
from cavalcade.runs.training import Training
from cavalcade.targets.cage2.config import Cage2Config
from cavalcade.targets.decision import explain
from cavalcade.targets.gym import GymConfig, GymTarget
from cavalcade.vector.hosted import Hosted
from cavalcade.vector.source import gym_source

PPO = PPOConfig(num_envs=4, rollout_steps=8, minibatches=2, hidden=(8,), normalise_observations=True)
LSTM = MemoryConfig(memory="lstm", bptt_horizon=4)


def test_a_loaded_policy_carries_its_state(tmp_path):
    host = replace(GymConfig().host, backend="serial")
    config = GymConfig(target="gym:CartPole-v1", host=host, ppo=PPO, recurrence=LSTM, steps=64)
    run = RunDirectory(tmp_path / "run", GymConfig)
    with run.locked():
        training = Training(run, config, quiet=True, threads=1)
        assert training.notes == ["lstm of width 8"]
        assert training.train().finished
    policy = load_policy(run.path)
    with torch.no_grad():
        policy.network.critic.weight *= 100  # so that memory shows
    env = Hosted(gym_source("CartPole-v1"), 3, WorkerConfig(backend="serial"))
    env.reset()
    runner, state = policy.runner(greedy=True), policy.initial_state(3)
    for _ in range(30):
        over = env.buffers.terminated | env.buffers.truncated
        state.reset(np.flatnonzero(over))
        actions = policy(env.buffers.observation, state=state)
        np.testing.assert_array_equal(runner(env), actions)
        env.step(actions)
    shown = env.buffers.observation[0]
    fresh, after = policy.evaluate(shown), policy.initial_state()
    policy(shown, state=after)
    assert policy.evaluate(shown).value == pytest.approx(fresh.value)
    assert policy.evaluate(shown, state=after).value != pytest.approx(fresh.value, abs=1e-7)
    assert GymTarget().evaluate(policy, GymTarget.EvaluateOptions(episodes=4)).mean > 0
    told, state = [], policy.initial_state()
    for _ in range(2):
        expected = policy.evaluate(shown, state=deepcopy(state))
        told.append(explain(policy, env, state=state))  # what `play` shows depends on the episode so far
        assert f"{expected.probabilities.max():.1%}" in told[-1]
        assert told[-1].endswith(f"value {expected.value:.2f}")
    assert told[0] != told[1]
    with pytest.raises(ActionError, match=r"takes \(4,\)"):
        policy(np.zeros(5))
    with pytest.raises(ConfigError, match="has 1, numbered from 0"):
        policy[1]
    assert list(policy) == [policy]
    with pytest.raises(ActionError, match=r"mask has shape \(3,\); with 1 observation it must be \(2,\)"):
        policy(shown, np.ones(3))
    with pytest.raises(StateError, match=r"state is of type Tensor; make one with policy.initial_state\(1\)"):
        policy(shown, None, torch.zeros(8))
    with pytest.raises(StateError, match=r"\(1, 3, 8\).* takes \[\(1, 1, 8\), \(1, 1, 8\)\] here"):
        policy(shown, state=policy.initial_state(3))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"policies": 2}, "policies is 2 with memory lstm; train one policy per run"),
        ({"ppo": PPOConfig(replay=1)}, "replay is 1 with memory lstm"),
    ],
)
def test_cage2_refuses_what_does_not_fit(given, said):
    with pytest.raises(ConfigError, match=said):
        Cage2Config(**{"recurrence": MemoryConfig(memory="lstm")} | given)
