"""`cavalcade train`: policies that learn, in a run that cannot be lost."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

from cavalcade.cli.parse import parse
from cavalcade.cli.waiting import COMPILING, waiting
from cavalcade.config import TrainConfig, from_dict
from cavalcade.errors import at_least
from cavalcade.presets import recipe
from cavalcade.runs.directory import RunDirectory, open_run
from cavalcade.runs.policy import load_policy
from cavalcade.runs.scoring import score
from cavalcade.runs.training import Training
from cavalcade.statistics import half_interval

TARGETS = ("cage2",)
_HELDOUT = 1000  # episodes


@dataclass(frozen=True)
class Options:
    """Trains policies with PPO. Settings come from a recipe, if one is named, and from the options given."""

    target: tyro.conf.Positional[Literal["cage2"]]
    """What to train on."""
    config: TrainConfig = field(default_factory=TrainConfig)
    recipe: str | None = None
    """Settings to start from: the name of a shipped recipe, or a YAML file."""
    run: Path | None = None
    """Folder of the run; runs/TARGET-RED-TIME if not given."""
    threads: int = 0
    """CPU threads; 0 measures how many are worth using."""
    writers: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """Where else metrics go."""
    quiet: bool = False
    """Show nothing but errors."""


@dataclass(frozen=True)
class ResumeOptions:
    """Goes on with a run from its newest checkpoint, exactly as if it had never stopped."""

    resume: Path
    """Folder of the run."""
    writers: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """Where else metrics go."""
    quiet: bool = False
    """Show nothing but errors."""


def run(args: list[str]) -> int:
    """Begins a run or goes on with one."""
    if any(arg.split("=")[0] == "--resume" for arg in args):
        resumed = parse(ResumeOptions, args, "train")
        directory = open_run(resumed.resume)
        return _train(directory, directory.config(), quiet=resumed.quiet, writers=resumed.writers, resume=True)
    options = parse(Options, args, "train", _defaults(args))
    at_least("threads", options.threads, 0)
    name = f"{options.target}-{options.config.task.red}-{time.strftime('%Y%m%d-%H%M%S')}"
    directory = RunDirectory(options.run or Path("runs", name))
    config, writers = options.config, options.writers
    return _train(directory, config, quiet=options.quiet, writers=writers, threads=options.threads)


def _defaults(args: list[str]) -> Options | None:
    """What the options start from: a recipe, if one is named."""
    names = [args[i + 1] for i, arg in enumerate(args[:-1]) if arg == "--recipe"]
    names += [arg.partition("=")[2] for arg in args if arg.startswith("--recipe=")]
    target = args[0] if args and args[0] in TARGETS else TARGETS[0]
    if not names:
        return None
    return Options(target, from_dict(TrainConfig, recipe(names[-1])), recipe=names[-1])  # pyright: ignore[reportArgumentType]


def _train(directory: RunDirectory, config: TrainConfig, *, quiet: bool, **options: Any) -> int:
    with directory.locked():
        with waiting(COMPILING):
            training = Training(directory, config, quiet=quiet, **options)
        if not quiet:
            print(f"run {directory}", *training.notes, sep="\n", flush=True)
        outcome = training.train()
    if not outcome.finished:
        updates = training.learner.state.updates
        print(f"stopped at update {updates}; go on with: cavalcade train --resume {directory}")
        return 128 + outcome.signal
    if not quiet:
        rate = outcome.steps / max(outcome.seconds, 1e-9)
        print(f"{outcome.steps:,} steps in {outcome.seconds:.1f} s: {rate:,.0f} steps/s")
        _print_heldout(directory, config)
    return 0


def _print_heldout(directory: RunDirectory, config: TrainConfig) -> None:
    """What the trained policies are worth on games they have not seen."""
    policy, task = load_policy(directory.path), config.task
    reds = [task.red] if task.red != "mixed" else ["bline", "meander", "sleep"]
    print(f"held-out games, greedy, {_HELDOUT:,} episodes of {task.horizon} steps, revision {task.revision}:")
    for red in reds:
        means = []
        for p in range(policy.policies):
            (cell,) = score(policy.player(p), task, [red], [task.horizon], _HELDOUT, seed=config.seed)
            means.append(cell.mean)
            print(f"  {red:<8} seed {config.seed + p:<4} {cell.mean:8.2f} ± {cell.interval:.2f}")
        if len(means) > 1:
            print(f"  {red:<8} mean of {len(means)} {np.mean(means):8.2f} ± {half_interval(means):.2f}")
