"""Generalised advantage estimation and V-trace, with correct bootstrapping at the end of an episode."""

import torch
from torch import Tensor


def gae(
    reward: Tensor, value: Tensor, ended: Tensor, bootstrap: Tensor, last_value: Tensor, gamma: Tensor, decay: Tensor
) -> tuple[Tensor, Tensor]:
    """Advantages and value targets, (P, T, N) each.

        δ_t = r_t + γ v' − v_t,   A_t = δ_t + γλ A_{t+1},   R_t = A_t + v_t

    v' is the value of the next observation. Where the episode ended, A_{t+1} is 0 and v' is `bootstrap`: the value of
    the final observation if it was truncated, 0 if it terminated. gamma and decay = γλ: (P,).
    """
    advantage = torch.empty_like(value)
    after, following = torch.zeros_like(last_value), last_value
    gamma, decay = gamma.unsqueeze(1), decay.unsqueeze(1)
    for t in range(value.shape[1] - 1, -1, -1):
        over = ended[:, t]
        following = torch.where(over, bootstrap[:, t], following)
        after = reward[:, t] + gamma * following - value[:, t] + decay * after * ~over
        advantage[:, t] = after
        following = value[:, t]
    return advantage, advantage + value


def vtrace(
    reward: Tensor,
    value: Tensor,
    ended: Tensor,
    bootstrap: Tensor,
    last_value: Tensor,
    gamma: Tensor,
    decay: Tensor,
    ratio: Tensor,
) -> tuple[Tensor, Tensor]:
    """Advantages and value targets of experience from an older policy (Espeholt et al. 2018).

    As `gae`, with importance weights ρ = min(1, ratio):

        δ_t = r_t + γ v' − v_t,   A_t = δ_t + γλ D_{t+1},   D_t = ρ_t A_t,   R_t = v_t + D_t

    ratio: π / μ, (P, T, N). The policy loss weights A_t by ρ_t. With ratio 1 everywhere this is `gae`.
    """
    rho = ratio.clamp(max=1.0)
    advantage, target = torch.empty_like(value), torch.empty_like(value)
    after, following = torch.zeros_like(last_value), last_value
    gamma, decay = gamma.unsqueeze(1), decay.unsqueeze(1)
    for t in range(value.shape[1] - 1, -1, -1):
        over = ended[:, t]
        following = torch.where(over, bootstrap[:, t], following)
        advantage[:, t] = reward[:, t] + gamma * following - value[:, t] + decay * after * ~over
        after = rho[:, t] * advantage[:, t]
        target[:, t] = value[:, t] + after
        following = value[:, t]
    return advantage, target


def normalise(advantage: Tensor) -> Tensor:
    """Normalises advantages to zero mean, unit standard deviation per policy, (P, …)."""
    flat = advantage.flatten(1)
    spread = (flat.std(dim=1, keepdim=True) if flat.shape[1] > 1 else torch.zeros_like(flat)) + 1e-8
    return ((flat - flat.mean(dim=1, keepdim=True)) / spread).view_as(advantage)
