"""Minibatches, gradients and Adam in plain torch, per policy."""

from collections.abc import Callable

import torch
from torch import Tensor

from cavalcade.policy.heads import Head
from cavalcade.ppo.loss import Minibatch, ppo_loss
from cavalcade.ppo.objective import Coefficients

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-5

Forward = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
Gradients = Callable[[Minibatch, float], tuple[Tensor, dict[str, Tensor]]]  # of a share of the mean loss; its metrics


def take(samples: Minibatch, index: Tensor) -> Minibatch:
    """The samples with the given indices, (P, b), of each policy."""

    def pick(x: Tensor) -> Tensor:
        found = [one.index_select(0, which) for one, which in zip(x, index, strict=True)]
        return torch.stack(found) if len(found) > 1 else found[0].unsqueeze(0)

    return Minibatch(*(pick(x) for x in samples))


def accumulate(gradients: Gradients, batch: Minibatch, pieces: int) -> tuple[Tensor, dict[str, Tensor]]:
    """The gradient (P, D) of the mean loss over a minibatch, accumulated over pieces; and its metrics."""
    total, metrics, count = None, {}, batch.action.shape[1]
    for part in zip(*(x.chunk(pieces, dim=1) for x in batch), strict=True):
        share = part[0].shape[1] / count
        g, found = gradients(Minibatch(*part), share)
        total = g if total is None else total + g
        metrics = {name: metrics.get(name, 0) + value * share for name, value in found.items()}
    assert total is not None
    return total, metrics


def gradient(
    head: Head, forward: Forward, weights: Tensor, batch: Minibatch, c: Coefficients, share: float = 1.0
) -> tuple[Tensor, dict[str, Tensor]]:
    """The gradient (P, D) of a share of the mean loss over a minibatch, and its metrics."""
    w = weights.detach().requires_grad_()
    logits, values = forward(w, batch.observation)
    loss, metrics = ppo_loss(head, logits, values, batch, c)
    return torch.autograd.grad(loss.sum() * share, w)[0], metrics


def adam_step(
    weights: Tensor,
    grad: Tensor,
    first: Tensor,
    second: Tensor,
    steps: Tensor,
    rate: Tensor,
    limit: Tensor,
    active: Tensor,
) -> Tensor:
    """One step of Adam for the active policies, after clipping each gradient's norm; returns the norms, (P,).

    rate, limit: (P,); a limit of 0 disables clipping.
    """
    norm = grad.norm(dim=1)
    shrink = torch.where(limit > 0, (limit / (norm + 1e-6)).clamp(max=1.0), torch.ones_like(norm))
    grad = grad * shrink.unsqueeze(1)
    on = active.unsqueeze(1)
    steps += active
    first.copy_(torch.where(on, BETA1 * first + (1 - BETA1) * grad, first))
    second.copy_(torch.where(on, BETA2 * second + (1 - BETA2) * grad**2, second))
    n = steps.clamp(min=1).to(weights.dtype)
    size = (rate / (1 - BETA1**n)).unsqueeze(1)
    root = second.sqrt() / (1 - BETA2**n).sqrt().unsqueeze(1)
    weights.copy_(torch.where(on, weights - size * first / (root + EPSILON), weights))
    return torch.where(active, norm, torch.zeros_like(norm))
