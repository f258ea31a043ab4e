"""Greedy actions of a policy, computed once for each distinct observation and mask.

A batch of CAGE-2 games repeats itself; outside training weights never change, so what was computed once stays valid.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.contract import Environment
from cavalcade.core.jit import kernel
from cavalcade.ppo.engines.cpu.rows import hash_word

_NONE = -1
_FIRST = 1 << 12


@kernel
def find(slots, known, count, words, rows):
    """Writes the row of each observation in `known`; new ones are added. Returns the number of rows then in use.

    slots: a hash table with open addressing, a power of two of at least twice the rows that `known` has.
    """
    mask, width = slots.size - 1, words.shape[1]
    for e in range(rows.size):
        h = np.uint64(0)
        for w in range(width):
            h = hash_word(h, words[e, w])
        slot = np.int64(h & np.uint64(mask))
        while slots[slot] != _NONE:
            same = True
            for w in range(width):
                same = same and known[slots[slot], w] == words[e, w]
            if same:
                break
            slot = slot + 1 & mask
        if slots[slot] == _NONE:
            slots[slot] = count
            for w in range(width):
                known[count, w] = words[e, w]
            count += 1
        rows[e] = slots[slot]
    return count


class DistinctRunner:
    """Acts as another runner does for batches with packed observations; that one must be greedy and without memory.

    runner: computes the actions of new observations, from the buffers of a batch alone.
    """

    def __init__(self, runner: Callable[[Any], NDArray]):
        self._runner = runner
        self._count = 0
        self._slots, self._known = np.full(2 * _FIRST, _NONE, np.int32), np.zeros((_FIRST, 0), np.int64)
        self._actions = np.zeros(_FIRST, np.int32)

    @property
    def distinct(self) -> int:
        """Number of distinct observations so far."""
        return self._count

    def __call__(self, env: Environment) -> NDArray[np.int32]:
        """Actions (N,) for the observations in the environment's buffers."""
        assert env.packed is not None
        words = np.concatenate([env.packed.observation, env.packed.action_mask], axis=1)
        self._make_room(len(words), words.shape[1])
        rows, before = np.zeros(len(words), np.int32), self._count
        self._count = find(self._slots, self._known, before, words, rows)
        if self._count > before:
            new, first = np.unique(rows, return_index=True)
            self._actions[before : self._count] = self._runner(_part(env, first[new >= before]))
        return self._actions[rows]

    def _make_room(self, more: int, width: int) -> None:
        """Grows the table so that all rows of a batch may be new."""
        if not self._count:
            self._known = np.zeros((len(self._actions), width), np.int64)
        size = len(self._actions)
        while size < self._count + more:
            size *= 2
        if size == len(self._actions):
            return
        known, actions = self._known[: self._count], self._actions[: self._count]
        self._slots, self._known = np.full(2 * size, _NONE, np.int32), np.zeros((size, width), np.int64)
        self._actions = np.zeros(size, np.int32)
        self._actions[: self._count] = actions
        find(self._slots, self._known, 0, known, np.zeros(len(known), np.int32))


def _part(env: Environment, rows: NDArray[np.int64]) -> Any:
    """What a runner reads of some environments."""
    b = env.buffers
    shown = SimpleNamespace(observation=b.observation[rows], action_mask=b.action_mask[rows])
    return SimpleNamespace(spec=SimpleNamespace(num_envs=len(rows)), buffers=shown)
