"""Means of metrics over the minibatches of an update."""

from collections.abc import Mapping

import torch
from torch import Tensor


class RunningMeans:
    """Means of metrics by name, each over the number of times it was added."""

    def __init__(self):
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}

    def add(self, metrics: Mapping[str, Tensor]) -> None:
        """Adds values; names may differ between calls."""
        for name, value in metrics.items():
            self._sums[name] = self._sums.get(name, 0) + value
            self._counts[name] = self._counts.get(name, 0) + 1

    def values(self) -> dict[str, Tensor]:
        return {name: torch.as_tensor(total / self._counts[name]).float() for name, total in self._sums.items()}
