"""Which segments a minibatch takes: each once, in random order."""

import itertools
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from cavalcade.ppo.keys import policy_keys
from cavalcade.ppo.ranks import ALONE, Ranks


class Sampler(Protocol):
    """Chooses segments."""

    def begin(self, advantage: Tensor, progress: float) -> None:
        """A new update: advantages of all segments, (S·N, h), and the share of the run."""
        ...

    def minibatches(self, update: int, epoch: int, size: int) -> list[tuple[Tensor, Tensor | None]]:
        """Segments of each minibatch of an epoch, (b,), and their importance, (b,), where it is not 1."""
        ...


class EachOnce:
    """Every segment once per epoch; orders depend on the seed alone."""

    def __init__(self, seed: int, agents: int, segments: int, ranks: Ranks = ALONE):
        """segments: of each agent."""
        self._keys, self._agents, self._segments, self._ranks = policy_keys([seed]), agents, segments, ranks

    def begin(self, advantage: Tensor, progress: float) -> None:
        """Advantages do not matter."""

    def minibatches(self, update: int, epoch: int, size: int) -> list[tuple[Tensor, Tensor | None]]:
        """A random order, cut; with several ranks, this one's part of each minibatch."""
        count = self._agents * self._segments // size
        (order,), bounds = self._ranks.minibatches(
            self._keys, np.array([update]), epoch, self._segments, self._agents, count
        )
        return [(torch.from_numpy(order[start:stop]), None) for start, stop in itertools.pairwise(bounds)]
