"""Advantages: by hand, against the definition, and compiled against torch."""

import numpy as np
import pytest
import torch

from cavalcade.ppo import gae as compiled
from cavalcade.ppo.advantage import gae, normalise, vtrace

GAMMA, LAMBDA = 0.9, 0.8


def column(*values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype).view(1, -1, 1)


def one_environment(ended, bootstrap):
    """Rewards 1, 2, 3; values 10, 20, 30; the observation after is worth 40."""
    flags = column(*ended, dtype=torch.bool)
    gamma, decay = (torch.tensor([x], dtype=torch.float64) for x in (GAMMA, GAMMA * LAMBDA))
    last = torch.tensor([[40.0]]).double()
    found, returns = gae(column(1, 2, 3), column(10, 20, 30), flags, column(*bootstrap), last, gamma, decay)
    torch.testing.assert_close(returns, found + column(10, 20, 30))
    return found.flatten().tolist()


def test_by_hand_in_the_midst_of_an_episode():
    d = [1 + 0.9 * 20 - 10, 2 + 0.9 * 30 - 20, 3 + 0.9 * 40 - 30]
    expected = [d[0] + 0.72 * (d[1] + 0.72 * d[2]), d[1] + 0.72 * d[2], d[2]]
    assert one_environment([False] * 3, [0, 0, 0]) == pytest.approx(expected)


def test_termination_is_worth_nothing_after():
    d = [1 + 0.9 * 20 - 10, 2 - 20, 3 + 0.9 * 40 - 30]
    assert one_environment([False, True, False], [0, 0, 0]) == pytest.approx([d[0] + 0.72 * d[1], d[1], d[2]])


def test_truncation_is_worth_what_the_last_observation_is():
    d = [1 + 0.9 * 20 - 10, 2 + 0.9 * 7 - 20, 3 + 0.9 * 40 - 30]
    assert one_environment([False, True, False], [0, 7, 0]) == pytest.approx([d[0] + 0.72 * d[1], d[1], d[2]])


def random_rollout(seed=0, shape=(3, 11, 4)):
    rng = torch.Generator().manual_seed(seed)
    reward, value, bootstrap = (torch.randn(shape, generator=rng, dtype=torch.float64) for _ in range(3))
    ended = torch.rand(shape, generator=rng) < 0.2
    last = torch.randn(shape[0], shape[2], generator=rng, dtype=torch.float64)
    gamma = torch.tensor([0.9, 0.99, 1.0], dtype=torch.float64)
    return reward, value, ended, bootstrap * ended, last, gamma, gamma * torch.tensor([0.5, 0.95, 1.0]).double()


def test_compiled_equals_torch():
    reward, value, ended, bootstrap, last, gamma, decay = random_rollout()
    expected = gae(reward, value, ended, bootstrap, last, gamma, decay)
    found = [np.zeros(value.shape) for _ in range(2)]
    inputs = (reward, value, ended, bootstrap, last, torch.ones(3).double(), gamma, decay)
    compiled.gae(reward.float().numpy(), *(x.numpy() for x in inputs[1:]), *found)
    exact = gae(reward.float().double(), value, ended, bootstrap, last, gamma, decay)
    for one, other, near in zip(found, exact, expected, strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(one, near.numpy(), atol=1e-5)


def test_vtrace_with_the_same_policy_is_gae():
    inputs = random_rollout(1)
    for one, other in zip(gae(*inputs), vtrace(*inputs, torch.ones_like(inputs[0])), strict=True):
        torch.testing.assert_close(one, other)


def test_vtrace_by_its_sum():
    """v_s = V(s) + Σ γ^(t−s) (Π c_i) ρ_t δ_t with c = λ min(1, ratio), ρ = min(1, ratio) (Espeholt et al. 2018, 1)."""
    torch.manual_seed(0)
    steps, gamma, lam = 6, 0.9, 0.8
    reward, value = torch.randn(1, steps, 1).double(), torch.randn(1, steps, 1).double()
    last, ratio = torch.randn(1, 1).double(), 2 * torch.rand(1, steps, 1).double()
    none = torch.zeros(1, steps, 1, dtype=torch.bool)
    g, d = (torch.tensor([x], dtype=torch.float64) for x in (gamma, gamma * lam))
    advantage, target = vtrace(reward, value, none, torch.zeros_like(value), last, g, d, ratio)
    v = torch.cat([value.flatten(), last.flatten()])
    rho = ratio.flatten().clamp(max=1)
    delta = rho * (reward.flatten() + gamma * v[1:] - v[:-1])
    for s in range(steps):
        expected, product = v[s].clone(), 1.0
        for t in range(s, steps):
            expected += gamma ** (t - s) * product * delta[t]
            product = product * lam * rho[t]
        assert target[0, s, 0] == pytest.approx(float(expected))
        assert float(v[s] + rho[s] * advantage[0, s, 0]) == pytest.approx(float(expected))


def test_normalise_is_per_policy():
    advantage = torch.stack([torch.randn(5, 4) * 3 + 2, torch.randn(5, 4) * 100])
    found = normalise(advantage)
    torch.testing.assert_close(found.flatten(1).mean(1), torch.zeros(2), atol=1e-6, rtol=0)
    torch.testing.assert_close(found.flatten(1).std(1), torch.ones(2))
    torch.testing.assert_close(found[0], normalise(advantage[:1])[0])
