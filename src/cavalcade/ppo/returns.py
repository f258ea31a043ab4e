"""The scale of returns: running moments of discounted rewards, over all ranks."""

from collections.abc import Mapping

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
    return 1 / torch.sqrt(state.return_square / state.return_count + 1e-8)


def reward_scale(learner: Mapping[str, Tensor], *, normalise: bool) -> NDArray:
    """As `return_scale`, from saved moments; 1 if rewards are not normalised or nothing was learnt yet.

    A critic predicts normalised returns; divided by this, they are in the scale of the environment's rewards.
    """
    count, square = (np.atleast_1d(learner[f"return_{part}"].numpy()) for part in ("count", "square"))
    known = (count > 0) & normalise
    return np.where(known, 1 / np.sqrt(square / np.maximum(count, 1) + 1e-8), 1.0)
