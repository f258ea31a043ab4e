"""Critics of Gymnasium environments that see the true state."""

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

import cavalcade
from cavalcade.core.errors import ConfigError
from tests.targets import test_gym_critic as here


class Veiled(CartPoleEnv):
    """CartPole whose velocities are hidden."""

    def __init__(self, **options):
        super().__init__(**options)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def reset(self, **options):
        observation, info = super().reset(**options)
        return observation[[0, 2]], info

    def step(self, action):
        observation, *rest = super().step(action)
        return observation[[0, 2]], *rest

    def true_state(self):
        return np.asarray(self.state)


gymnasium.register("tests/Veiled-v0", lambda **options: Veiled(**options), max_episode_steps=50)


def test_the_policy_does_not_need_it(tmp_path):
    sizes = {"num_envs": 4, "rollout_steps": 16, "steps": 256, "backend": "serial"}
    given = {"run": tmp_path / "run", "progress": False, "critic": "true-state"}
    run = cavalcade.train(f"gym:{here.__name__}:tests/Veiled-v0", **given, **sizes)
    policy = cavalcade.load_policy(run.path)
    assert policy.spec.inputs == 2
    assert policy([0.0, 0.1]) in (0, 1)
    assert np.isnan(policy.evaluate([0.0, 0.1]).value)
    assert run.evaluate(episodes=4).scores


def test_environments_without_a_true_state_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"no method true_state\(\)"):
        cavalcade.train("gym:CartPole-v1", run=tmp_path / "run", progress=False, critic="true-state")
    with pytest.raises(ConfigError, match="leave one of them out"):
        cavalcade.train("gym:CartPole-v1", run=tmp_path / "run", critic="true-state", memory="lstm")
    assert not (tmp_path / "run").exists()
