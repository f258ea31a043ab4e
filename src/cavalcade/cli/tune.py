"""`cavalcade tune`: measures which settings are best on this machine, and keeps them for the next run."""

import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import yaml
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cavalcade.cli.parse import check_folder, check_seconds, import_from_here
from cavalcade.cli.targets import parse_target
from cavalcade.config.presets import tuned_file
from cavalcade.core.device import Device, device_named
from cavalcade.core.errors import ConfigError, at_least
from cavalcade.runs.directory import write_whole
from cavalcade.targets import target_named
from cavalcade.tuning import machine
from cavalcade.tuning.by_reward import Budget, most_trials, preset_by_reward, tune_by_reward
from cavalcade.tuning.trials import Trial
from cavalcade.tuning.tune import count, preset, tune


@dataclass(frozen=True)
class Options:
    """Measures trainings with other sizes, and keeps those that suit this machine.

    By speed: backends, workers, environments and batches, by steps per second. By reward: sizes double until memory
    ends, then short trainings of equal time show which of them learn fastest.
    """

    by: Literal["auto", "speed", "reward"] = "auto"
    """What is best: steps per second, or the reward after --train-seconds; auto: reward for mettagrid and on a GPU."""
    seconds: float = 4.0
    """Time of each trial for speed."""
    train_seconds: float = 60.0
    """By reward: time of each training."""
    largest_batch: int = 2**24
    """By reward: samples between updates up to which batches are doubled."""
    recipe: str | None = None
    """Settings to start from: the name of a shipped recipe, or a YAML file."""
    hardware: str | None = None
    """Sizes to start from: a hardware preset, where the target has some."""


class Tuning(NamedTuple):
    """How a target is tuned."""

    trials: Iterator[Trial]
    most: int  # trials
    preset: Callable[[Any], dict[str, Any]]
    head: str


def run(args: list[str]) -> int:
    """Tries settings one after the other, and writes the best to a file."""
    import_from_here()
    target, options = parse_target(Options, args, "tune")
    tuning = _tuning(target, options)
    path = tuned_file(target)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{path.parent} cannot be created: {error.strerror}; set XDG_CONFIG_HOME") from None
    check_folder("the file for tuned settings", path)
    console = Console(file=sys.stderr)
    print(f"{machine.line()}\n{target}: {tuning.head}", flush=True)
    columns: Any = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        bar = progress.add_task("trials (the first may compile)", total=tuning.most)
        best: Trial | None = None
        for trial in tuning.trials:
            progress.advance(bar)
            _show(trial)
            best = trial if trial.best else best
    assert best is not None
    found = f"{best.words}, {_figures(best)}"
    head = f"# found by: cavalcade tune {shlex.join(args)}\n# {found}; {machine.line()}\n"
    write_whole(path, head + yaml.safe_dump(tuning.preset(best.config), sort_keys=False))
    print(f"best: {found}\nwritten to {path}")
    print(f"use it with: cavalcade train {target} --hardware tuned")
    return 0


def _tuning(target: str, options: Any) -> Tuning:
    """By speed or by reward; raises `ConfigError` for what cannot be."""
    config, by_speed = options.config, target_named(target).tuned_by_speed
    check_seconds(options.seconds)
    check_seconds(options.train_seconds, "train_seconds")
    at_least("largest_batch", options.largest_batch, 1)
    named: Device = config.machine.device if hasattr(config, "machine") else getattr(config, "device", "cpu")
    device = device_named(named).type
    by = options.by if options.by != "auto" else "speed" if by_speed and device == "cpu" else "reward"
    if by == "reward":
        budget = Budget(options.seconds, options.train_seconds, options.largest_batch)
        head = f"speed in {budget.seconds:g} s, then the reward of trainings of {budget.train_seconds:g} s, {device}"
        most = most_trials(config, budget.largest_batch)
        return Tuning(tune_by_reward(config, budget), most, preset_by_reward, head)
    if not by_speed or named == "cuda":
        raise ConfigError(
            f"by is speed, but {f'{target} is' if not by_speed else 'trainings on a GPU are'} tuned by reward: larger "
            "batches are always faster there, and learn less per step; leave out --by"
        )
    return Tuning(tune(config, options.seconds), count(config), preset, f"steps/s, {options.seconds:g} s each")


def _show(trial: Trial) -> None:
    if trial.trouble:
        print(f"  {trial.words:<54} {trial.trouble}", flush=True)
        return
    shares = f"{trial.collecting:.0%} collecting, {1 - trial.collecting:.0%} learning"
    print(f"  {trial.words:<54}{_figures(trial)}   {shares}{'   best so far' * trial.best}", flush=True)


def _figures(trial: Trial) -> str:
    reward = "" if trial.reward is None else f", reward {trial.reward:.5g}"
    return f"{trial.rate:,.0f} steps/s{reward}"
