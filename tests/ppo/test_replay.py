"""Learning from earlier rollouts again, with importance weights."""

import numpy as np
import torch

from .test_learners import make


def learn(updates, **settings):
    learner = make("torch", context=False, **settings)
    for _ in range(updates):
        learner.collect()
        metrics = learner.update(0.0)
    return learner, metrics


def test_samples_of_earlier_rollouts_join_those_of_this_one():
    learner, _ = learn(3, replay=2, epochs=1)
    assert len(learner._replay) == 2
    replayed = learner._replayed(learner._replay[0])
    assert replayed.weight.max() <= 1
    assert replayed.weight.min() < 1  # the policy has moved since
    fresh = learner._fresh()
    assert torch.equal(fresh.weight, torch.ones_like(fresh.weight))


def test_a_rollout_replayed_at_once_is_worth_what_it_was():
    """While the weights are still those that collected it, importance weights are 1 and targets those of GAE."""
    learner = make("torch", context=False, replay=1, normalise_returns=False, normalise_advantages=False)
    learner.collect()
    fresh = learner._fresh()
    learner._remember()
    again = learner._replayed(learner._replay[0])
    torch.testing.assert_close(again.weight, torch.ones_like(again.weight))
    torch.testing.assert_close(again.advantage, fresh.advantage)
    torch.testing.assert_close(again.returns, fresh.returns)


def test_replay_learns():
    """From the same number of fresh samples, no worse than without, within what seeds make of it."""
    returns = {0: [], 1: []}
    for replay, found in returns.items():
        learner = make("torch", torch.float32, 3, 20, "bline", context=False, update_steps=100, replay=replay)
        for u in range(40):
            episodes = learner.collect()
            learner.update(u / 40)
        found += [episodes.total[episodes.policy == p].mean() for p in range(3)]
    assert np.mean(returns[1]) > np.mean(returns[0]) - 4 * np.std(returns[0] + returns[1], ddof=1) / 3**0.5
    assert np.mean(returns[1]) > -150


def test_replay_survives_a_checkpoint():
    whole, _ = learn(4, replay=2)
    first, _ = learn(2, replay=2)
    policy, rest = first.tensors()
    games = first.env.save_state()
    second = make("torch", context=False, replay=2)
    second.load_tensors({k: v.clone() for k, v in policy.items()}, {k: v.clone() for k, v in rest.items()})
    second.env.load_state(games)
    for _ in range(2):
        second.collect()
        second.update(0.0)
    assert torch.equal(second.state.weights, whole.state.weights)
