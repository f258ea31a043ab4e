"""Plays the compiled simulator and the mettagrid package side by side and names the first difference."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.errors import StateError
from cavalcade.envs.mettagrid.arenas import Arenas, uncounted
from cavalcade.envs.mettagrid.package import Engines
from cavalcade.envs.mettagrid.seeds import episode_seeds
from cavalcade.envs.mettagrid.state import COUNTS, UNIQUE, statistic
from cavalcade.envs.mettagrid.supported import game_from

COMPARED = "observations and rewards in every step; places, inventories, returns and statistics every 50 steps"
_HOLD = 0.5  # probability that an agent repeats its action


class DifferenceError(StateError):
    """The simulators differ; the message says where."""


def compare(config: Any, steps: int, *, seed: int = 0, wild: float = 0.0, every: int = 50) -> int:
    """Steps an arena in both simulators with equal random actions; returns the agent-steps compared.

    Observations and rewards are compared in every step; places, inventories, returns and statistics every so many
    steps and at the end of episodes. wild: share of actions out of range. Raises `DifferenceError`.
    """
    pair = _Pair(config, seed)
    rng, n, count = np.random.default_rng(seed), pair.game.agents, pair.game.actions
    actions = np.zeros(n, np.int32)
    for step in range(1, steps + 1):
        fresh = np.where(rng.random(n) < wild, rng.integers(-3, count + 4, n), rng.integers(0, count, n))
        actions = np.where(rng.random(n) < _HOLD, actions, fresh).astype(np.int32)
        pair.play(actions)
        if step % every == 0:
            pair.compare_all()
    return steps * n


class _Pair(Arenas):
    """A compiled arena and the same one of the package."""

    def __init__(self, config: Any, seed: int):
        game = game_from(config)
        super().__init__(game, game.agents, seed=seed, stats=[COUNTS[UNIQUE]], threads=1)
        self._engines, n = Engines(config), game.agents
        self._tokens, self._paid = np.zeros((n, game.tokens, 3), np.uint8), np.zeros(n, np.float32)
        self._taken, self._vibes = np.zeros(n, np.int32), np.zeros(n, np.int32)
        self.reset()

    def play(self, actions: NDArray[np.int32]) -> None:
        """Steps both; actions may be out of range."""
        self._taken[:] = self._actions[:] = actions
        self._engine.step()
        self._step()
        if not self._outputs.over[0]:
            self._same("observation", self._tokens, self.buffers.observation)
            self._same("reward", self._paid.view(np.uint32), self.buffers.reward.view(np.uint32))

    def _begin(self, arenas: NDArray[np.int64]) -> None:
        super()._begin(arenas)
        s = self.state
        self._engine = self._engines.make(*episode_seeds(int(s.seed[0]), int(s.index[0]), int(s.episode[0])))
        ends = np.zeros(len(self._paid), np.bool_), np.zeros(len(self._paid), np.bool_)
        self._engine.set_buffers(self._tokens, *ends, self._paid, self._taken, self._vibes)
        self._same("observation", self._tokens, self.buffers.observation)

    def _end(self, arenas: NDArray[np.int64]) -> None:
        self._same("observation", self._tokens, self.buffers.observation)
        self._same("reward", self._paid.view(np.uint32), self.buffers.reward.view(np.uint32))
        self.compare_all()
        super()._end(arenas)

    def compare_all(self) -> None:
        """Compares what observations may not show."""
        s, t, game = self.state, self.tables, self.game
        found = {x["agent_id"]: x for x in self._engine.grid_objects().values() if "agent_id" in x}
        place, inventory = np.zeros_like(s.place[0]), np.zeros_like(s.inventory[0])
        for a, agent in found.items():
            place[a] = (agent["r"] + t.margin) * t.stride + agent["c"] + t.margin
            for resource, amount in agent["inventory"].items():
                inventory[a, resource] = amount
        self._same("place", place, s.place[0])
        self._same("inventory", inventory, s.inventory[0])
        returns = np.asarray(self._engine.get_episode_rewards())
        self._same("return", returns.view(np.uint32), s.total[0].view(np.uint32))
        stats = self._engine.get_episode_stats()["agent"]
        for name in sorted({name for agent in stats for name in agent if not uncounted(game, [name])}):
            mine = statistic(s, game, name)
            assert mine is not None
            theirs = np.array([agent.get(name, 0.0) for agent in stats], np.float32)
            self._same(f"statistic {name}", theirs, mine[0])

    def _same(self, what: str, theirs: NDArray, mine: NDArray) -> None:
        if what == "observation":
            mine = mine.reshape(theirs.shape)
        if np.array_equal(theirs, mine):
            return
        agent, *rest = (int(i) for i in np.argwhere(theirs != mine)[0])
        token = f", token {rest[0]}" if what == "observation" else f", resource {rest[0]}" if rest else ""
        old, new = (x[agent, rest[0]] if rest else x[agent] for x in (theirs, mine))
        s = self.state
        raise DifferenceError(
            f"{what} of agent {agent}{token}, step {int(s.step[0])} of episode {int(s.episode[0])}, seed "
            f"{int(s.seed[0])}: the package has {old}, the compiled simulator {new}"
        )
