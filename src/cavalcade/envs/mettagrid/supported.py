"""Reads a MettaGridConfig as a `Game`; what the compiled simulator does not support is refused by name.

Refusal is by allowlist: any field that is set and not listed here refuses, so that a rule of a later version of the
package is never ignored in silence.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from cavalcade.envs.mettagrid.game import (
    AGENT_CELLS,
    DIRECTIONS,
    TEAMS,
    Game,
    Inventory,
    Kind,
    Limit,
    RandomMap,
    Reward,
    Role,
    Term,
)
from cavalcade.envs.mettagrid.initial import MOST_RESOURCES
from cavalcade.envs.mettagrid.read_handlers import Names, UnsupportedError, check_fields, read_handler
from cavalcade.envs.mettagrid.statistics import uncounted
from cavalcade.envs.mettagrid.tables import MOST_HOLDERS, OUTSIDE, SHOWN, holding

VERSION = "0.26.22"  # of the package whose rules are compiled
_ANY: Mapping[str, Any] = {}  # anything goes: the engine ignores it, or it is read below
_ACTION = dict.fromkeys(("action_handler", "required_resources", "consumed_resources"), _ANY)
_INVENTORY: Mapping[str, Any] = dict.fromkeys(("default_limit", "limits", "initial"), _ANY)
_THING: Mapping[str, Any] = {
    **dict.fromkeys(
        ("pydantic_type", "name", "map_name", "tags", "vibe", "handlers", "on_use_handler", "blocks_vision"), _ANY
    ),
    "inventory": _INVENTORY,
}
_AGENT: Mapping[str, Any] = {
    **dict.fromkeys(
        ("pydantic_type", "map_name", "tags", "vibe", "team_id", "rewards", "handlers", "on_use_handler", "on_tick",
         "on_after_use_handler"), _ANY,
    ),
    "inventory": _INVENTORY,
}  # fmt: skip
_LISTED: Mapping[str, Any] = {
    **dict.fromkeys(
        ("resource_names", "vibe_names", "num_agents", "max_steps", "episode_truncates", "params", "render", "tags",
         "map_builder", "protocol_details_obs", "reward_estimates", "talk", "end_episode_on_game_stats"), _ANY,
    ),
    "obs": {
        **dict.fromkeys(("width", "height", "num_tokens", "token_value_base"), _ANY),
        "global_obs": dict.fromkeys((*SHOWN, "goal_obs"), _ANY),  # the engine never reads goal_obs
    },
    "actions": {
        "noop": _ACTION, "move": {**_ACTION, "allowed_directions": _ANY}, "attack": _ANY,
        "change_vibe": {**_ACTION, "enabled": _ANY, "vibes": _ANY},
    },
    "agent": _AGENT,
}  # fmt: skip


def game_from(config: Any) -> Game:
    """The `Game` of a MettaGridConfig; raises `UnsupportedError`."""
    game = config.game
    given = game.model_dump(exclude_defaults=True)
    things, agents = given.pop("objects", {}), given.pop("agents", [])
    _check_listed(given, _LISTED, "")
    for name, thing in things.items():
        _check_listed(thing, _THING, f"objects.{name}.")
    for i, agent in enumerate(agents):
        _check_listed(agent, _AGENT, f"agents[{i}].")
    obs, vibe = game.obs, game.actions.change_vibe
    crew = _crew(game)
    limits: dict[str, tuple[str, ...]] = {}
    for _, agent in crew:
        for name, limit in agent.inventory.limits.items():
            limits.setdefault(name, tuple(x for x in limit.resources if x in game.resource_names))
    names = Names(game.resource_names, game.id_map().tag_names(), [x.name for x in vibe.vibes], limits)
    groups = {team: i for i, team in enumerate(dict.fromkeys(agent.team_id for _, agent in crew))}
    read = [_role(path, agent, groups[agent.team_id], names) for path, agent in crew]
    roles = tuple(dict.fromkeys(read))
    found = Game(
        agents=game.num_agents,
        max_steps=game.max_steps,
        resources=tuple(game.resource_names),
        kinds=tuple(_kind(name, thing, names) for name, thing in game.objects.items()),
        roles=roles,
        map=_map(game.map_builder),
        cells=_cells([agent.team_id for _, agent in crew], [roles.index(role) for role in read]),
        window=(obs.height, obs.width),
        tokens=obs.num_tokens,
        value_base=obs.token_value_base,
        shown=tuple(name for name in SHOWN if getattr(obs.global_obs, name)),
        directions=tuple(game.actions.move.allowed_directions),
        vibes=len(vibe.vibes) if vibe.enabled else 0,
        more_tags=tuple(game.tags),
        protocol_features=game.protocol_details_obs,
    )
    return check_supported(found)


def check_supported(game: Game) -> Game:
    """The game itself if its sizes are supported; raises `UnsupportedError`."""
    for name, size in zip(("height", "width"), game.window, strict=True):
        if size % 2 == 0 or not 1 <= size <= 15:
            raise UnsupportedError(f"the {name} of the window is {size}; it must be odd and at most 15")
    _at_most("agents", game.agents, MOST_HOLDERS)
    _at_most("resources", len(game.resources), MOST_RESOURCES)
    _at_most("kinds of objects", len(game.kinds), OUTSIDE - 1)
    _at_most("kinds of agents and of objects that hold resources", len(game.roles) + len(holding(game)), MOST_HOLDERS)
    if isinstance(game.map, RandomMap):
        counts, names = dict(game.map.objects), [kind.map_name for kind in holding(game)]
        things = game.agents + sum(counts.get(name, 0) for name in names)
        _at_most("agents and objects that hold resources", things, MOST_HOLDERS)
    if not 2 <= game.value_base <= 256:
        raise UnsupportedError(f"obs.token_value_base is {game.value_base}; it must be from 2 to 256")
    if unknown := [name for name in game.directions if name not in DIRECTIONS]:
        raise UnsupportedError(f"actions.move.allowed_directions has {unknown[0]!r}")
    return game


def _crew(game: Any) -> list[tuple[str, Any]]:
    """The configurations of the agents with their paths: one for each, or one for all."""
    if not game.agents:
        return [("agent", game.agent.model_copy(update={"team_id": 0}))]
    if len(game.agents) != game.num_agents:
        raise UnsupportedError(f"agents has {len(game.agents)} entries and num_agents is {game.num_agents}")
    return [(f"agents[{i}]", agent) for i, agent in enumerate(game.agents)]


def _role(path: str, agent: Any, group: int, names: Names) -> Role:
    if agent.name != "agent" or agent.map_name != agent.name:
        field = "name" if agent.name != "agent" else "map_name"
        raise UnsupportedError(f"{path}.{field} is {getattr(agent, field)!r}")
    return Role(
        rewards=tuple(_reward(f"{path}.rewards.{name}", x, names.resources) for name, x in agent.rewards.items()),
        inventory=_inventory(path, agent.inventory, names.resources),
        tags=tuple(agent.tags),
        vibe=agent.vibe,
        group=group,
        on_use=read_handler(f"{path}.on_use_handler", agent.on_use_handler, names),
        on_tick=read_handler(f"{path}.on_tick", agent.on_tick, names),
        after_use=read_handler(f"{path}.on_after_use_handler", agent.on_after_use_handler, names),
    )


def _cells(teams: list[int], roles: list[int]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Names of agents in maps, with the roles of their team in order; later teams may take names of earlier ones."""
    if len(set(roles)) == 1 and len(set(teams)) == 1 and teams[0] == 0:
        return AGENT_CELLS
    first: dict[str, int] = {}  # role of the first agent
    whole: dict[str, tuple[int, ...]] = {}  # roles of larger teams; the original looks here first
    for group, team in enumerate(dict.fromkeys(teams)):
        own = f"agent.{TEAMS[team] if team < len(TEAMS) else f'group_{group}'}"
        names = [f"team_{group}", *([f"team_{team}"] if team != group else [])]
        names += [TEAMS[group]] if group < len(TEAMS) else []
        names += [TEAMS[team]] if team < len(TEAMS) and team != group else []
        names += ["default", "agent"] if group == 0 else []
        mine = tuple(role for role, other in zip(roles, teams, strict=True) if other == team)
        first[own] = mine[0]
        if len(mine) > 1:
            whole[own] = mine
        for name in (f"agent.{name}" for name in names):
            first[name] = first[own]
            if own in whole:
                whole[name] = whole[own]
    return tuple((name, whole.get(name, (role,))) for name, role in first.items())


def _check_listed(given: Mapping[str, Any], listed: Mapping[str, Any], path: str) -> None:
    for name, value in given.items():
        if name not in listed:
            raise UnsupportedError(f"{path}{name} is set")
        if listed[name] and isinstance(value, Mapping):
            _check_listed(value, listed[name], f"{path}{name}.")


def _at_most(name: str, count: int, most: int) -> None:
    if count > most:
        raise UnsupportedError(f"{count} {name} are given, at most {most} are supported")


def _kind(name: str, thing: Any, names: Names) -> Kind:
    wall = thing.pydantic_type == "wall"  # the engine ignores what walls are said to hold
    inventory = Inventory() if wall else _inventory(f"objects.{name}", thing.inventory, names.resources)
    return Kind(
        name=thing.name,
        map_name=thing.map_name,
        on_use=read_handler(f"objects.{name}.on_use_handler", thing.on_use_handler, names),
        tags=tuple(thing.tags),
        vibe=thing.vibe,
        wall=wall,
        blocks_vision=thing.blocks_vision,
        inventory=inventory,
    )


def _inventory(path: str, given: Any, resources: Sequence[str]) -> Inventory:
    limits = {name: _limit(f"{path}.inventory.limits.{name}", x, resources) for name, x in given.limits.items()}
    if any(limit.modifiers for limit in limits.values()):
        for name, limit in limits.items():  # what the original drops first depends on the order of a hash table
            if len(limit.resources) > 1:
                raise UnsupportedError(f"{path}.inventory.limits.{name} has several resources, and modifiers are set")
    return Inventory(
        tuple(limits.values()),
        tuple((name, amount) for name, amount in given.initial.items() if name in resources),
        given.default_limit,
    )


def _limit(path: str, limit: Any, resources: Sequence[str]) -> Limit:
    check_fields(path, limit, ("base", "max", "resources", "modifiers"))
    modifiers = tuple((name, bonus) for name, bonus in limit.modifiers.items() if name in resources)
    if zero := [name for name, bonus in modifiers if bonus == 0]:
        raise UnsupportedError(f"{path}.modifiers.{zero[0]} is 0")
    return Limit(tuple(limit.resources), limit.base, limit.max, modifiers)


def _reward(path: str, entry: Any, resources: Sequence[str]) -> Reward:
    """A reward of the form sum of weight × amount or statistic, within bounds."""
    check_fields(path, entry, ("reward", "per_tick"))
    value, most, least = entry.reward, None, None
    if type(value).__name__ == "MinGameValue":
        value, most = _bounded(path, value)
    if type(value).__name__ == "MaxGameValue":
        value, least = _bounded(path, value)
    values, weights = [value], [1.0]
    if type(value).__name__ == "SumGameValue":
        check_fields(path, value, ("values", "weights", "log"))
        if value.log:
            raise UnsupportedError(f"{path} is a sum of {len(value.values)} logarithms")
        values, weights = value.values, value.weights or [1.0] * len(value.values)
    terms = tuple(_term(path, x, weight, resources) for x, weight in zip(values, weights, strict=True))
    return Reward(terms, least, most, entry.per_tick)


_VALUES = {"ConstValue": ("value",), "InventoryValue": ("item", "scope"), "StatValue": ("name", "scope", "delta")}


def _term(path: str, value: Any, weight: float, resources: Sequence[str]) -> Term:
    kind = type(value).__name__
    if kind in _VALUES:
        check_fields(path, value, _VALUES[kind])
    if kind == "ConstValue":
        return Term("constant", repr(value.value), float(weight))
    if kind not in ("InventoryValue", "StatValue"):
        raise UnsupportedError(f"{path} is of a {kind}, not of an agent's inventory or statistics")
    if str(value.scope) != "agent":
        raise UnsupportedError(f"{path} is of the {value.scope}, not of an agent")
    if kind == "StatValue":
        if uncounted(resources, [value.name]):
            raise UnsupportedError(f"{path} is of the statistic {value.name!r}, which is not counted")
        return Term("statistic", value.name, float(weight))
    if value.item not in resources:
        raise UnsupportedError(f"{path} is of {value.item!r}, which is not among resource_names")
    return Term("amount", value.item, float(weight))


def _bounded(path: str, value: Any) -> tuple[Any, float]:
    if len(value.values) != 2 or type(value.values[1]).__name__ != "ConstValue":
        raise UnsupportedError(f"{path} is the {type(value).__name__} of other values than one and a constant")
    return value.values[0], value.values[1].value


def _map(builder: Any) -> Any:
    """The package's random maps as our own; other builders stay in Python."""
    kind = f"{type(builder).__module__}.{type(builder).__qualname__}"
    if kind == "mettagrid.map_builder.random_map.RandomMapBuilderConfig":
        objects, given = tuple(builder.objects.items()), builder.agents
        named = {"agent": given} if isinstance(given, int) else given
        agents = tuple((f"agent.{name}", count) for name, count in named.items())
        return RandomMap(builder.height, builder.width, objects, agents, builder.border_width, builder.border_object)
    return builder
