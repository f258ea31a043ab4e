"""The PPO loss in plain torch: the reference for the compiled kernels."""

from typing import NamedTuple

import torch
from torch import Tensor

from cavalcade.policy.heads import Head
from cavalcade.ppo.objective import Coefficients


class Minibatch(NamedTuple):
    """Samples, (P, b, …)."""

    observation: Tensor  # (P, b, O)
    mask: Tensor  # (P, b, A) bool
    action: Tensor  # (P, b, …)
    log_prob: Tensor  # when collected
    value: Tensor  # when collected
    advantage: Tensor
    returns: Tensor
    weight: Tensor  # importance of each sample, 1 for fresh ones


def ppo_loss(
    head: Head, logits: Tensor, values: Tensor, batch: Minibatch, c: Coefficients
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of each policy, (P,), and its metrics.

        −mean w min(ρ A, clip(ρ, 1 ± ε) A) + c_v mean (v − R)² − c_e mean H(π),   ρ = π(a) / π_old(a)

    w: importance weights of replayed samples. With value_clip the value loss is the larger of that of v and that of v
    clipped to within value_clip of its old value.
    """
    log_prob, entropy = head.evaluate(logits, batch.mask, batch.action)
    log_ratio = log_prob - batch.log_prob
    ratio = log_ratio.exp()
    clip = c.clip.unsqueeze(1)
    held = torch.minimum(torch.maximum(ratio, 1 - clip), 1 + clip)
    gain = torch.minimum(ratio * batch.advantage, held * batch.advantage)
    policy_loss = -(batch.weight * gain).mean(1)
    square = (values - batch.returns) ** 2
    limit = c.value_clip.unsqueeze(1)
    near = batch.value + torch.minimum(torch.maximum(values - batch.value, -limit), limit)
    square = torch.where(limit > 0, torch.maximum(square, (near - batch.returns) ** 2), square)
    value_loss = square.mean(1)
    loss = policy_loss + c.value * value_loss - c.entropy * entropy.mean(1)
    metrics = {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy.mean(1),
        "kl": (ratio - 1 - log_ratio).mean(1),
        "clip_fraction": ((ratio > 1 + clip) | (ratio < 1 - clip)).to(ratio.dtype).mean(1),
    }
    return loss, {name: value.detach() for name, value in metrics.items()}
