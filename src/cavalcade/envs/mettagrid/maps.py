"""Maps of arenas as cell codes, equal to those of the mettagrid package for the same seed."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.errors import ConfigError
from cavalcade.envs.mettagrid.game import Game, RandomMap
from cavalcade.envs.mettagrid.package import build_map
from cavalcade.envs.mettagrid.tables import AGENT, map_codes


class Maps:
    """Builds the maps of a game."""

    def __init__(self, game: Game):
        self._game, self._codes = game, map_codes(game)
        self._random = isinstance(game.map, RandomMap)
        if self._random:
            self._border, self._symbols = _plan(game.map, self._codes)
        first = self.build(0)
        self.height, self.width = first.shape

    def build(self, seed: int) -> NDArray[np.uint8]:
        """The map of a seed, (H, W); agents have the code AGENT."""
        if self._random:
            inner, plan = self._symbols.copy(), self._game.map
            np.random.default_rng(seed).shuffle(inner)
            found, b = self._border.copy(), plan.border
            found[b : plan.height - b, b : plan.width - b] = inner.reshape(plan.height - 2 * b, plan.width - 2 * b)
            return found
        return self._from_package(seed)

    def _from_package(self, seed: int) -> NDArray[np.uint8]:
        names = build_map(self._game.map, seed, self._game.agents)
        return np.vectorize(self._code, otypes=[np.uint8])(names)

    def _code(self, name: str) -> int:
        if name == "agent" or name.startswith("agent."):
            return AGENT
        if name not in self._codes:
            raise ConfigError(f"the map has {name!r}, but no object of the game has that map name")
        return self._codes[name]


def _plan(plan: RandomMap, codes: dict[str, int]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The border, and the objects inside it before they are shuffled."""
    room = (plan.height - 2 * plan.border) * (plan.width - 2 * plan.border)
    border = np.full((plan.height, plan.width), codes[plan.border_object] if plan.border else 0, np.uint8)
    counts = dict(plan.objects)
    while sum(counts.values()) + plan.agents > room and any(count > 1 for count in counts.values()):
        counts = {name: max(1, count // 2) for name, count in counts.items()}
    names = np.repeat([codes[name] for name in counts], list(counts.values())).astype(np.uint8)
    if len(names) + plan.agents > room:
        raise ConfigError(
            f"{len(names)} objects and {plan.agents} agents do not fit into {room} cells; enlarge the map"
        )
    inside = np.concatenate([names, np.full(plan.agents, AGENT, np.uint8)])
    return border, np.concatenate([inside, np.zeros(room - len(inside), np.uint8)])


def place_map(codes: NDArray[np.uint8], margin: int, outside: int) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """A map with its margin, flat, agents numbered row by row; and their cells."""
    padded = np.pad(codes, margin, constant_values=outside).ravel()
    cells = np.flatnonzero(padded == AGENT)
    padded[cells] += np.arange(len(cells), dtype=np.uint8)
    return padded, cells
