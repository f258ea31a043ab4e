"""`cavalcade train`: policies that learn, in a run that cannot be lost."""

import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cavalcade.cli import evaluate_hosted, evaluate_mettagrid
from cavalcade.cli.orders import select_reward
from cavalcade.cli.parse import import_from_here, option, parse
from cavalcade.cli.targets import parse_target
from cavalcade.cli.waiting import COMPILING, waiting
from cavalcade.config import AnyTrainConfig, GymTrainConfig, TrainConfig
from cavalcade.config_mettagrid import MettagridTrainConfig
from cavalcade.errors import at_least
from cavalcade.ppo.ranks import Ranks, ranks_from
from cavalcade.presets import file_name
from cavalcade.runs.directory import RunDirectory
from cavalcade.runs.policy import load_policy
from cavalcade.runs.ranks import begun_everywhere, run_everywhere
from cavalcade.runs.scoring import score
from cavalcade.runs.training import Training
from cavalcade.statistics import half_interval

_HELDOUT = 1000  # episodes


@dataclass(frozen=True)
class Options:
    """Trains policies with PPO on cage2, mettagrid, gym:NAME or cyborg.

    `cavalcade train TARGET --help` has its settings.
    """

    recipe: str | None = None
    """Settings to start from: the name of a shipped recipe, or a YAML file."""
    hardware: str | None = None
    """Sizes that suit a machine, on top of the recipe: tuned, as `cavalcade tune` found them for this target, or with
    mettagrid laptop, workstation, ultra_fast or original."""
    run: Path | None = None
    """Folder of the run; runs/TARGET-TIME if not given."""
    threads: int = 0
    """CPU threads, of each rank with torchrun; 0 measures how many are worth using."""
    writers: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """Where else metrics go."""
    quiet: bool = False
    """Show nothing but errors."""


@dataclass(frozen=True)
class ResumeOptions:
    """Goes on with a run from its newest checkpoint, exactly as if it had never stopped.

    Environments that are hosted cannot be saved: they begin new episodes.
    """

    resume: Path
    """Folder of the run."""
    writers: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """Where else metrics go."""
    quiet: bool = False
    """Show nothing but errors."""


def run(args: list[str]) -> int:
    """Begins a run or goes on with one."""
    import_from_here()
    ranks = ranks_from()
    if option(args, "resume") is not None:
        resumed = parse(ResumeOptions, args, "train")
        directory, config = run_everywhere(resumed.resume, ranks)
        return _train(directory, config, ranks, quiet=resumed.quiet, writers=resumed.writers, resume=True)
    args, notes = select_reward(args)
    target, options = parse_target(Options, args, "train")
    at_least("threads", options.threads, 0)
    config = options.config
    name = f"{target}-{config.task.red}" if isinstance(config, TrainConfig) else config.name
    folder = f"{file_name(name)}-{time.strftime('%Y%m%d-%H%M%S')}"
    directory = RunDirectory(options.run or Path("runs", folder), type(config))
    directory, config = begun_everywhere(directory, config, ranks)
    if ranks.first and not options.quiet:
        print("\n".join(notes), end="\n" * len(notes))
    return _train(directory, config, ranks, quiet=options.quiet, writers=options.writers, threads=options.threads)


def _train(directory: RunDirectory, config: AnyTrainConfig, ranks: Ranks, *, quiet: bool, **options: Any) -> int:
    quiet = quiet or not ranks.first
    with directory.locked() if ranks.first else nullcontext():
        with waiting(COMPILING) if ranks.first else nullcontext():
            training = Training(directory, config, quiet=quiet, ranks=ranks, **options)
        if not quiet:
            print(f"run {directory}", *training.notes, sep="\n", flush=True)
        outcome = training.train()
    ranks.close()
    if not ranks.first:
        return 0
    if not outcome.finished:
        updates = training.learner.state.updates
        print(f"stopped at update {updates}; go on with: cavalcade train --resume {directory}")
        return 128 + outcome.signal
    if not quiet:
        rate = outcome.steps / max(outcome.seconds, 1e-9)
        print(f"{outcome.steps:,} steps in {outcome.seconds:.1f} s: {rate:,.0f} steps/s")
        if isinstance(config, MettagridTrainConfig):
            evaluate_mettagrid.print_score(evaluate_mettagrid.Options(directory.path))
        elif isinstance(config, GymTrainConfig):
            evaluate_hosted.print_score(config, evaluate_hosted.Options(directory.path))
        else:
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
