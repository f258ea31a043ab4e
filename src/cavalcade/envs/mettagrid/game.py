"""Games that the compiled simulator plays, as plain data: the subset of a MettaGridConfig that it supports."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from cavalcade.envs.mettagrid.handlers import AnyHandler

DIRECTIONS = {
    "north": (-1, 0), "south": (1, 0), "west": (0, -1), "east": (0, 1),
    "northeast": (-1, 1), "northwest": (-1, -1), "southeast": (1, 1), "southwest": (1, -1),
}  # fmt: skip
CARDINAL = ("north", "south", "west", "east")
MOST = 65_535  # of a resource
TEAMS = ("red", "blue", "green", "yellow", "purple", "orange")  # of the package
AGENT_CELLS = tuple((f"agent{name}", (0,)) for name in ("", ".agent", ".default", ".team_0", ".red"))


@dataclass(frozen=True)
class Limit:
    """The amount that is held of some resources together; each unit of a modifier allows so much."""

    resources: tuple[str, ...]
    base: int
    most: int = MOST
    modifiers: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Inventory:
    """Limits, and the amounts at the start. Resources without a limit: up to `default_limit`."""

    limits: tuple[Limit, ...] = ()
    initial: tuple[tuple[str, int], ...] = ()
    default_limit: int = MOST


@dataclass(frozen=True)
class Kind:
    """Objects of one kind."""

    name: str
    map_name: str  # in maps
    on_use: AnyHandler | None = None
    tags: tuple[str, ...] = ()  # besides type:<name>
    vibe: int = 0
    wall: bool = False
    blocks_vision: bool = False
    inventory: Inventory = Inventory()


@dataclass(frozen=True)
class Term:
    """A part of a reward: an amount held, a statistic, or a constant; times a weight."""

    source: Literal["amount", "statistic", "constant"]
    name: str
    weight: float


@dataclass(frozen=True)
class Reward:
    """A reward for the sum of terms: for its changes, or for the sum in every step."""

    terms: tuple[Term, ...]
    least: float | None = None
    most: float | None = None
    per_tick: bool = False


def held(resource: str, weight: float, most: float | None = None) -> Reward:
    """A reward for the amount held of a resource."""
    return Reward((Term("amount", resource, weight),), most=most)


@dataclass(frozen=True)
class Role:
    """What agents of one kind are."""

    rewards: tuple[Reward, ...] = ()
    inventory: Inventory = Inventory()
    tags: tuple[str, ...] = ()  # besides type:agent
    vibe: int = 0
    group: int = 0  # number of the team
    on_use: AnyHandler | None = None  # when another agent moves into this one
    on_tick: AnyHandler | None = None
    after_use: AnyHandler | None = None


@dataclass(frozen=True)
class RandomMap:
    """Objects and agents at random places inside a border."""

    height: int
    width: int
    objects: tuple[tuple[str, int], ...]
    agents: tuple[tuple[str, int], ...]  # by name in maps
    border: int = 0
    border_object: str = "wall"


@dataclass(frozen=True)
class Game:
    """A game of the supported form."""

    agents: int
    max_steps: int  # 0: episodes never end
    resources: tuple[str, ...]
    kinds: tuple[Kind, ...]
    roles: tuple[Role, ...]  # of agents
    map: Any  # RandomMap, or a map builder's configuration of the mettagrid package
    cells: tuple[tuple[str, tuple[int, ...]], ...] = (
        AGENT_CELLS  # names of agents in maps; roles of the first, second, …
    )
    window: tuple[int, int] = (11, 11)  # height and width
    tokens: int = 200
    value_base: int = 256
    shown: tuple[str, ...] = ("episode_completion_pct", "last_action", "last_reward")  # tokens of no place
    directions: tuple[str, ...] = CARDINAL
    vibes: int = 0  # actions that change the vibe; they have no effect as primary actions
    more_tags: tuple[str, ...] = ()  # that no object has
    protocol_features: bool = True  # feature ids are reserved for protocols

    @property
    def actions(self) -> int:
        """Number of actions: noop, moves, vibes."""
        return 1 + len(self.directions) + self.vibes

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """All tags, by id."""
        found = {*self.more_tags, "type:agent", *(tag for role in self.roles for tag in role.tags)}
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
        if "last_action_move" in self.shown:
            first.append(("last_action_move", 1.0))
        return tuple(first)
