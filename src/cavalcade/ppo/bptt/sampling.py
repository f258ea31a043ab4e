"""Which segments a minibatch takes: each once, in random order."""

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from cavalcade.ppo.keys import policy_keys
from cavalcade.ppo.shuffle import shuffle


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

    def __init__(self, seed: int, segments: int):
        self._keys, self._order = policy_keys([seed]), np.zeros((1, segments), np.int64)

    def begin(self, advantage: Tensor, progress: float) -> None:
        """Advantages do not matter."""

    def minibatches(self, update: int, epoch: int, size: int) -> list[tuple[Tensor, Tensor | None]]:
        """A random order, cut."""
        shuffle(self._keys, np.array([update]), epoch, self._order)
        return [(part, None) for part in torch.from_numpy(self._order[0].copy()).split(size)]
