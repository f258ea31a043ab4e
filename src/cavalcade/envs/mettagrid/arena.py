"""One compiled arena that is compared with something after every step; its actions may be out of range."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.errors import StateError
from cavalcade.envs.mettagrid.arenas import Arenas
from cavalcade.envs.mettagrid.game import Game
from cavalcade.envs.mettagrid.seeds import episode_seeds
from cavalcade.envs.mettagrid.state import statistic
from cavalcade.envs.mettagrid.statistics import COUNTS, UNIQUE, counted
from cavalcade.envs.mettagrid.tables import AGENT


class DifferenceError(StateError):
    """The simulators differ; the message says where."""


class ComparedArena(Arenas):
    """Calls `check_first` when an episode begins, and `check_step` after each step, also the last of an episode."""

    def __init__(self, game: Game, seed: int):
        super().__init__(game, game.agents, seed=seed, stats=[COUNTS[UNIQUE]], threads=1)

    def check_first(self) -> None:
        raise NotImplementedError

    def check_step(self, *, over: bool) -> None:
        raise NotImplementedError

    def play(self, actions: NDArray[np.int32]) -> None:
        """Steps the arena."""
        self._actions[:] = actions
        self._step()
        if not self._outputs.over[0]:
            self.check_step(over=False)

    def seeds(self) -> tuple[int, int]:
        """Seeds of the map and of the random generator of the episode."""
        s = self.state
        return episode_seeds(int(s.seed[0]), int(s.index[0]), int(s.episode[0]))

    def where(self) -> str:
        """Names the step in messages."""
        s = self.state
        return f"step {int(s.step[0])} of episode {int(s.episode[0])}, seed {int(s.seed[0])}"

    def facts(self) -> dict[str, NDArray[Any]]:
        """What observations may not show: cells of agents, inventories by cell, returns as bits, statistics."""
        s, t, game = self.state, self.tables, self.game
        height, width = self._maps.height, self._maps.width
        inside = s.grid[0].reshape(-1, t.stride)[t.margin : t.margin + height, t.margin : t.margin + width].ravel()
        inventory = np.zeros((height * width, len(game.resources)), np.uint16)
        holding = inside >= AGENT
        inventory[holding] = s.inventory[0, inside[holding].astype(np.int64) - AGENT]
        row, column = s.place[0] // t.stride - t.margin, s.place[0] % t.stride - t.margin
        found = {"place": row * width + column, "inventory": inventory, "return": s.total[0].view(np.uint32)}
        for name in counted(game.resources):
            mine = statistic(s, game, name)
            assert mine is not None
            found[f"statistic {name}"] = mine[0]
        return found

    def _begin(self, arenas: NDArray[np.int64]) -> None:
        super()._begin(arenas)
        self.check_first()

    def _end(self, arenas: NDArray[np.int64]) -> None:
        self.check_step(over=True)
        super()._end(arenas)


def wild_actions(seed: int, agents: int, actions: int, wild: float) -> Any:
    """Random actions step by step, each held for a while; wild: share of actions out of range."""
    rng, found = np.random.default_rng(seed), np.zeros(agents, np.int32)
    while True:
        fresh = np.where(
            rng.random(agents) < wild, rng.integers(-3, actions + 4, agents), rng.integers(0, actions, agents)
        )
        found = np.where(rng.random(agents) < _HOLD, found, fresh).astype(np.int32)
        yield found


_HOLD = 0.5  # probability that an agent repeats its action
