"""MettaGrid tasks: built-in ones, or the user's own MettaGridConfig from a file or a function."""

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from cavalcade.core.errors import ConfigError
from cavalcade.envs.mettagrid.game import Game
from cavalcade.envs.mettagrid.games import GAMES
from cavalcade.envs.mettagrid.package import config_of
from cavalcade.envs.mettagrid.supported import check_supported, game_from

MISSING = "MettaGrid needs a package: pip install 'cavalcade[mettagrid]'"


def _config(task: str, **options: Any) -> Any:
    """The MettaGridConfig of a built-in task."""
    return config_of(GAMES[task](**options), label=task)


TASKS: dict[str, Callable[..., Any]] = {task: partial(_config, task) for task in GAMES}
forage, navigation = TASKS["forage"], TASKS["navigation"]


def load_game(task: str, options: Mapping[str, Any]) -> Game:
    """The game of a task for the compiled simulator; raises `UnsupportedError`. Built-in tasks need no package."""
    if task in GAMES:
        try:
            return check_supported(GAMES[task](**options))
        except TypeError as error:
            raise ConfigError(f"task {task!r} cannot be made: {error}") from None
    return game_from(load_task(task, options))


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
    check_window(config, task)
    check_rewarding(config, task)
    return config


def check_window(config: Any, task: str) -> None:
    """Raises `ConfigError` for a window of even size: the package's engine writes beyond its memory there."""
    for name in ("height", "width"):
        size = getattr(config.game.obs, name)
        if size % 2 == 0:
            raise ConfigError(f"obs.{name} of task {task!r} is {size}; it must be odd")


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
