"""Blue players without learning, for batches: the yardsticks of CAGE-2."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from cavalcade.envs.cage2.env import Cage2
from cavalcade.envs.cage2.scenario import (
    ANALYSE,
    ENT0,
    ENT1,
    ENT2,
    FIRST_BLOCK,
    NUM_ACTIONS,
    NUM_HOSTS,
    OP_HOST0,
    OP_HOST1,
    OP_HOST2,
    OP_SERVER,
    REMOVE,
    RESTORE,
    SLEEP,
    USER1,
    USER2,
    USER3,
    USER4,
    USER_LEVEL,
)

Blue = Callable[[Cage2, np.random.Generator], NDArray[np.int64]]

# The reactive player's order of hosts: the server first, then what leads to it.
_BY_VALUE = np.array([OP_SERVER, ENT2, ENT1, ENT0, OP_HOST2, OP_HOST1, OP_HOST0, USER4, USER3, USER2, USER1])


def sleep(env: Cage2, _: np.random.Generator) -> NDArray[np.int64]:
    """Does nothing."""
    return np.full(env.spec.num_envs, SLEEP, np.int64)


def random(env: Cage2, rng: np.random.Generator) -> NDArray[np.int64]:
    """Any of the 145 actions, each with the same chance."""
    return rng.integers(NUM_ACTIONS, size=env.spec.num_envs)


def react(env: Cage2, _: np.random.Generator) -> NDArray[np.int64]:
    """Repairs the most valuable host it believes compromised: Remove if User, else Restore; with none, looks around."""
    levels = env.words[:, :1] >> 4 * _BY_VALUE + 2 & 0b11  # (N, 11)
    suspicious = levels != 0
    first = suspicious.argmax(axis=1)
    rows = np.arange(len(first))
    repair = np.where(levels[rows, first] == USER_LEVEL, REMOVE, RESTORE)
    block = np.where(suspicious.any(axis=1), repair, ANALYSE)
    host = _BY_VALUE[np.where(suspicious.any(axis=1), first, env.state.step % len(_BY_VALUE))]
    return FIRST_BLOCK + NUM_HOSTS * block + host


BLUES: dict[str, Blue] = {"random": random, "sleep": sleep, "react": react}
