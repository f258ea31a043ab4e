"""Learning from experience of an older policy: replayed rollouts, and fragments that workers play by themselves."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from cavalcade.policy.heads import Head
from cavalcade.ppo.advantage import vtrace as corrected


@dataclass
class Remembered:
    """A rollout of an older policy with its log-probabilities; (P, T, N, …)."""

    observation: Tensor
    mask: Tensor
    action: Tensor
    log_prob: Tensor
    reward: Tensor
    ended: Tensor
    final: Tensor  # (P, T, N, O): final observations of truncated episodes …
    out_of_time: Tensor  # … and where they are valid
    last: Tensor  # (P, N, O): observation after the last step


class OffPolicy(NamedTuple):
    """What PPO needs to learn from such a rollout; (P, T, N) each."""

    log_prob: Tensor  # that of the present policy, to which updates are clipped
    value: Tensor
    advantage: Tensor
    target: Tensor
    weight: Tensor  # of each sample in the policy loss


@torch.no_grad()
def off_policy(
    head: Head,
    forward: Callable[[Tensor], tuple[Tensor, Tensor]],
    old: Remembered,
    reward: Tensor,
    bootstrap: Tensor,
    gamma: Tensor,
    decay: Tensor,
    vtrace: bool = True,
) -> OffPolicy:
    """Targets by V-trace under the present policy, each sample weighted by min(1, π / μ).

    forward: logits and values of observations (P, b, O); reward: as scaled for the critic; bootstrap: values of the
    final observations of truncated episodes, else 0. Without vtrace the experience is taken as on-policy.
    """
    shape = old.reward.shape
    logits, values = forward(old.observation.flatten(1, 2))
    log_prob, _ = head.evaluate(logits, old.mask.flatten(1, 2), old.action.flatten(1, 2))
    log_prob, value = log_prob.view(shape), values.view(shape)
    ratio = (log_prob - old.log_prob).exp() if vtrace else torch.ones_like(value)
    last = forward(old.last)[1]
    advantage, target = corrected(reward, value, old.ended, bootstrap, last, gamma, decay, ratio)
    return OffPolicy(log_prob if vtrace else old.log_prob, value, advantage, target, ratio.clamp(max=1.0))
