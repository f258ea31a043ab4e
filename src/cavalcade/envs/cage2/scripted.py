"""Scripted Blue agents for batches: the baselines of CAGE-2."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from cavalcade.envs.cage2.env import Cage2
from cavalcade.envs.cage2.scenario import (
    ANALYSE,
    ENT0,
    ENT1,
    ENT2,
    EXPLOIT,
    EXPLOIT_ACTIVITY,
    FIRST_BLOCK,
    FIRST_RESTORE_ACTION,
    HOST_TYPES,
    MONITOR,
    NUM_ACTIONS,
    NUM_HOSTS,
    OP_HOST0,
    OP_HOST1,
    OP_HOST2,
    OP_SERVER,
    REMOVE,
    RESTORE,
    SLEEP,
    SSH_BRUTE_FORCE,
    TRUE,
    TYPE_HOSTS,
    USER0,
    USER1,
    USER2,
    USER3,
    USER4,
    USER_LEVEL,
    hosts,
)
from cavalcade.envs.cage2.state import host_bits

Blue = Callable[[Cage2, np.random.Generator], NDArray[np.int64]]

# The reactive agent's order of hosts: the server first, then the hosts that lead to it.
_BY_VALUE = np.array([OP_SERVER, ENT2, ENT1, ENT0, OP_HOST2, OP_HOST1, OP_HOST0, USER4, USER3, USER2, USER1])


def sleep(env: Cage2, _: np.random.Generator) -> NDArray[np.int64]:
    """Does nothing."""
    return np.full(env.spec.num_envs, SLEEP, np.int64)


def random(env: Cage2, rng: np.random.Generator) -> NDArray[np.int64]:
    """Any of the 145 actions, uniformly."""
    return rng.integers(NUM_ACTIONS, size=env.spec.num_envs)


def react(env: Cage2, _: np.random.Generator) -> NDArray[np.int64]:
    """Repairs the most valuable host it believes compromised: Remove if User, else Restore; without one, analyses."""
    levels = env.words[:, :1] >> 4 * _BY_VALUE + 2 & 0b11  # (N, 11)
    suspicious = levels != 0
    first = suspicious.argmax(axis=1)
    rows = np.arange(len(first))
    repair = np.where(levels[rows, first] == USER_LEVEL, REMOVE, RESTORE)
    block = np.where(suspicious.any(axis=1), repair, ANALYSE)
    host = _BY_VALUE[np.where(suspicious.any(axis=1), first, env.state.step % len(_BY_VALUE))]
    return FIRST_BLOCK + NUM_HOSTS * block + host


def react_restore(env: Cage2, _: np.random.Generator) -> NDArray[np.int64]:
    """The organisers' baseline: monitors, and restores the host on which a reverse shell was just detected.

    It reads more than the 52 values: an alert names a process only for a shell, never for ssh. It reads only the result
    of its own Monitor, so a Restore costs it a step without information.
    """
    s = env.state
    host = np.maximum(s.red_target, 0).astype(np.int64)
    shell = (s.red_action == EXPLOIT) & (s.red_success == TRUE) & (s.red_exploit != SSH_BRUTE_FORCE)
    alert = shell & (s.table >> 4 * host & 0b11 == EXPLOIT_ACTIVITY) & (host != USER0) & (s.blue_action == MONITOR)
    return np.where(alert, FIRST_RESTORE_ACTION + host, MONITOR)


def greedy(order: Sequence[str], *, corrected: bool) -> Blue:
    """The greedy heuristic of the workflow-search scripts: restores hosts of the first type of an order that Red holds.

    It sees the true state. The original restores any host of that type, and User0, which Red always holds, makes `user`
    count as held at all times. The corrected form restores a host that Red really holds, except User0, or sleeps.
    """
    types = [HOST_TYPES.index(name) for name in order]

    def act(env: Cage2, rng: np.random.Generator) -> NDArray[np.int64]:
        s = env.state
        held = (s.user | s.flagged | s.privileged).astype(np.int64)
        if corrected:
            held &= ~hosts(USER0)
        by_rank = np.stack([held & TYPE_HOSTS[kind] != 0 for kind in types], axis=1)
        first = np.array(types)[by_rank.argmax(axis=1)]
        candidates = held & TYPE_HOSTS[first] if corrected else TYPE_HOSTS[first]
        chances = host_bits(candidates) * rng.random((len(held), NUM_HOSTS))
        host = chances.argmax(axis=1)
        return np.where(by_rank.any(axis=1), FIRST_RESTORE_ACTION + host, SLEEP)

    return act


BLUES: dict[str, Blue] = {
    "random": random,
    "sleep": sleep,
    "react": react,
    "react-restore": react_restore,
    "greedy": greedy(HOST_TYPES, corrected=False),
    "greedy-corrected": greedy(HOST_TYPES, corrected=True),
}
