"""Arenas of a training, who plays them, and a check that they fit this machine."""

from functools import cache
from typing import Any, NamedTuple

from cavalcade.config.hosting import HostConfig
from cavalcade.core.contract import Environment
from cavalcade.core.device import device_named
from cavalcade.core.errors import ConfigError
from cavalcade.core.threads import cores
from cavalcade.envs.mettagrid.arenas import Arenas
from cavalcade.envs.mettagrid.game import Game
from cavalcade.envs.mettagrid.games import GAMES
from cavalcade.envs.mettagrid.package import installed_version
from cavalcade.envs.mettagrid.source import mettagrid_source
from cavalcade.envs.mettagrid.statistics import uncounted
from cavalcade.envs.mettagrid.supported import VERSION, UnsupportedError
from cavalcade.envs.mettagrid.task import MettagridTask
from cavalcade.envs.mettagrid.tasks import load_game, load_task
from cavalcade.policy.tokens import TokenLayout
from cavalcade.targets.mettagrid.config import MettagridConfig
from cavalcade.targets.mettagrid.layout import token_layout
from cavalcade.targets.mettagrid.memory import Needs, Sizes, check_memory, needs
from cavalcade.vector.hosted import Hosted


class Facts(NamedTuple):
    """Sizes of a task."""

    agents: int
    actions: int
    max_steps: int
    tokens: int
    layout: TokenLayout


class Chosen(NamedTuple):
    """Who plays a task: the compiled simulator if there is a game, else the package."""

    game: Game | None
    note: str = ""  # why not the compiled one


@cache
def game_of(task: MettagridTask) -> Any:
    """MettaGridConfig of a task."""
    return load_task(task.task, task.options)


@cache
def chosen(task: MettagridTask) -> Chosen:
    """Who plays a task; raises `ConfigError` if the compiled simulator is requested and cannot."""
    if task.simulator == "package":
        return Chosen(None)
    reason = _other_version() if task.simulator == "auto" or task.task not in GAMES else ""
    game = None
    if not reason:
        try:
            game = load_game(task.task, task.options)
            missing = uncounted(game.resources, task.stats)
            reason = f"statistic {missing!r} is not counted" if missing else ""
        except UnsupportedError as error:
            reason = str(error)
    if not reason:
        return Chosen(game)
    if task.simulator == "compiled":
        raise ConfigError(f"simulator is compiled, which does not support this: {reason}; take --simulator package")
    return Chosen(None, f"played by the mettagrid package: {reason}")


@cache
def facts(task: MettagridTask) -> Facts:
    """Sizes of a task."""
    game = chosen(task).game
    if game is not None:
        names, scales = zip(*game.features, strict=True)
        kept = min(task.max_tokens, game.tokens)
        layout = TokenLayout(*game.window, names, scales, len(game.tags), kept)
        return Facts(game.agents, game.actions, game.max_steps, game.tokens, layout)
    config = game_of(task)
    g = config.game
    layout = token_layout(config, task.max_tokens)
    return Facts(g.num_agents, len(g.actions.actions()), g.max_steps, g.obs.num_tokens, layout)


def layout_of(task: MettagridTask) -> TokenLayout:
    """Token layout of a task."""
    return facts(task).layout


def who_plays(config: MettagridConfig) -> Chosen:
    """Who plays the arenas of a training; options of workers choose the package."""
    if config.host == HostConfig():
        return chosen(config.arena)
    if config.arena.simulator == "compiled":
        raise ConfigError("simulator is compiled, which has no workers; leave out the options about them")
    found = chosen(config.arena)
    return Chosen(None, found.note or "played by the mettagrid package, since options of its workers are given")


def arenas(config: MettagridConfig, first_index: int = 0, threads: int = 0) -> Environment:
    """The arenas of a training; first_index: index of this rank's first arena."""
    game, known = who_plays(config).game, facts(config.arena)
    agents = config.ppo.num_envs * known.agents
    config.ppo.steps(agents)
    check_fits(config, hosted=game is None)
    first = first_index * known.agents
    if game is not None:
        stats = config.arena.stats
        return Arenas(game, agents, seed=config.seed, stats=stats, first_index=first, threads=threads)
    source = mettagrid_source(config.arena.task, config.arena.options, stats=config.arena.stats)
    return Hosted(source, agents, config.host, seed=config.seed, first_index=first)


def check_fits(config: MettagridConfig, *, hosted: bool) -> None:
    """Raises `ConfigError` if this machine has too few cores or too little memory, and suggests settings."""
    c, here = config.ppo, cores()
    if hosted and config.host.workers > here and config.host.backend != "serial":
        fewer = max(1, here)
        size = f"--workers {fewer} --num-envs {max(1, c.num_envs * fewer // config.host.workers)}"
        raise ConfigError(
            f"{config.host.workers} workers on {here} cores: each step would wait for the slowest; use {size} with a "
            "--batch-size and --minibatch-size to match, or --hardware laptop"
        )
    on_gpu = device_named(config.machine.device).type == "cuda"
    check_memory(needs_of(config, hosted=hosted), on_gpu=on_gpu, offload=config.machine.offload)


def needs_of(config: MettagridConfig, *, hosted: bool) -> Needs:
    """Memory that a training needs."""
    known = facts(config.arena)
    sizes = Sizes(known.agents, known.actions, known.tokens, known.layout.tokens)
    return needs(config.ppo, config.policy, sizes, hosted=hosted, fragments=config.host.lag if hosted else 0)


def _other_version() -> str:
    """Says that the package is installed in another version than the one whose rules are compiled."""
    found = installed_version()
    return "" if found in ("", VERSION) else f"its version is {found}; the compiled simulator equals {VERSION}"
