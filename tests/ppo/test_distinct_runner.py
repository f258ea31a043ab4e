"""Actions that are computed once per distinct observation are those of the runner itself."""

import numpy as np
import pytest

from cavalcade.envs.cage2.env import Cage2
from cavalcade.policy.mlp import MlpSpec
from cavalcade.ppo import distinct_runner
from cavalcade.ppo.distinct_runner import DistinctRunner
from cavalcade.ppo.runner import PolicyRunner


@pytest.mark.parametrize("first", [8, 4096])
def test_actions_are_those_of_the_runner(monkeypatch, first):
    monkeypatch.setattr(distinct_runner, "_FIRST", first)
    env = Cage2(64, red="meander", horizon=20, extras=("scans",))
    env.reset()
    inputs = env.buffers.observation.shape[1]
    spec = MlpSpec(inputs, 145, (8,), 0)
    weights = np.random.default_rng(0).normal(size=(1, spec.size)).astype(np.float32)
    plain = PolicyRunner(spec, weights, np.zeros((1, 0)), np.zeros((1, inputs)), np.ones((1, inputs)))
    asked = []

    def counted(part):
        asked.append(part.spec.num_envs)
        return plain(part)

    fast = DistinctRunner(counted)
    for _ in range(40):
        actions = fast(env)
        np.testing.assert_array_equal(actions, plain(env))
        env.step(actions)
    assert fast.distinct == sum(asked) < 64 * 40 / 2
    before = sum(asked)
    fast(env)
    fast(env)
    assert sum(asked) - before <= 64
