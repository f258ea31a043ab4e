"""Samplers choose the segments of a minibatch; by default each once, in random order."""

import itertools
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from cavalcade.ppo.distributed import ALONE, Ranks
from cavalcade.ppo.keys import policy_keys


class Sampler(Protocol):
    """Chooses the segments of minibatches."""

    def begin(self, advantage: Tensor, progress: float) -> None:
        """Called before an update; advantage: of all segments, (S·N, h); progress: completed share of the run."""
        ...

    def minibatches(self, update: int, epoch: int, size: int) -> list[tuple[Tensor, Tensor | None]]:
        """Segments of each minibatch of an epoch, (b,), and their importance weights, (b,), or None if all are 1."""
        ...


class EachOnce:
    """Every segment once per epoch; the order depends only on the seed, the update and the epoch."""

    def __init__(self, seed: int, agents: int, segments: int, ranks: Ranks = ALONE):
        """segments: number of segments per agent."""
        self._keys, self._agents, self._segments, self._ranks = policy_keys([seed]), agents, segments, ranks

    def begin(self, advantage: Tensor, progress: float) -> None:
        """Does nothing: advantages are not used."""

    def minibatches(self, update: int, epoch: int, size: int) -> list[tuple[Tensor, Tensor | None]]:
        """A random order, split; with several ranks, this rank's part of each minibatch."""
        count = self._agents * self._segments // size
        (order,), bounds = self._ranks.minibatches(
            self._keys, np.array([update]), epoch, self._segments, self._agents, count
        )
        return [(torch.from_numpy(order[start:stop]), None) for start, stop in itertools.pairwise(bounds)]
