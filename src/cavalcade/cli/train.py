"""`cavalcade train`: trains policies in a resumable run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cavalcade.api import default_path, run_training
from cavalcade.cli.orders import select_reward
from cavalcade.cli.parse import import_from_here, option
from cavalcade.cli.targets import parse_resumed, parse_target
from cavalcade.config.base import RunConfig
from cavalcade.ppo.distributed import Ranks, ranks_from
from cavalcade.runs.advice import resume_command
from cavalcade.runs.directory import RunDirectory
from cavalcade.runs.distributed import begun_everywhere, run_everywhere
from cavalcade.runs.heldout import heldout_of, score_heldout
from cavalcade.runs.history import budget_of
from cavalcade.runs.policies import load_policy
from cavalcade.runs.waiting import waiting
from cavalcade.watch.serve import beside


@dataclass(frozen=True)
class Options:
    """Trains policies with PPO in a run that can be killed at any moment and resumed."""

    recipe: str | None = None
    """Settings to start from: name of a shipped recipe, or a YAML file."""
    hardware: str | None = None
    """Hardware preset, applied on top of the recipe. tuned: as saved by `cavalcade tune` for this target.
    With mettagrid also laptop, workstation, ultra_fast or original."""
    run: Path | None = None
    """Run directory; by default runs/TARGET-TIME."""
    init: Path | None = None
    """Run, checkpoint, policy file or model:NAME whose policies are the initial weights; optimiser, counters and games
    are fresh. One policy for each, or the best in validation for all."""
    threads: int = 0
    """CPU threads, per rank with torchrun; 0 measures which number is fastest."""
    writers: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """Also log metrics to TensorBoard or Weights & Biases."""
    watch: bool = False
    """Show the run live in the browser: prints the address of a page, as `cavalcade watch` does."""
    quiet: bool = False
    """Print errors only."""


@dataclass(frozen=True)
class ResumeOptions:
    """Resumes a run from its newest checkpoint, exactly as if it had never stopped.

    Settings given as options change from then on: `--episodes 200000` extends a run, finished or not. Those that the
    saved state depends on cannot change; `--init` starts a new run instead. The state of hosted environments cannot be
    saved: they begin new episodes.
    """

    resume: Path
    """Run directory."""
    threads: int = 0
    """CPU threads, per rank with torchrun; 0 for as many as before."""
    writers: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """Also log metrics to TensorBoard or Weights & Biases."""
    watch: bool = False
    """Show the run live in the browser: prints the address of a page, as `cavalcade watch` does."""
    quiet: bool = False
    """Print errors only."""


def run(args: list[str]) -> int:
    import_from_here()
    ranks = ranks_from()
    if option(args, "resume") is not None:
        directory, config = run_everywhere(Path(option(args, "resume") or ""), ranks)
        resumed = parse_resumed(ResumeOptions, directory.path, config, args, "train")
        given = {"writers": resumed.writers, "threads": resumed.threads, "resume": True}
        return _train(directory, resumed.config, ranks, watch=resumed.watch, quiet=resumed.quiet, **given)
    args, notes = select_reward(args)
    _, options = parse_target(Options, args, "train")
    config = options.config
    directory = RunDirectory(options.run or default_path(config), type(config))
    directory, config = begun_everywhere(directory, config, ranks)
    if ranks.first and not options.quiet:
        print("\n".join(notes), end="\n" * len(notes))
    given = {"writers": options.writers, "threads": options.threads, "init": options.init}
    return _train(directory, config, ranks, watch=options.watch, quiet=options.quiet, **given)


def _train(
    directory: RunDirectory[Any], config: RunConfig, ranks: Ranks, *, watch: bool, quiet: bool, **options: Any
) -> int:
    with beside(directory.path, watch and ranks.first):
        return _trained(directory, config, ranks, quiet=quiet or not ranks.first, **options)


def _trained(directory: RunDirectory[Any], config: RunConfig, ranks: Ranks, *, quiet: bool, **options: Any) -> int:
    outcome = run_training(directory, config, quiet=quiet, ranks=ranks, **options)
    ranks.close()
    if not ranks.first:
        return 0
    if not outcome.finished:
        if not quiet:
            print(f"stopped at update {outcome.updates}; resume with: {resume_command('train', directory.path)}")
        return 128 + outcome.signal
    if not quiet and not outcome.steps:
        _say_finished(directory.path, config, outcome.updates)
    elif not quiet:
        rate = outcome.steps / max(outcome.seconds, 1e-9)
        print(f"{outcome.steps:,} steps in {outcome.seconds:.1f} s: {rate:,.0f} steps/s", flush=True)
        with waiting("evaluating on held-out games"):
            scores, kept = score_heldout(directory.path, load_policy(directory.path))
        print(scores)
        if kept.member:
            print(f"evaluate, export and play use {kept.member}; --member selects another")
    return 0


def _say_finished(run: Path, config: RunConfig, updates: int) -> None:
    """Says how to extend a run that had nothing left to train, and its scores."""
    name, budget = budget_of(config)
    print(f"finished at update {updates}; extend it with: {resume_command('train', run)} --{name} {2 * budget}")
    with waiting("evaluating on held-out games"):
        kept = heldout_of(run, lambda: load_policy(run))
    for score in kept.scores if kept else ():
        print(f"held-out {score.name}: {score.mean:.5g} ± {score.interval:.2g}, {score.episodes:,} episodes")
