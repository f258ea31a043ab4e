"""Weights of a population in rows, (P, D), from parameters by name."""

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from cavalcade.core.errors import StateError


class WeightLayout(Protocol):
    """How the parameters of a network lie in a row of weights."""

    @property
    def size(self) -> int:
        """Weights per policy (D)."""
        ...

    @property
    def title(self) -> str:
        """The network in words, for errors."""
        ...

    def parameters(self, weights: Tensor) -> dict[str, Tensor]:
        """Views into (P, D) weights by name, (P, …) each."""
        ...


def weights_from(layout: WeightLayout, named: Mapping[str, Tensor], policies: int, dtype: torch.dtype) -> Tensor:
    """Weights (P, D) from parameters by name; raises `StateError` for a missing one or a wrong shape."""
    weights = torch.zeros(policies, layout.size, dtype=dtype)
    for name, mine in layout.parameters(weights).items():
        if name not in named:
            raise StateError(f"the policy lacks {name}; it must have {layout.title}")
        if named[name].shape != mine.shape:
            shapes = f"{tuple(named[name].shape)}; here it must be {tuple(mine.shape)}"
            raise StateError(f"{name} of the policy is {shapes}, with {layout.title}")
        mine.copy_(named[name])
    return weights
