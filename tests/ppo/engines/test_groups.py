"""Environments stepped in groups: experience and weights do not depend on which group is ahead."""

import numpy as np
import pytest
import torch

from cavalcade.config import PPOConfig
from cavalcade.envs.cage2 import Cage2, cpu
from cavalcade.ppo.engines.cpu.engine import CpuEngine
from cavalcade.ppo.engines.torch import TorchEngine

N, T = 8, 12


class Grouped(Cage2):
    """Games in two groups, whose results arrive as `arrival` says: the number of the group among those under way."""

    def __init__(self, arrival):
        super().__init__(N, red="bline", horizon=5)
        self._arrival, self._under_way = arrival, []

    @property
    def groups(self):
        return slice(0, N // 2), slice(N // 2, N)

    def send_group(self, group, actions):
        self._actions[self.groups[group]] = actions
        self._under_way.append(group)

    def wait_any(self):
        group = self._under_way.pop(self._arrival(self._under_way))
        rows = self.groups[group]
        cpu.step_range(self.state, self.params, self._actions, self._outputs, rows.start, rows.stop)
        return group


def in_turns(under_way):
    return 0


def the_last_first(under_way):
    """The second group makes all of its steps before the first."""
    return under_way.index(max(under_way))


def the_first_first(under_way):
    return under_way.index(min(under_way))


def trained(env, kind, updates=3):
    """Experience and weights after some updates."""
    config = PPOConfig(num_envs=N, rollout_steps=T, minibatches=2, hidden=(16,), normalise_observations=True)
    if kind == "torch":
        engine = TorchEngine(env, config, [0])
    else:
        engine = CpuEngine(env, config, [0], distinct=kind == "distinct")
    env.reset()
    for update in range(updates):
        episodes = engine.collect()
        engine.update(update / updates)
    r = engine.rollout
    return r.action.clone(), r.reward.clone(), r.log_prob.clone(), r.value.clone(), episodes, engine.state.weights


@pytest.mark.parametrize("kind", ["torch", "plain", "distinct"])
def test_arrival_changes_nothing(kind):
    expected = trained(Grouped(in_turns), kind)
    for arrival in (the_first_first, the_last_first):
        found = trained(Grouped(arrival), kind)
        for mine, theirs in zip(found, expected, strict=True):
            if isinstance(mine, torch.Tensor):
                torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
        np.testing.assert_array_equal(found[4].total, expected[4].total)


@pytest.mark.parametrize("kind", ["plain", "distinct"])
def test_groups_learn_what_one_batch_learns(kind):
    whole = trained(Cage2(N, red="bline", horizon=5), kind)
    for mine, theirs in zip(trained(Grouped(the_last_first), kind), whole, strict=True):
        if isinstance(mine, torch.Tensor):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
