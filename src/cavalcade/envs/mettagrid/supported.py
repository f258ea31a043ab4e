"""Reads a MettaGridConfig as a `Game`; what the compiled simulator does not support is refused by name.

Refusal is by allowlist: any field that is set and not listed here refuses, so that a rule of a later version of the
package is never ignored in silence.
"""

from collections.abc import Mapping
from typing import Any

from cavalcade.core.errors import ConfigError
from cavalcade.envs.mettagrid.game import DIRECTIONS, Game, Kind, Limit, RandomMap, Reward, Use
from cavalcade.envs.mettagrid.initial import MOST_RESOURCES
from cavalcade.envs.mettagrid.tables import AGENT, OUTSIDE

VERSION = "0.26.22"  # of the package whose rules are compiled
_ANY: Mapping[str, Any] = {}  # anything goes: the engine ignores it, or it is read below
_ACTION = dict.fromkeys(("action_handler", "required_resources", "consumed_resources"), _ANY)
_THING: Mapping[str, Any] = dict.fromkeys(
    ("pydantic_type", "name", "map_name", "tags", "vibe", "handlers", "on_use_handler"), _ANY
)
_LISTED: Mapping[str, Any] = {
    **dict.fromkeys(
        ("resource_names", "vibe_names", "num_agents", "max_steps", "episode_truncates", "params", "render", "tags",
         "map_builder", "protocol_details_obs", "reward_estimates", "talk", "end_episode_on_game_stats"), _ANY,
    ),
    "obs": {
        **dict.fromkeys(("width", "height", "num_tokens", "token_value_base"), _ANY),
        "global_obs": dict.fromkeys(("episode_completion_pct", "last_action", "last_reward"), _ANY),
    },
    "actions": {
        "noop": _ACTION, "move": {**_ACTION, "allowed_directions": _ANY}, "attack": _ANY,
        "change_vibe": {**_ACTION, "enabled": _ANY, "vibes": _ANY},
    },
    "agent": {
        **dict.fromkeys(("pydantic_type", "map_name", "tags", "vibe", "team_id", "rewards"), _ANY),
        "inventory": dict.fromkeys(("default_limit", "limits", "initial"), _ANY),
    },
}  # fmt: skip


class UnsupportedError(ConfigError):
    """The compiled simulator does not play this game; the message names the first field."""


def game_from(config: Any) -> Game:
    """The `Game` of a MettaGridConfig; raises `UnsupportedError`."""
    game = config.game
    given = game.model_dump(exclude_defaults=True)
    things = given.pop("objects", {})
    _check_listed(given, _LISTED, "")
    for name, thing in things.items():
        _check_listed(thing, _THING, f"objects.{name}.")
    obs, agent, held = game.obs, game.agent, game.agent.inventory
    if agent.map_name != agent.name:
        raise UnsupportedError(f"agent.map_name is {agent.map_name!r}")
    vibe = game.actions.change_vibe
    world = obs.global_obs
    found = Game(
        agents=game.num_agents,
        max_steps=game.max_steps,
        resources=tuple(game.resource_names),
        kinds=tuple(_kind(name, thing, game.resource_names) for name, thing in game.objects.items()),
        rewards=tuple(
            _reward(f"agent.rewards.{name}", entry, game.resource_names) for name, entry in agent.rewards.items()
        ),
        map=_map(game.map_builder),
        window=(obs.height, obs.width),
        tokens=obs.num_tokens,
        value_base=obs.token_value_base,
        shown=(world.episode_completion_pct, world.last_action, world.last_reward),
        directions=tuple(game.actions.move.allowed_directions),
        vibes=len(vibe.vibes) if vibe.enabled else 0,
        agent_tags=tuple(agent.tags),
        agent_vibe=agent.vibe,
        default_limit=held.default_limit,
        limits=tuple(_limit(name, limit) for name, limit in held.limits.items()),
        initial=tuple((name, amount) for name, amount in held.initial.items() if name in game.resource_names),
        more_tags=tuple(game.tags),
        protocol_features=game.protocol_details_obs,
    )
    return check_supported(found)


def check_supported(game: Game) -> Game:
    """The game itself if its sizes are supported; raises `UnsupportedError`."""
    for name, size in zip(("height", "width"), game.window, strict=True):
        if size % 2 == 0 or not 1 <= size <= 15:
            raise UnsupportedError(f"the {name} of the window is {size}; it must be odd and at most 15")
    _at_most("agents", game.agents, 256 - AGENT)
    _at_most("resources", len(game.resources), MOST_RESOURCES)
    _at_most("kinds of objects", len(game.kinds), OUTSIDE - 1)
    if not 2 <= game.value_base <= 256:
        raise UnsupportedError(f"obs.token_value_base is {game.value_base}; it must be from 2 to 256")
    if unknown := [name for name in game.directions if name not in DIRECTIONS]:
        raise UnsupportedError(f"actions.move.allowed_directions has {unknown[0]!r}")
    return game


def _check_listed(given: Mapping[str, Any], listed: Mapping[str, Any], path: str) -> None:
    for name, value in given.items():
        if name not in listed:
            raise UnsupportedError(f"{path}{name} is set")
        if listed[name] and isinstance(value, Mapping):
            _check_listed(value, listed[name], f"{path}{name}.")


def _at_most(name: str, count: int, most: int) -> None:
    if count > most:
        raise UnsupportedError(f"{count} {name} are given, at most {most} are supported")


def _kind(name: str, thing: Any, resources: list[str]) -> Kind:
    use, path = None, f"objects.{name}.on_use_handler"
    if thing.on_use_handler is not None:
        handler = thing.on_use_handler
        if getattr(handler, "handler_type", "handler") != "handler":
            raise UnsupportedError(f"{path}.handler_type is {handler.handler_type}")
        needs: list[tuple[str, int]] = []
        deltas: list[tuple[str, int]] = []
        for i, part in enumerate(handler.filters):
            _only(f"{path}.filters[{i}]", part, {"filter_type": "resource", "target": "actor"}, ("resources",))
            needs += part.resources.items()
        for i, part in enumerate(handler.mutations):
            _only(f"{path}.mutations[{i}]", part, {"mutation_type": "resource_delta", "target": "actor"}, ("deltas",))
            deltas += part.deltas.items()
        use = Use(*(tuple((what, n) for what, n in pairs if what in resources) for pairs in (needs, deltas)))
    return Kind(thing.name, thing.map_name, use, tuple(thing.tags), thing.vibe, thing.pydantic_type == "wall")


def _only(path: str, part: Any, exactly: Mapping[str, str], free: tuple[str, ...]) -> None:
    """Checks a part of a handler: fixed values, free fields, and nothing else."""
    for name, value in part.model_dump(mode="json", exclude_defaults=False).items():
        if name in exactly and value != exactly[name]:
            raise UnsupportedError(f"{path}.{name} is {value}")
        if name not in exactly and name not in free:
            raise UnsupportedError(f"{path}.{name} is set")
    if missing := [name for name in exactly if not hasattr(part, name)]:
        raise UnsupportedError(f"{path} is {type(part).__name__}, without {missing[0]}")


def _limit(name: str, limit: Any) -> Limit:
    if limit.modifiers:
        raise UnsupportedError(f"agent.inventory.limits.{name}.modifiers is set")
    return Limit(tuple(limit.resources), limit.base, limit.max)


def _reward(path: str, entry: Any, resources: list[str]) -> Reward:
    """A reward of the form weight × amount, within bounds."""
    value, most, least = entry.reward, None, None
    if type(value).__name__ == "MinGameValue":
        value, most = _bounded(path, value)
    if type(value).__name__ == "MaxGameValue":
        value, least = _bounded(path, value)
    kind = type(value).__name__
    weight = 1.0
    if kind == "SumGameValue":
        if len(value.values) != 1 or value.log:
            raise UnsupportedError(f"{path} is a sum of {len(value.values)}{' logarithms' if value.log else ''}")
        weight = value.weights[0] if value.weights is not None else 1.0
        value = value.values[0]
        kind = type(value).__name__
    if kind != "InventoryValue" or str(value.scope) != "agent":
        raise UnsupportedError(f"{path} is of a {kind}, not of an agent's inventory")
    if value.item not in resources:
        raise UnsupportedError(f"{path} is of {value.item!r}, which is not among resource_names")
    return Reward(value.item, float(weight), least, most, entry.per_tick)


def _bounded(path: str, value: Any) -> tuple[Any, float]:
    if len(value.values) != 2 or type(value.values[1]).__name__ != "ConstValue":
        raise UnsupportedError(f"{path} is the {type(value).__name__} of other values than one and a constant")
    return value.values[0], value.values[1].value


def _map(builder: Any) -> Any:
    """The package's random maps as our own; other builders stay in Python."""
    kind = f"{type(builder).__module__}.{type(builder).__qualname__}"
    if kind == "mettagrid.map_builder.random_map.RandomMapBuilderConfig" and isinstance(builder.agents, int):
        objects = tuple(builder.objects.items())
        return RandomMap(
            builder.height, builder.width, objects, builder.agents, builder.border_width, builder.border_object
        )
    return builder
