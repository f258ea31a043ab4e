"""Learning from earlier rollouts again, with importance weights."""

import numpy as np
import pytest
import torch

from cavalcade.ppo.update import BETA1
from tests.ppo.engines.test_host import make


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


def summed(delta, rho, ended, decay):
    """A_t = Σ_{k ≥ t} (γλ)^(k−t) (Π_{t < i ≤ k} ρ_i) δ_k up to the end of the episode, (P, T, N)."""
    found = delta.clone()
    for t in range(delta.shape[1]):
        product = torch.ones_like(delta[:, 0])
        for k in range(t + 1, delta.shape[1]):
            product = product * decay * rho[:, k] * ~ended[:, k - 1]
            found[:, t] += product * delta[:, k]
    return found


@pytest.mark.parametrize("normalised", [False, True])
def test_an_update_is_that_of_importance_weighted_samples(normalised):
    """Its gradient, over a fresh rollout and a replayed one in which episodes run out of time, by the formulas.

    −mean ρ A ∇log π + c_v mean ∇(v − R)² − c_e mean ∇H,   ρ = min(1, π / μ),   R = v + ρ A
    """
    settings = {"normalise_returns": False, "normalise_advantages": normalised, "grad_clip": 0.0}
    learner = make("torch", context=False, replay=1, epochs=1, rollout_steps=70, learning_rate=0.03, **settings)
    for _ in range(2):
        learner.collect()
        learner.update(0.0)
    learner.collect()
    c, s, r, old = learner.config, learner.state, learner.rollout, learner._replay[0]
    with torch.no_grad():
        final, after = (learner._forward(s.weights, x.flatten(1, -2))[1] for x in (old.final, old.last))
    final = final.view(old.reward.shape)
    weights, loss, weight = s.weights.clone().requires_grad_(), 0.0, []
    for x, bootstrap, last in ((r, r.bootstrap, r.last_value), (old, final, after)):
        logits, value = learner._forward(weights, x.observation.flatten(1, 2))
        log_prob, entropy = learner.head.evaluate(logits, x.mask.flatten(1, 2), x.action.flatten(1, 2))
        log_prob, value = log_prob.view(x.reward.shape), value.view(x.reward.shape)
        rho, v = (log_prob - x.log_prob).exp().clamp(max=1).detach(), value.detach()
        following = torch.where(x.ended, bootstrap, torch.cat([v[:, 1:], last.unsqueeze(1)], 1))
        advantage = summed(x.reward + c.gamma * following - v, rho, x.ended, c.gamma * c.gae_lambda)
        target = v + rho * advantage
        if normalised:
            advantage = (advantage - advantage.mean((1, 2), True)) / advantage.std((1, 2), keepdim=True)
        gain = (rho * advantage * log_prob).mean((1, 2))
        cost = ((value - target) ** 2).mean((1, 2))
        loss = loss + (c.value_coef * cost - gain - c.entropy_coef * entropy.mean(1)) / 2
        weight.append(rho)
    torch.testing.assert_close(weight[0], torch.ones_like(weight[0]))
    assert 0.1 < (weight[1] < 0.8).double().mean() < 0.9  # the policy has moved
    assert old.ended[:, 1:-1].any()
    (wanted,) = torch.autograd.grad(loss.sum(), weights)
    before = s.first_moment.clone()
    learner.update(0.0)
    torch.testing.assert_close((s.first_moment - BETA1 * before) / (1 - BETA1), wanted, atol=1e-9, rtol=1e-6)


def test_replay_learns_more_from_the_same_games():
    """Twelve seeds in groups of four gain 26, 43 and 49 on average."""
    returns = {}
    for replay in (0, 1):
        learner = make(
            "torch", torch.float32, 3, red="bline", context=False, rollout_steps=100, learning_rate=1e-2, replay=replay
        )
        totals = []
        for u in range(20):
            totals.append(learner.collect().total.mean())
            learner.update(u / 20)
        returns[replay] = np.mean(totals[-3:])
    assert returns[1] > returns[0] + 10
    assert returns[1] > -120  # at random: −550


def test_replay_survives_a_checkpoint():
    whole, _ = learn(4, replay=2)
    first, _ = learn(2, replay=2)
    second = make("torch", context=False, replay=2)
    second.restore(first.snapshot())
    for _ in range(2):
        second.collect()
        second.update(0.0)
    assert torch.equal(second.state.weights, whole.state.weights)
