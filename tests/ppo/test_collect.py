"""Rollouts: what is recorded where, on a game that can be worked out by hand."""

import numpy as np
import pytest
import torch

from cavalcade.config import PPOConfig
from cavalcade.ppo.engines.cpu.engine import CpuEngine
from cavalcade.ppo.engines.torch import TorchEngine

from .toy import Toy

LEARNERS = [pytest.param(CpuEngine, id="cpu"), pytest.param(TorchEngine, id="torch")]


def make(kind, n=6, steps=8, policies=1, **settings):
    env = Toy(n * policies)
    learner = kind(env, PPOConfig(num_envs=n, rollout_steps=steps, hidden=(8,), **settings), list(range(policies)))
    env.reset()
    return learner


def value_of(learner, *observation):
    x = torch.tensor([[observation]], dtype=torch.float32)
    from cavalcade.policy.mlp import forward

    return float(forward(learner.spec, learner.state.weights[:1], x)[1])


@pytest.mark.parametrize("kind", LEARNERS)
def test_ends_bootstrap_and_last_values(kind):
    learner = make(kind)
    episodes = learner.collect()
    r = learner.rollout
    for e in range(6):
        length = 3 + e % 3
        assert r.ended[0, :, e].tolist() == [(t + 1) % length == 0 for t in range(8)]
        for t in r.ended[0, :, e].nonzero().flatten().tolist():
            expected = value_of(learner, length, e % 3) if e % 2 else 0.0  # out of time, or over
            assert float(r.bootstrap[0, t, e]) == pytest.approx(expected, abs=1e-6)
        if 8 % length:
            assert float(r.last_value[0, e]) == pytest.approx(value_of(learner, 8 % length, e % 3), abs=1e-6)
    assert len(episodes.total) == sum(8 // (3 + e % 3) for e in range(6))
    assert (episodes.length == 3 + episodes.environment % 3).all()
    assert (episodes.kind == episodes.environment % 2).all()


@pytest.mark.parametrize("kind", LEARNERS)
def test_the_horizon_as_the_end_bootstraps_nothing(kind):
    learner = make(kind, timeout_is_terminal=True)
    learner.collect()
    assert not learner.rollout.bootstrap.any()


@pytest.mark.parametrize("kind", LEARNERS)
def test_episodes_go_on_over_the_edge_of_a_rollout(kind):
    learner = make(kind, steps=2)
    found = [learner.collect() for _ in range(3)]  # 6 steps
    lengths = np.concatenate([part.length for part in found])
    environments = np.concatenate([part.environment for part in found])
    for e in range(6):
        assert (lengths[environments == e] == 3 + e % 3).all()
    rewards = np.concatenate([part.total for part in found])
    assert ((rewards - lengths) % 10 == 0).all()


@pytest.mark.parametrize("kind", LEARNERS)
def test_masked_actions_are_never_taken_and_the_game_is_learnt(kind):
    learner = make(kind, n=30, steps=10, learning_rate=0.02)
    for _ in range(30):
        learner.collect()
        assert (learner.rollout.action != 2).all()
        learner.update(0.0)
    assert (learner.rollout.action == 1).float().mean() > 0.95


def test_draws_follow_the_probabilities():
    """Frequencies of drawn actions against the policy's own probabilities, chi-squared."""
    learner = make(CpuEngine, n=3000, steps=4)
    learner.state.weights[:] = torch.randn(learner.state.weights.shape, generator=torch.Generator().manual_seed(0))
    learner.refresh()
    learner.collect()
    first = learner.rollout.action[0, 0].numpy()
    log_prob = learner.rollout.log_prob[0, 0].numpy()
    for kind in range(3):  # environments with the same observation
        here = np.arange(3000) % 3 == kind
        p = np.exp([log_prob[here & (first == a)][0] for a in (0, 1)])
        assert p.sum() == pytest.approx(1, abs=1e-5)
        counts = np.bincount(first[here], minlength=3)[:2]
        assert ((counts - here.sum() * p) ** 2 / (here.sum() * p)).sum() < 15  # 1 degree of freedom: p < 1e-4


def test_policies_have_random_streams_of_their_own():
    learner = make(CpuEngine, policies=3)
    learner.collect()
    a = learner.rollout.action
    assert not torch.equal(a[0], a[1])
    assert not torch.equal(a[1], a[2])
