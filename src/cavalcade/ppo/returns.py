"""The scale of returns: running moments of discounted rewards, of all ranks together."""

import numpy as np
from numpy.typing import NDArray

from cavalcade.ppo.fused.gae import discounted_moments
from cavalcade.ppo.population import SavedTensors, merge_moments
from cavalcade.ppo.ranks import Ranks


def discounted_returns(ranks: Ranks, reward: NDArray, ended: NDArray, gamma: NDArray, state: SavedTensors) -> None:
    """Adds a rollout (P, T, N) to the moments in a learner's state."""
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
