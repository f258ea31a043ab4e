"""Maps of arenas as cell codes, equal to those of the mettagrid package for the same seed."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.errors import ConfigError
from cavalcade.envs.mettagrid.game import Game, RandomMap
from cavalcade.envs.mettagrid.package import build_map
from cavalcade.envs.mettagrid.tables import AGENT, MOST_HOLDERS, OUTSIDE, holding, map_codes


class Opening(NamedTuple):
    """An arena at the start of an episode. P cells, A agents, up to H agents and objects that hold resources."""

    grid: NDArray[np.uint8]  # (P,): cell codes
    places: NDArray[np.int64]  # (A,)
    roles: NDArray[np.uint8]  # (H,)
    things: int  # how many of them there are
    seed: int  # of the random generator


@dataclass(frozen=True)
class RecordedMaps:
    """Maps of equal size by their seeds."""

    codes: dict[int, NDArray[np.uint8]]


class Maps:
    """Builds the maps of a game."""

    def __init__(self, game: Game):
        self._game, self._codes = game, map_codes(game)
        self._random = isinstance(game.map, RandomMap)
        if self._random:
            self._border, self._symbols = _plan(game.map, self._codes)
        holders = holding(game)
        self._roles = {  # of objects that hold resources, by code
            code: len(game.roles) + holders.index(kind) for code, kind in enumerate(game.kinds, 1) if kind in holders
        }
        recorded = game.map.codes if isinstance(game.map, RecordedMaps) else {0: None}
        self.height, self.width = self.build(next(iter(recorded))).shape

    def build(self, seed: int) -> NDArray[np.uint8]:
        """The map of a seed, (H, W); agents have the code AGENT + number of their name."""
        if self._random:
            inner, plan = self._symbols.copy(), self._game.map
            np.random.default_rng(seed).shuffle(inner)
            found, b = self._border.copy(), plan.border
            found[b : plan.height - b, b : plan.width - b] = inner.reshape(plan.height - 2 * b, plan.width - 2 * b)
            return found
        if isinstance(self._game.map, RecordedMaps):
            return self._game.map.codes[seed]
        names = build_map(self._game.map, seed, self._game.agents)
        return np.vectorize(self._code, otypes=[np.uint8])(names)

    def open(self, map_seed: int, margin: int, seed: int) -> Opening:
        """The arena of a map: with its margin, flat; agents and objects that hold resources numbered row by row."""
        codes = self.build(map_seed)
        if codes.shape != (self.height, self.width):
            raise ConfigError(f"maps have shapes {codes.shape} and {self.height, self.width}")
        grid = np.pad(codes, margin, constant_values=OUTSIDE).ravel()
        agents, objects = np.flatnonzero(grid >= AGENT), np.flatnonzero(np.isin(grid, list(self._roles)))
        things = len(agents) + len(objects)
        if len(agents) != self._game.agents:
            raise ConfigError(f"the map of seed {map_seed} has {len(agents)} agents, not {self._game.agents}")
        if things > MOST_HOLDERS:
            raise ConfigError(
                f"the map of seed {map_seed} has {len(agents)} agents and {len(objects)} objects that hold resources; "
                f"at most {MOST_HOLDERS} in all are supported, take --simulator package"
            )
        roles = np.zeros(MOST_HOLDERS if self._roles else things, np.uint8)
        roles[:things] = [*self._agent_roles(grid[agents] - AGENT), *(self._roles[code] for code in grid[objects])]
        grid[np.concatenate([agents, objects])] = AGENT + np.arange(things)
        return Opening(grid, agents, roles, things, seed)

    def _agent_roles(self, names: NDArray[np.uint8]) -> Iterator[int]:
        """Roles of agents by the number of their name: the first of a name has its first role, and so on."""
        seen: Counter[int] = Counter()
        for i in names.tolist():
            name, roles = self._game.cells[i]
            if seen[i] >= len(roles) > 1:
                raise ConfigError(f"the map has more than {len(roles)} cells {name!r}, as many as its team has agents")
            yield roles[seen[i] if len(roles) > 1 else 0]
            seen[i] += 1

    def _code(self, name: str) -> int:
        if name not in self._codes:
            raise ConfigError(f"the map has {name!r}, but no object of the game has that map name")
        return self._codes[name]


def _plan(plan: RandomMap, codes: dict[str, int]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The border, and the objects inside it before they are shuffled."""
    room = (plan.height - 2 * plan.border) * (plan.width - 2 * plan.border)
    border = np.full((plan.height, plan.width), codes[plan.border_object] if plan.border else 0, np.uint8)
    counts, agents = dict(plan.objects), sum(count for _, count in plan.agents)
    while sum(counts.values()) + agents > room and any(count > 1 for count in counts.values()):
        counts = {name: max(1, count // 2) for name, count in counts.items()}
    if (objects := sum(counts.values())) + agents > room:
        raise ConfigError(f"{objects} objects and {agents} agents do not fit into {room} cells; enlarge the map")
    inside = [np.full(count, codes[name], np.uint8) for name, count in (*counts.items(), *plan.agents)]
    return border, np.concatenate([*inside, np.zeros(room - objects - agents, np.uint8)])
