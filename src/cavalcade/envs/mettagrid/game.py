"""Games that the compiled simulator plays, as plain data: the subset of a MettaGridConfig that it supports."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

DIRECTIONS = {
    "north": (-1, 0), "south": (1, 0), "west": (0, -1), "east": (0, 1),
    "northeast": (-1, 1), "northwest": (-1, -1), "southeast": (1, 1), "southwest": (1, -1),
}  # fmt: skip
CARDINAL = ("north", "south", "west", "east")
MOST = 65_535  # of a resource


@dataclass(frozen=True)
class Use:
    """What happens when an agent moves into an object: if it has `needs`, it gets `deltas`, in this order."""

    needs: tuple[tuple[str, int], ...]
    deltas: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Kind:
    """Objects of one kind, without an inventory of their own."""

    name: str
    map_name: str  # in maps
    use: Use | None = None
    tags: tuple[str, ...] = ()  # besides type:<name>
    vibe: int = 0
    wall: bool = False


@dataclass(frozen=True)
class Limit:
    """The amount that an agent holds of some resources together."""

    resources: tuple[str, ...]
    base: int
    most: int = MOST


@dataclass(frozen=True)
class Reward:
    """A reward for the amount held of a resource: for its changes, or for the amount in every step."""

    resource: str
    weight: float
    least: float | None = None
    most: float | None = None
    per_tick: bool = False


@dataclass(frozen=True)
class RandomMap:
    """Objects and agents at random places inside a border."""

    height: int
    width: int
    objects: tuple[tuple[str, int], ...]
    agents: int
    border: int = 0
    border_object: str = "wall"


@dataclass(frozen=True)
class Game:
    """A game of the supported form."""

    agents: int
    max_steps: int  # 0: episodes never end
    resources: tuple[str, ...]
    kinds: tuple[Kind, ...]
    rewards: tuple[Reward, ...]
    map: Any  # RandomMap, or a map builder's configuration of the mettagrid package
    window: tuple[int, int] = (11, 11)  # height and width
    tokens: int = 200
    value_base: int = 256
    shown: tuple[bool, bool, bool] = (True, True, True)  # episode_completion_pct, last_action, last_reward
    directions: tuple[str, ...] = CARDINAL
    vibes: int = 0  # actions that change the vibe; they have no effect as primary actions
    agent_tags: tuple[str, ...] = ()  # besides type:agent
    agent_vibe: int = 0
    default_limit: int = MOST
    limits: tuple[Limit, ...] = ()
    initial: tuple[tuple[str, int], ...] = ()
    more_tags: tuple[str, ...] = ()  # that no object has
    protocol_features: bool = True  # feature ids are reserved for protocols

    @property
    def actions(self) -> int:
        """Number of actions: noop, moves, vibes."""
        return 1 + len(self.directions) + self.vibes

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """All tags, by id."""
        found = {*self.more_tags, *self.agent_tags, "type:agent"}
        for kind in self.kinds:
            found |= {*kind.tags, f"type:{kind.name}"}
        return tuple(sorted(found))

    @property
    def digits(self) -> int:
        """Tokens that the largest amount needs."""
        return math.ceil(math.log(MOST + 1, self.value_base))

    @cached_property
    def features(self) -> tuple[tuple[str, float], ...]:
        """Names and normalisations of token features, by id."""
        first = [
            ("agent:group", 10.0), ("episode_completion_pct", 255.0), ("last_action", 10.0), ("last_reward", 100.0),
            ("goal", 100.0), ("vibe", 255.0), ("tag", 10.0), ("lp:east", 255.0), ("lp:west", 255.0),
            ("lp:north", 255.0), ("lp:south", 255.0), ("agent_id", 255.0),
        ]  # fmt: skip
        for name in self.resources:
            digits = [f"inv:{name}", *(f"inv:{name}:p{power}" for power in range(1, self.digits))]
            first += [(digit, float(self.value_base)) for digit in digits]
        if self.protocol_features:
            first += [(f"protocol_{way}:{name}", 100.0) for way in ("input", "output") for name in self.resources]
        return tuple(first)
