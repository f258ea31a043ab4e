"""The PPO loss of categorical actions on the CPU: loss, metrics and gradient in one pass over the samples.

The same as `ppo_loss` with a `Choice` head, up to rounding. Sums are over a fixed number of parts in a fixed order, so
that they do not depend on the number of threads.
"""

import math
from typing import NamedTuple

import numba
import numpy as np
import torch
from torch import Tensor

from cavalcade.core.jit import formula, kernel
from cavalcade.core.scalar import exp
from cavalcade.ppo.loss import Minibatch
from cavalcade.ppo.objective import METRICS, Coefficients

_POLICY, _VALUE, _ENTROPY, _KL, _CLIPPED = range(len(METRICS))
_PARTS = 32


class Samples(NamedTuple):
    """What the loss needs to know of a `Minibatch`, (h, b) each."""

    mask: np.ndarray  # (h, b, A)
    action: np.ndarray
    log_prob: np.ndarray
    value: np.ndarray
    advantage: np.ndarray
    returns: np.ndarray
    weight: np.ndarray


@kernel(parallel=True, numerics=True)
def choice_losses(logits, values, batch, clip, value_coef, entropy_coef, value_clip, parts, d_logits, d_values):
    """Writes sums of metrics over parts of the samples, (parts, M) float64, and the gradient of the mean loss.

    logits, d_logits: (h, b, A); values, d_values and the fields of the minibatch: (h, b).
    """
    for part in numba.prange(parts.shape[0]):
        _part(part, logits, values, batch, clip, value_coef, entropy_coef, value_clip, parts, d_logits, d_values)


@formula
def _part(part, logits, values, batch, clip, value_coef, entropy_coef, value_clip, parts, d_logits, d_values):
    h, b, actions = logits.shape
    total, count = h * b, parts.shape[0]
    scale = logits.dtype.type(1 / total)
    for m in range(parts.shape[1]):
        parts[part, m] = 0
    for s in range(total * part // count, total * (part + 1) // count):
        t, i = s // b, s % b
        _policy(t, i, logits, batch, clip, scale * entropy_coef, scale, actions, part, parts, d_logits)
        d_values[t, i] = scale * value_coef * _value(t, i, values, batch, value_clip, part, parts)


@formula
def _policy(t, i, logits, batch, clip, entropy_coef, scale, actions, part, parts, d_logits):
    """Policy loss and entropy of a sample; writes the gradient of its logits."""
    real = logits.dtype.type
    top = real(-np.inf)
    for a in range(actions):
        if batch.mask[t, i, a]:
            top = max(top, logits[t, i, a])
    sum_, moment = real(0), real(0)
    for a in range(actions):
        p = exp(min(logits[t, i, a] - top, real(0))) if batch.mask[t, i, a] else real(0)
        d_logits[t, i, a] = p
        sum_ += p
        moment += p * (logits[t, i, a] - top)
    log_sum, inverse = real(math.log(sum_)), real(1) / sum_
    entropy = log_sum - moment * inverse
    chosen = batch.action[t, i]
    log_ratio = logits[t, i, chosen] - top - log_sum - batch.log_prob[t, i]
    ratio, advantage, weight = real(math.exp(log_ratio)), batch.advantage[t, i], batch.weight[t, i]
    held = min(max(ratio, 1 - clip), 1 + clip)
    parts[part, _POLICY] -= weight * min(ratio * advantage, held * advantage)
    parts[part, _ENTROPY] += entropy
    parts[part, _KL] += ratio - 1 - log_ratio
    parts[part, _CLIPPED] += ratio > 1 + clip or ratio < 1 - clip
    free = ratio <= 1 + clip if advantage > 0 else ratio >= 1 - clip
    push = scale * weight * ratio * advantage if free else real(0)
    for a in range(actions):
        p = d_logits[t, i, a] * inverse
        log_p = logits[t, i, a] - top - log_sum
        d_logits[t, i, a] = p * (push + entropy_coef * (log_p + entropy)) if p > 0 else real(0)
    d_logits[t, i, chosen] -= push


@formula
def _value(t, i, values, batch, limit, part, parts):
    """Value loss of a sample; returns its derivative."""
    value, old, target = values[t, i], batch.value[t, i], batch.returns[t, i]
    loss, slope = (value - target) ** 2, 2 * (value - target)
    if limit > 0 and abs(value - old) > limit:
        near = (old + min(max(value - old, -limit), limit) - target) ** 2
        if near > loss:  # then the clipped value counts, which is constant
            loss, slope = near, 0 * slope
    parts[part, _VALUE] += loss
    return slope


def loss_gradient(
    logits: Tensor, values: Tensor, batch: Minibatch, c: Coefficients
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Means of the metrics, (M,), and the gradients of the loss with respect to logits and values."""
    parts = np.empty((_PARTS, len(METRICS)))
    gradients = torch.empty_like(logits), torch.empty_like(values)
    samples = Samples(*(getattr(batch, name).numpy() for name in Samples._fields))
    real = logits.numpy().dtype.type
    numbers = (real(float(x)) for x in (c.clip, c.value, c.entropy, c.value_clip))
    choice_losses(logits.numpy(), values.numpy(), samples, *numbers, parts, *(g.numpy() for g in gradients))
    return torch.from_numpy(parts.sum(0) / values.numel()).to(logits.dtype), gradients


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits: Tensor, values: Tensor, batch: Minibatch, c: Coefficients):  # pyright: ignore
        means, gradients = loss_gradient(logits, values, batch, c)
        ctx.save_for_backward(*gradients)
        loss = means[_POLICY] + c.value[0] * means[_VALUE] - c.entropy[0] * means[_ENTROPY]
        ctx.mark_non_differentiable(means)
        return loss, means

    @staticmethod
    def backward(ctx, upstream: Tensor, _: Tensor):  # pyright: ignore
        return *(upstream * g for g in ctx.saved_tensors), None, None


def choice_loss(logits: Tensor, values: Tensor, batch: Minibatch, c: Coefficients) -> tuple[Tensor, dict[str, Tensor]]:
    """As `ppo_loss` for one policy with a `Choice` head: samples are (h, b, …)."""
    loss, means = _Loss.apply(logits.contiguous(), values.contiguous(), batch, c)  # pyright: ignore
    return loss.view(1), {name: means[i : i + 1] for i, name in enumerate(METRICS)}
