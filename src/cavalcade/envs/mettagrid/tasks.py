"""MettaGrid tasks: built-in ones, or the user's own MettaGridConfig from a file or a function.

The arenas that come with MettaGrid reward hearts, which nothing yields, so the built-in tasks have their own economy:
an agent uses an object by moving into it; mines give ore, generators turn ore into batteries, altars turn batteries
into hearts.
"""

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from cavalcade.core.errors import ConfigError

MISSING = "MettaGrid needs a package: pip install 'cavalcade[mettagrid]'"
RESOURCES = ("ore", "battery", "heart")


def forage(
    *,
    agents: int = 24,
    size: int = 25,
    window: int = 11,
    tokens: int = 200,
    max_steps: int = 1000,
    mines: int = 10,
    generators: int = 5,
    altars: int = 5,
    walls: int = 10,
    batteries: int = 3,
    shaped: bool = True,
) -> Any:
    """The economy; `shaped` rewards the first ore and batteries too, not only hearts.

    Args:
        agents: number of agents in the arena.
        size: side of the square arena.
        window: side of the square that an agent sees around it.
        tokens: maximum number of tokens of an observation.
        max_steps: length of an episode.
        mines: number of mines.
        generators: number of generators.
        altars: number of altars.
        walls: number of walls besides the border.
        batteries: batteries per heart.
        shaped: whether ore and batteries are rewarded too.
    """
    from mettagrid.config.game_value import InventoryValue
    from mettagrid.config.handler_config import actorHas
    from mettagrid.config.reward_config import reward

    objects = {
        "mine": _object("mine", [], {"ore": 1}),
        "generator": _object("generator", [actorHas({"ore": 1})], {"ore": -1, "battery": 1}),
        "altar": _object("altar", [actorHas({"battery": batteries})], {"battery": -batteries, "heart": 1}),
    }
    rewards = {"heart": reward(InventoryValue(item="heart"), weight=1.0)}
    if shaped:
        rewards["ore"] = reward(InventoryValue(item="ore"), weight=0.1, max=0.1)
        rewards["battery"] = reward(InventoryValue(item="battery"), weight=0.3, max=0.9)
    counts = {"wall": walls, "mine": mines, "generator": generators, "altar": altars}
    limits = {"ore": 10, "battery": 10, "heart": 255}
    return _game("forage", agents, size, window, tokens, max_steps, objects, counts, rewards, limits)


def forage_easy(**options: Any) -> Any:
    """The economy with more mines, generators and altars, and one battery per heart."""
    return forage(**{"mines": 30, "generators": 20, "altars": 20, "batteries": 1, **options})


def forage_sparse(**options: Any) -> Any:
    """The economy with rewards for hearts only."""
    return forage(**{"shaped": False, **options})


def navigation(
    *,
    agents: int = 24,
    size: int = 25,
    window: int = 11,
    tokens: int = 200,
    max_steps: int = 500,
    flags: int = 8,
    walls: int = 60,
) -> Any:
    """Find flags between walls; each touch is worth 1.

    Args:
        agents: number of agents in the arena.
        size: side of the square arena.
        window: side of the square that an agent sees around it.
        tokens: maximum number of tokens of an observation.
        max_steps: length of an episode.
        flags: number of flags.
        walls: number of walls besides the border.
    """
    from mettagrid.config.game_value import InventoryValue
    from mettagrid.config.reward_config import reward

    objects = {"flag": _object("flag", [], {"heart": 1})}
    rewards = {"heart": reward(InventoryValue(item="heart"), weight=1.0)}
    counts = {"wall": walls, "flag": flags}
    return _game("navigation", agents, size, window, tokens, max_steps, objects, counts, rewards, {"heart": 255})


TASKS: dict[str, Callable[..., Any]] = {
    "forage": forage, "forage-easy": forage_easy, "forage-sparse": forage_sparse, "navigation": navigation,
}  # fmt: skip


def load_task(task: str, options: Mapping[str, Any]) -> Any:
    """The MettaGridConfig of a built-in task, a YAML or JSON file, or module:function; raises `ConfigError`."""
    try:
        from mettagrid.config.mettagrid_config import MettaGridConfig
    except ImportError:
        raise ConfigError(MISSING) from None
    try:
        if task in TASKS:
            config = TASKS[task](**options)
        elif Path(task).is_file():
            if options:
                raise ConfigError(f"env_options are given with {task}; change the file, or name a task or a function")
            config = MettaGridConfig.model_validate(yaml.safe_load(Path(task).read_text()))
        elif ":" in task:
            module, _, function = task.partition(":")
            config = getattr(importlib.import_module(module), function)(**options)
        else:
            raise ConfigError(
                f"task is {task!r}; it must be one of {', '.join(TASKS)}, a YAML or JSON file, or module:function"
            )
    except (ImportError, AttributeError, TypeError, ValueError, OSError, yaml.YAMLError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"task {task!r} cannot be made: {' '.join(str(error).split())}") from None
    if not isinstance(config, MettaGridConfig):
        raise ConfigError(f"task {task!r} is not a MettaGridConfig but {type(config).__name__}")
    check_rewarding(config, task)
    return config


def check_rewarding(config: Any, task: str) -> None:
    """Raises `ConfigError` for a configuration in which no reward can ever occur."""
    game = config.game
    if not game.agent.rewards and not any(agent.rewards for agent in game.agents):
        raise ConfigError(f"task {task!r} rewards nothing; give its agents rewards")
    changes = [getattr(game, name, None) for name in ("events", "on_tick")]
    changes += [getattr(thing, name, None) for thing in game.objects.values() for name in _CHANGES]
    changes += [getattr(agent, name, None) for agent in (game.agent, *game.agents) for name in _CHANGES]
    per_tick = any(reward.per_tick for reward in game.agent.rewards.values())
    if not any(changes) and not per_tick:
        raise ConfigError(
            f"task {task!r} has no source of reward: no object does anything when it is used (the package's own "
            "make_arena and make_navigation are like that); give objects handlers, or take one of "
            f"{', '.join(TASKS)}"
        )


_CHANGES = ("on_use_handler", "on_use_handlers", "aoes", "on_tick", "on_tag_add", "on_tag_remove", "territory_controls")


def _object(name: str, needs: list[Any], deltas: dict[str, int]) -> Any:
    from mettagrid.config.handler_config import Handler, updateActor
    from mettagrid.config.mettagrid_config import GridObjectConfig

    handler = Handler(name="use", filters=needs, mutations=[updateActor(deltas)])
    return GridObjectConfig(name=name, on_use_handler=handler)


def _game(
    label: str,
    agents: int,
    size: int,
    window: int,
    tokens: int,
    max_steps: int,
    objects: dict[str, Any],
    counts: dict[str, int],
    rewards: dict[str, Any],
    limits: dict[str, int],
) -> Any:
    from mettagrid.config import mettagrid_config
    from mettagrid.map_builder.random_map import RandomMapBuilder

    m: Any = mettagrid_config
    held = {name: m.ResourceLimitsConfig(base=most, resources=[name]) for name, most in limits.items()}
    return m.MettaGridConfig(
        label=label,
        game=m.GameConfig(
            num_agents=agents,
            max_steps=max_steps,
            episode_truncates=True,
            resource_names=list(RESOURCES),
            obs=m.ObsConfig(width=window, height=window, num_tokens=tokens),
            actions=m.ActionsConfig(
                noop=m.NoopActionConfig(),
                move=m.MoveActionConfig(),
                change_vibe=m.ChangeVibeActionConfig(enabled=False),
            ),
            objects={"wall": m.WallConfig(), **objects},
            agent=m.AgentConfig(rewards=rewards, inventory=m.InventoryConfig(default_limit=50, limits=held)),
            map_builder=RandomMapBuilder.Config(width=size, height=size, agents=agents, border_width=1, objects=counts),
        ),
    )
