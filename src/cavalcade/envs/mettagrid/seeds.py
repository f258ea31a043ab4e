"""Seeds of episodes."""

import numpy as np


def episode_seeds(seed: int, index: int, episode: int) -> tuple[int, int]:
    """Seeds of the map and of the simulator for an episode of an arena; `index` is that of its first agent."""
    map_seed, own = (int(word >> 1) for word in np.random.SeedSequence([seed, index, episode]).generate_state(2))
    return map_seed, own
