"""Everything besides weights and optimiser that learning changes."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from cavalcade.ppo.population import load_into


@dataclass
class BpttState:
    """Counters, moments of returns, and the episodes in progress of N agents; the first axis is that of `collect`."""

    return_sum: Tensor  # (1, N) float64: discounted reward so far …
    return_count: Tensor  # (1,) float64: … and running moments of it
    return_mean: Tensor
    return_square: Tensor
    episode_return: Tensor  # (1, N) float64
    episode_length: Tensor  # (1, N) int64
    counters: Tensor  # (2,) int64: steps of each agent, updates

    @classmethod
    def fresh(cls, agents: int) -> "BpttState":
        """Before the first update."""

        def zeros(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
            return torch.zeros(shape, dtype=dtype)

        whole = torch.int64
        return cls(
            zeros(1, agents), zeros(1), zeros(1), zeros(1), zeros(1, agents), zeros(1, agents, dtype=whole),
            zeros(2, dtype=whole),
        )  # fmt: skip

    def tensors(self) -> dict[str, Tensor]:
        """All of it by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Takes over a saved state, in place; nothing changes if it does not fit."""
        load_into(self.tensors(), saved)

    def forget_games(self) -> None:
        """The games in progress are gone: new ones begin."""
        for tensor in (self.return_sum, self.episode_return, self.episode_length):
            tensor.zero_()

    @property
    def clock(self) -> int:
        """Steps that each agent has taken."""
        return int(self.counters[0])

    @property
    def updates(self) -> int:
        """Updates that have been made."""
        return int(self.counters[1])
