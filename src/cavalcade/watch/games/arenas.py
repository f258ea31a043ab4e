"""Episodes of MettaGrid as plain data, played by the compiled simulator or, if only it can, by the package."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.errors import ConfigError
from cavalcade.envs.mettagrid.episode import Episode
from cavalcade.envs.mettagrid.game import Game
from cavalcade.envs.mettagrid.shown import ShownArena
from cavalcade.envs.mettagrid.tables import AGENT, OUTSIDE
from cavalcade.targets.mettagrid.arenas import chosen, game_of
from cavalcade.targets.mettagrid.policy import RecurrentPolicy
from cavalcade.targets.mettagrid.scoring import random_actor
from cavalcade.vector.hosted import HELDOUT_SEEDS
from cavalcade.watch.games.grids import grid_data

MOST_STEPS = 2000


def arena_episode(policy: RecurrentPolicy | None, run: str, seed: int, steps: int, task: Any = None) -> dict[str, Any]:
    """An episode on a held-out map; without a policy agents act at random."""
    if not 1 <= steps <= MOST_STEPS:
        raise ConfigError(f"horizon is {steps}; it must be from 1 to {MOST_STEPS:,}")
    if policy is not None and not isinstance(policy, RecurrentPolicy):
        raise ConfigError(f"{run} was not trained on mettagrid")
    task = policy.config.arena if policy else task
    actor: Any = policy.runner(seed=seed) if policy else random_actor(seed)
    game, note = chosen(task)
    shown = _Compiled(game, HELDOUT_SEEDS + seed) if game else _Package(game_of(task), HELDOUT_SEEDS + seed)
    arena = shown.arena
    first = rows = shown.rows()
    frames = [shown.agents()]
    while len(frames) <= steps and not arena.over:
        actions = np.asarray(actor(arena))
        arena.step(actions)
        frames.append(shown.agents() | {"action": actions.tolist()})
        if (now := shown.rows()) != rows:
            rows = frames[-1]["rows"] = now
    meta = {
        "title": f"{policy.label.name} at update {policy.update}" if policy else "random actions",
        "game": f"MettaGrid {task.task}", "run": run, "seed": seed, "horizon": len(frames) - 1,
        "actions": shown.actions, "resources": shown.resources, "agents": arena.spec.num_envs, "note": note,
    }  # fmt: skip
    return grid_data(meta, first, shown.kinds, frames)


def _frame(at: NDArray, holds: NDArray, arena: Any) -> dict[str, Any]:
    """Rows and columns of the agents, their rewards in this step and so far, and what they hold."""
    return {
        "at": at.tolist(),
        "reward": [round(float(x), 4) for x in arena.buffers.reward],
        "total": [round(float(x), 3) for x in arena.total],
        "holds": holds.tolist(),
    }


class _Compiled:
    """An arena of the compiled simulator."""

    def __init__(self, game: Game, seed: int):
        self.arena = ShownArena(game, seed)
        self.kinds, self.resources = [kind.name for kind in game.kinds], list(game.resources)
        vibes = (f"vibe {i}" for i in range(game.vibes))
        self.actions = ["noop", *(f"move {name}" for name in game.directions), *vibes]

    def rows(self) -> list[list[int]]:
        t = self.arena.tables
        grid = self.arena.state.grid[0].reshape(-1, t.stride)[t.margin : -t.margin, t.margin : -t.margin]
        return np.where(grid >= OUTSIDE, 0, grid).tolist()

    def agents(self) -> dict[str, Any]:
        s, t = self.arena.state, self.arena.tables
        assert (s.grid[0][s.place[0]] >= AGENT).all()
        row, column = np.divmod(s.place[0], t.stride)
        return _frame(np.stack([row - t.margin, column - t.margin], axis=1), s.inventory[0], self.arena)


class _Package:
    """An arena of the mettagrid package."""

    def __init__(self, config: Any, seed: int):
        self.arena = Episode(config, seed)
        self.kinds, self.resources = list(config.game.objects), list(self.arena.simulation.resource_names)
        self.actions = [action.name for action in config.game.actions.actions()]

    def rows(self) -> list[list[int]]:
        s = self.arena.simulation
        found = np.zeros((s.map_height, s.map_width), np.int64)
        for thing in s.grid_objects().values():
            if "agent_id" not in thing:
                found[thing["r"], thing["c"]] = self._number(thing["type_name"].split(".")[0])
        return found.tolist()

    def agents(self) -> dict[str, Any]:
        n = self.arena.spec.num_envs
        at, holds = np.zeros((n, 2), np.int64), np.zeros((n, len(self.resources)), np.int64)
        for thing in self.arena.simulation.grid_objects().values():
            if "agent_id" in thing:
                agent = thing["agent_id"]
                at[agent] = thing["r"], thing["c"]
                for resource, amount in thing["inventory"].items():
                    holds[agent, resource] = amount
        return _frame(at, holds, self.arena)

    def _number(self, kind: str) -> int:
        """The number of a kind of object; those that the game does not name get the next."""
        if kind not in self.kinds:
            self.kinds.append(kind)
        return self.kinds.index(kind) + 1
