"""MettaGrid arenas of some rows of a batch, in a worker. A row is an agent.

The C++ simulator writes tokens, rewards and end flags straight into the rows. An episode is a new C++ object with its
own map and random stream. A time limit is always a truncation, whatever the configuration says. The simulator never
clears its end flags, and clears rewards when it is bound to buffers; this module handles both.
"""

from typing import Any

import numpy as np

from cavalcade.envs.mettagrid.package import Engines
from cavalcade.envs.mettagrid.seeds import episode_seeds
from cavalcade.envs.mettagrid.tasks import load_task


def make_rows(fields: dict[str, np.ndarray], start: int, stop: int, options: dict[str, Any]) -> "MettagridRows":
    """Entry point of the worker: arenas of rows start … stop − 1."""
    return MettagridRows(fields, start, stop, **options)


class MettagridRows:
    """Arenas of rows start … stop − 1."""

    def __init__(
        self,
        fields: dict[str, np.ndarray],
        start: int,
        stop: int,
        *,
        task: str,
        options: dict[str, Any],
        stats: list[str],
    ):
        self._engines = Engines(load_task(task, options))
        self._game = self._engines.game
        self._fields, self._stats = fields, stats
        agents = self._game.num_agents
        self._arenas = [slice(row, row + agents) for row in range(start, stop, agents)]
        self._vibes = np.zeros(agents, np.int32)
        self._simulators: list[Any] = [None] * len(self._arenas)
        fields["action_mask"][start:stop] = True
        self._over, self._late = fields["terminated"][start:stop], fields["truncated"][start:stop]

    def reset(self) -> None:
        """Begins episodes in the arenas with rows marked `wanted`."""
        f = self._fields
        for i, rows in enumerate(self._arenas):
            if f["wanted"][rows].any():
                self._begin(i, rows)
                f["terminated"][rows] = f["truncated"][rows] = False
                f["final_observation"][rows] = 0

    def step(self) -> None:
        """Steps each arena; at the time limit, begins the next episode."""
        self._over[:] = False
        self._late[:] = False
        for i, rows in enumerate(self._arenas):
            simulator = self._simulators[i]
            simulator.step()
            if self._game.max_steps and simulator.current_step >= self._game.max_steps:
                self._end(i, rows)

    def _end(self, i: int, rows: slice) -> None:
        """Writes the final observations and statistics of an episode and begins the next."""
        f = self._fields
        f["final_observation"][rows] = f["observation"][rows]
        reward = f["reward"][rows].copy()
        if self._stats:
            found = self._simulators[i].get_episode_stats()["agent"]
            f["episode_stats"][rows] = [[agent.get(name, 0.0) for name in self._stats] for agent in found]
        self._begin(i, rows)
        f["reward"][rows], f["terminated"][rows], f["truncated"][rows] = reward, False, True

    def _begin(self, i: int, rows: slice) -> None:
        """Begins an episode; its map and random stream depend on (seed, arena, episode number)."""
        f, game = self._fields, self._game
        f["episodes"][rows] += 1
        first = rows.start
        map_seed, seed = episode_seeds(*(int(f[name][first]) for name in ("seed", "index", "episodes")))
        self._simulators[i] = simulator = self._engines.make(map_seed, seed)
        tokens = f["observation"][rows].reshape(game.num_agents, -1, 3)
        simulator.set_buffers(
            tokens, f["terminated"][rows], f["truncated"][rows], f["reward"][rows], f["action"][rows], self._vibes
        )

    def close(self) -> None:
        """Nothing to close: the simulators own no resources."""
