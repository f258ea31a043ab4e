"""Plays the compiled simulator and the mettagrid package side by side and names the first difference."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.errors import ConfigError
from cavalcade.envs.mettagrid.arenas import Arenas, uncounted
from cavalcade.envs.mettagrid.seeds import episode_seeds
from cavalcade.envs.mettagrid.state import COUNTS, UNIQUE, statistic
from cavalcade.envs.mettagrid.supported import game_from

_HOLD = 0.5  # probability that an agent repeats its action


class Original:
    """An arena of the package's engine."""

    def __init__(self, config: Any):
        from mettagrid.config.mettagrid_c_config import convert_to_cpp_game_config

        self._game = config.game
        self._converted, self._renamed = convert_to_cpp_game_config(config.game)
        n, tokens = config.game.num_agents, config.game.obs.num_tokens
        self.observation = np.zeros((n, tokens, 3), np.uint8)
        self.reward = np.zeros(n, np.float32)
        self.actions = np.zeros(n, np.int32)
        self._ends = [np.zeros(n, np.bool_), np.zeros(n, np.bool_)]
        self._vibes = np.zeros(n, np.int32)
        self.engine: Any = None

    def begin(self, map_seed: int, seed: int) -> None:
        """Begins an episode."""
        from mettagrid.config.mettagrid_c_config import rename_map_agents
        from mettagrid.mettagrid_c import MettaGrid

        builder = self._game.map_builder.model_copy()
        if "seed" in type(builder).model_fields:
            builder.seed = map_seed
        grid = builder.create().build_for_num_agents(self._game.num_agents).grid.tolist()
        self.engine = MettaGrid(self._converted, rename_map_agents(grid, self._renamed) if self._renamed else grid, seed)
        for ends in self._ends:
            ends[:] = False
        self.engine.set_buffers(self.observation, *self._ends, self.reward, self.actions, self._vibes)

    def agents(self) -> dict[int, Any]:
        """The agents by number, as the engine describes them."""
        return {thing["agent_id"]: thing for thing in self.engine.grid_objects().values() if "agent_id" in thing}


def compare(config: Any, steps: int, *, seed: int = 0, wild: float = 0.0, deep: int = 50) -> int:
    """Steps one arena in both simulators with equal random actions; returns the agent-steps compared.

    Observations, rewards and returns are compared in every step; positions, inventories and statistics every `deep`
    steps and at the end of episodes. wild: share of actions out of range. Raises `ConfigError` at the first difference.
    """
    game = game_from(config)
    ours = Arenas(game, game.agents, seed=seed, stats=[COUNTS[UNIQUE]], threads=1)
    theirs = Original(config)
    rng = np.random.default_rng(seed)
    actions = np.zeros(game.agents, np.int32)
    ours.reset()
    _begin(theirs, ours)
    _same("observation", ours, theirs.observation.reshape(game.agents, -1), ours.buffers.observation)
    for step in range(1, steps + 1):
        fresh = rng.integers(0, game.actions, game.agents)
        strange = rng.integers(-3, game.actions + 4, game.agents)
        fresh = np.where(rng.random(game.agents) < wild, strange, fresh)
        actions = np.where(rng.random(game.agents) < _HOLD, actions, fresh).astype(np.int32)
        theirs.actions[:] = ours._actions[:] = actions
        theirs.engine.step()
        last = ours.clone() if game.max_steps and ours.state.step[0] + 1 >= game.max_steps else None
        if last is not None:  # before the next episode begins
            last._actions[:] = actions
            last._outputs.length[:] = ours._outputs.length
            from cavalcade.envs.mettagrid import cpu

            cpu.step(last.state, last.tables, last._actions, last._outputs, 1)
            _deep(last, theirs)
        ours._step()
        seen = ours.buffers.final_observation if last is not None else ours.buffers.observation
        _same("observation", ours, theirs.observation.reshape(game.agents, -1), seen)
        _same("reward", ours, theirs.reward.view(np.uint32), ours.buffers.reward.view(np.uint32))
        if last is not None:
            _begin(theirs, ours)
        elif step % deep == 0 or step == steps:
            _deep(ours, theirs)
    return steps * game.agents


def _begin(theirs: Original, ours: Arenas) -> None:
    s = ours.state
    theirs.begin(*episode_seeds(int(s.seed[0]), int(s.index[0]), int(s.episode[0])))


def _deep(ours: Arenas, theirs: Original) -> None:
    """Compares what observations may not show."""
    s, t, game = ours.state, ours.tables, ours.game
    found, stats = theirs.agents(), theirs.engine.get_episode_stats()["agent"]
    place = np.array([(found[a]["r"] + t.margin) * t.stride + found[a]["c"] + t.margin for a in range(game.agents)])
    _same("place", ours, place, s.place[0])
    inventory = np.zeros((game.agents, len(game.resources)), np.int64)
    for a in range(game.agents):
        for resource, amount in found[a]["inventory"].items():
            inventory[a, resource] = amount
    _same("inventory", ours, inventory, s.inventory[0].astype(np.int64))
    _same("return", ours, np.asarray(theirs.engine.get_episode_rewards()).view(np.uint32), s.total[0].view(np.uint32))
    names = {name for agent in stats for name in agent if not uncounted(game, [name])}
    for name in sorted(names):
        mine = statistic(s, game, name)
        assert mine is not None
        _same(f"statistic {name}", ours, np.array([agent.get(name, 0.0) for agent in stats], np.float32), mine[0])


def _same(what: str, ours: Arenas, theirs: NDArray, mine: NDArray) -> None:
    if np.array_equal(theirs, mine):
        return
    agent, *rest = (int(i) for i in np.argwhere(theirs != mine)[0])
    at = f" {rest}" if rest else ""
    old, new = theirs[agent], mine[agent]
    if rest:
        old, new = old[rest[0]], new[rest[0]]
    s = ours.state
    raise ConfigError(
        f"{what}{at} of agent {agent} differs in step {int(s.step[0])} of episode {int(s.episode[0])}, seed "
        f"{int(s.seed[0])}: the package has {old}, the compiled simulator {new}"
    )
