"""The training state of the recurrent engine besides weights and optimiser."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cavalcade.ppo.state import SavedTensors


@dataclass
class RecurrentState(SavedTensors):
    """Counters, moments of returns, and episodes in progress of N agents; the first axis is the policy."""

    return_sum: Tensor  # (1, N) float64: discounted sum of rewards so far …
    return_count: Tensor  # (1,) float64: … and its running moments
    return_mean: Tensor
    return_square: Tensor
    episode_return: Tensor  # (1, N) float64
    episode_length: Tensor  # (1, N) int64
    counters: Tensor  # (1, 2) int64: steps of each agent, updates

    @classmethod
    def fresh(cls, agents: int) -> "RecurrentState":
        """The state before the first update."""

        def zeros(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
            return torch.zeros(shape, dtype=dtype)

        whole = torch.int64
        return cls(
            zeros(1, agents), zeros(1), zeros(1), zeros(1), zeros(1, agents), zeros(1, agents, dtype=whole),
            zeros(1, 2, dtype=whole),
        )  # fmt: skip
