"""One arena of the mettagrid package's engine, and what it knows after a step."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.envs.mettagrid.package import Engines
from cavalcade.envs.mettagrid.statistics import counted


class Original:
    """Plays episodes of a MettaGridConfig. A agents, R resources, H × W cells."""

    def __init__(self, config: Any):
        self._engines = Engines(config)
        game = self._engines.game
        n = game.num_agents
        self.observation = np.zeros((n, game.obs.num_tokens, 3), np.uint8)
        self.reward = np.zeros(n, np.float32)
        self._actions, self._vibes = np.zeros(n, np.int32), np.zeros(n, np.int32)
        self._resources = tuple(game.resource_names)
        self._engine: Any = None

    def begin(self, map_seed: int, seed: int) -> None:
        """Begins an episode."""
        self._engine = self._engines.make(map_seed, seed)
        ends = np.zeros(len(self.reward), np.bool_), np.zeros(len(self.reward), np.bool_)
        self._engine.set_buffers(self.observation, *ends, self.reward, self._actions, self._vibes)

    def step(self, actions: NDArray[np.int32]) -> None:
        self._actions[:] = actions
        self._engine.step()

    def facts(self) -> dict[str, NDArray[Any]]:
        """What observations may not show: as `ComparedArena.facts` of the compiled simulator."""
        width, height = self._engine.map_width, self._engine.map_height
        place = np.zeros(len(self.reward), np.int32)
        inventory = np.zeros((width * height, len(self._resources)), np.uint16)
        for thing in self._engine.grid_objects().values():
            cell = thing["r"] * width + thing["c"]
            if "agent_id" in thing:
                place[thing["agent_id"]] = cell
            for resource, amount in thing.get("inventory", {}).items():
                inventory[cell, resource] = amount
        stats = self._engine.get_episode_stats()["agent"]
        returns = np.asarray(self._engine.get_episode_rewards(), np.float32)
        return {"place": place, "inventory": inventory, "return": returns.view(np.uint32)} | {
            f"statistic {name}": np.array([agent.get(name, 0.0) for agent in stats], np.float32)
            for name in counted(self._resources)
        }
