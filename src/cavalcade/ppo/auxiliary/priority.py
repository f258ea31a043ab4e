"""Prioritised sampling of segments (Schaul et al. 2016): by |advantage|, with importance weights."""

import numpy as np
import torch
from torch import Tensor


class Prioritised:
    """Draws segments with replacement, with probability p proportional to (mean |advantage|)^α.

    In the policy loss a segment has the importance weight (n p)^−β, relative to the largest of all n segments; β grows
    from its initial value to 1 over the run, where the bias is fully corrected. The value loss is not corrected.
    """

    def __init__(self, seed: int, segments: int, alpha: float, beta: float):
        self._seed, self._segments, self._alpha, self._beta = seed, segments, alpha, beta
        self._probability, self._now = torch.full((segments,), 1 / segments), beta

    def begin(self, advantage: Tensor, progress: float) -> None:
        """Computes the probabilities of this update."""
        weight = (advantage.abs().mean(1).double().cpu() + 1e-6) ** self._alpha
        self._probability = weight / weight.sum()
        self._now = self._beta + (1 - self._beta) * progress

    def minibatches(self, update: int, epoch: int, size: int) -> list[tuple[Tensor, Tensor | None]]:
        """Minibatches of n draws in total, with their importance weights."""
        words = np.random.SeedSequence([self._seed, update, epoch]).generate_state(2)
        generator = torch.Generator().manual_seed(int(words[0]) << 31 | int(words[1]) >> 1)
        drawn = torch.multinomial(self._probability, self._segments, replacement=True, generator=generator)
        importance = (self._segments * self._probability) ** -self._now
        importance = (importance / importance.max()).float()
        return [(part, importance[part]) for part in drawn.split(size)]
