"""Plays the compiled simulator and the mettagrid package side by side and names the first difference."""

from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.envs.mettagrid.arena import ComparedArena, DifferenceError, wild_actions
from cavalcade.envs.mettagrid.original import Original
from cavalcade.envs.mettagrid.supported import game_from

COMPARED = "observations and rewards in every step; places, inventories, returns and statistics every 50 steps"


def compare(config: Any, steps: int, *, seed: int = 0, wild: float = 0.0, every: int = 50) -> int:
    """Steps an arena in both simulators with equal random actions; returns the agent-steps compared.

    Observations and rewards are compared in every step; places, inventories, returns and statistics every so many
    steps and at the end of episodes. wild: share of actions out of range. Raises `DifferenceError`.
    """
    pair = _Pair(config, seed, every)
    agents = pair.game.agents
    for actions in islice(wild_actions(seed, agents, pair.game.actions, wild), steps):
        pair.play(actions)
    return steps * agents


class _Pair(ComparedArena):
    """A compiled arena and the same one of the package."""

    def __init__(self, config: Any, seed: int, every: int):
        super().__init__(game_from(config), seed)
        self._original, self._every, self._played = Original(config), every, 0
        self.reset()

    def play(self, actions: NDArray[np.int32]) -> None:
        self._original.step(actions)
        self._played += 1
        super().play(actions)

    def check_first(self) -> None:
        self._original.begin(*self.seeds())
        self._same("observation", self._original.observation, self.buffers.observation)

    def check_step(self, *, over: bool) -> None:
        theirs = self._original
        self._same("observation", theirs.observation, self.buffers.observation)
        self._same("reward", theirs.reward.view(np.uint32), self.buffers.reward.view(np.uint32))
        if over or self._played % self._every == 0:
            mine = self.facts()
            for name, value in theirs.facts().items():
                self._same(name, value, mine[name])

    def _same(self, what: str, theirs: NDArray, mine: NDArray) -> None:
        mine = mine.reshape(theirs.shape)
        if np.array_equal(theirs, mine):
            return
        first, *rest = (int(i) for i in np.argwhere(theirs != mine)[0])
        whose = f"cell {first}" if what == "inventory" else f"agent {first}"
        more = f", token {rest[0]}" if what == "observation" else f", resource {rest[0]}" if rest else ""
        old, new = (x[first, rest[0]] if rest else x[first] for x in (theirs, mine))
        raise DifferenceError(
            f"{what} of {whose}{more}, {self.where()}: the package has {old}, the compiled simulator {new}"
        )
