"""Prioritised segments (Schaul et al. 2016): those with large advantages are taken more often, and count less."""

import numpy as np
import torch
from torch import Tensor


class Prioritised:
    """Draws segments with replacement, by the power α of their mean |advantage|.

    In the policy loss a segment of probability p counts (n p)^−β, relative to the largest; β grows from its start to 1
    over the run, when the preference is corrected there in full. The value loss keeps it.
    """

    def __init__(self, seed: int, segments: int, alpha: float, beta: float):
        self._seed, self._segments, self._alpha, self._beta = seed, segments, alpha, beta
        self._probability, self._now = torch.full((segments,), 1 / segments), beta

    def begin(self, advantage: Tensor, progress: float) -> None:
        """Probabilities for this update."""
        weight = (advantage.abs().mean(1).double().cpu() + 1e-6) ** self._alpha
        self._probability = weight / weight.sum()
        self._now = self._beta + (1 - self._beta) * progress

    def minibatches(self, update: int, epoch: int, size: int) -> list[tuple[Tensor, Tensor | None]]:
        """As many segments as there are, drawn."""
        words = np.random.SeedSequence([self._seed, update, epoch]).generate_state(2)
        generator = torch.Generator().manual_seed(int(words[0]) << 31 | int(words[1]) >> 1)
        drawn = torch.multinomial(self._probability, self._segments, replacement=True, generator=generator)
        importance = (self._segments * self._probability) ** -self._now
        importance = (importance / importance.max()).float()
        return [(part, importance[part]) for part in drawn.split(size)]
