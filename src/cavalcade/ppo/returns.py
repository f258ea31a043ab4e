"""The scale of returns: running moments of discounted rewards, over all ranks."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.ppo.distributed import Ranks
from cavalcade.ppo.gae import discounted_moments
from cavalcade.ppo.state import SavedTensors, merge_moments


def discounted_returns(ranks: Ranks, reward: NDArray, ended: NDArray, gamma: NDArray, state: SavedTensors) -> None:
    """Adds a rollout (P, T, N) to the running moments in an engine's state."""
    moments = (state.return_count, state.return_mean, state.return_square)
    running = state.return_sum.numpy()
    if ranks.size == 1:
        discounted_moments(reward, ended, gamma, running, *(x.numpy() for x in moments))
        return
    here = tuple(np.zeros(len(running)) for _ in moments)
    discounted_moments(reward, ended, gamma, running, *here)
    n, mean, square = ranks.moments(*here)
    count, old, squares = (x.unsqueeze(-1) if i else x for i, x in enumerate(moments))
    merge_moments(count, old, squares, n, mean[:, None], square[:, None])


def return_scale(state: SavedTensors) -> Tensor:
    """The factor that normalises rewards: 1 / √(variance of discounted returns + 1e-8), (P,) float64."""
    return scale_from(state.return_square, state.return_count)


def scale_from(square: Tensor, count: Tensor) -> Tensor:
    """As `return_scale`, from the sum of squared deviations and the count of returns."""
    return 1 / torch.sqrt(square / count + 1e-8)
