"""`cavalcade play mettagrid`: an episode of MettaGrid as text."""

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from cavalcade.cli.parse import import_from_here, parse
from cavalcade.config_mettagrid import MettagridTask
from cavalcade.envs.mettagrid.episode import Episode
from cavalcade.errors import ConfigError, at_least
from cavalcade.runs.mettagrid import game_of, load_token_policy, random_actor
from cavalcade.vector.hosted import HELDOUT_SEEDS


@dataclass(frozen=True)
class Options:
    """Shows an episode on a map that no training has seen: # walls, @ agents, other objects by their first letter."""

    run: Path | None = None
    """A run or a checkpoint whose policy plays; agents act at random if not given."""
    task: str = "forage"
    """Without a run: the task."""
    steps: int = 200
    """Steps to show."""
    every: int = 20
    """Steps between pictures where output is no terminal."""
    seed: int = 1
    """Seed of the map."""
    delay: float = 0.05
    """Seconds between steps on a terminal."""


def run(args: list[str]) -> int:
    """Plays one episode."""
    import_from_here()
    options = parse(Options, args, "play mettagrid")
    for name, least in (("steps", 1), ("every", 1), ("seed", 0)):
        at_least(name, getattr(options, name), least)
    if options.delay < 0:
        raise ConfigError(f"delay is {options.delay}; it must be at least 0 seconds")
    saved = load_token_policy(options.run) if options.run else None
    game = game_of(saved.config.arena if saved else MettagridTask(options.task))
    actor: Any = saved.player(seed=options.seed) if saved else random_actor(options.seed)
    episode = Episode(game, HELDOUT_SEEDS + options.seed)
    if sys.stdout.isatty():
        with Live(Text(_picture(episode)), console=Console(), auto_refresh=False) as live:
            while not _done(episode, options.steps):
                episode.step(actor(episode))
                live.update(Text(_picture(episode)), refresh=True)
                time.sleep(options.delay)
    else:
        print(_picture(episode))
        while not _done(episode, options.steps):
            episode.step(actor(episode))
            if episode.simulation.current_step % options.every == 0:
                print(f"\n{_picture(episode)}")
    print(
        f"{episode.simulation.current_step} steps, {episode.total.mean() / episode.simulation.current_step:.5f} "
        "reward per agent-step"
    )
    return 0


def _done(episode: Episode, steps: int) -> bool:
    return episode.over or episode.simulation.current_step >= steps


def _picture(episode: Episode) -> str:
    held = "  ".join(f"{name} {count}" for name, count in episode.held().items())
    step = episode.simulation.current_step
    return f"{episode.picture()}\nstep {step}   reward so far {episode.total.sum():.1f}   agents hold  {held}"
