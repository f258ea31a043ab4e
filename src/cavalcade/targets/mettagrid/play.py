"""An episode of MettaGrid as text in the terminal."""

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from cavalcade.config.base import Settings, whole
from cavalcade.core.errors import ConfigError
from cavalcade.envs.mettagrid.episode import Episode
from cavalcade.envs.mettagrid.shown import ShownArena
from cavalcade.envs.mettagrid.task import MettagridTask
from cavalcade.targets.base import LoadPolicy
from cavalcade.targets.mettagrid.arenas import chosen, game_of
from cavalcade.targets.mettagrid.policy import RecurrentPolicy
from cavalcade.targets.mettagrid.scoring import random_actor
from cavalcade.vector.hosted import HELDOUT_SEEDS

HOW_TO_OPEN = "drop the .json.z file on https://metta-ai.github.io/metta/mettascope/mettascope.html"


@dataclass(frozen=True)
class Options(Settings):
    """Shows an episode on a held-out map: # walls, @ agents, other objects by their first letter."""

    run: Path | None = None
    """Run or checkpoint whose policy plays, the same as `cavalcade play RUN`; by default agents act at random."""
    task: str = "forage"
    """Without --run: name of the task."""
    steps: int = whole(200, 1)
    """Steps to show."""
    every: int = whole(20, 1)
    """If output is not a terminal: steps between printed maps."""
    seed: int = whole(1, 0)
    """Seed of the map."""
    delay: float = 0.05
    """On a terminal: seconds between steps."""
    html: Path | None = None
    """Write the episode to this file, a page that shows it step by step in a browser, instead of the terminal."""


def play(options: Options, load: LoadPolicy) -> None:
    if options.delay < 0:
        raise ConfigError(f"delay is {options.delay}; it must be at least 0 seconds")
    policy = load(str(options.run)) if options.run else None
    if policy and not isinstance(policy, RecurrentPolicy):
        raise ConfigError(
            f"{options.run} was trained on {policy.config.target}; watch it with: cavalcade play "
            f"{quote(str(options.run))}"
        )
    task = policy.config.arena if policy else MettagridTask(options.task)
    actor: Any = policy.runner(seed=options.seed) if policy else random_actor(options.seed)
    game, seed = chosen(task).game, HELDOUT_SEEDS + options.seed
    episode = Episode(game_of(task), seed) if game is None else ShownArena(game, seed)
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
            if episode.current_step % options.every == 0:
                print(f"\n{_picture(episode)}")
    print(f"{episode.current_step} steps, {episode.total.mean() / episode.current_step:.5f} reward per agent-step")
    if options.run:
        print(f"with pictures: cavalcade record {options.run} --out FOLDER, then {HOW_TO_OPEN}")


def _done(episode: Episode | ShownArena, steps: int) -> bool:
    return episode.over or episode.current_step >= steps


def _picture(episode: Episode | ShownArena) -> str:
    held = "  ".join(f"{name} {count}" for name, count in episode.held().items())
    step = episode.current_step
    return f"{episode.picture()}\nstep {step}   reward so far {episode.total.sum():.1f}   agents hold  {held}"
