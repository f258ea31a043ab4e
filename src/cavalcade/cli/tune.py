"""`cavalcade tune`: measures what suits this machine, and keeps it for the next run."""

import sys
from dataclasses import dataclass
from typing import Any

import yaml
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cavalcade.bench import machine
from cavalcade.bench.tune import Trial, count, preset, tune
from cavalcade.cli.parse import check_seconds, import_from_here
from cavalcade.cli.targets import parse_target
from cavalcade.presets import tuned_file
from cavalcade.runs.directory import write_whole


@dataclass(frozen=True)
class Options:
    """Measures trainings with other backends, workers, environments and batches, and keeps the fastest settings."""

    seconds: float = 4.0
    """Time for each trial."""
    recipe: str | None = None
    """Settings to start from: the name of a shipped recipe, or a YAML file."""


@dataclass
class Best:
    """The best trial so far."""

    trial: Trial | None = None

    def see(self, trial: Trial) -> bool:
        """Whether a trial is the best."""
        better = not trial.trouble and (self.trial is None or trial.rate > self.trial.rate)
        if better:
            self.trial = trial
        return better


def run(args: list[str]) -> int:
    """Tries settings one after the other, and writes the best down."""
    import_from_here()
    target, options = parse_target(Options, args, "tune")
    check_seconds(options.seconds)
    console = Console(file=sys.stderr)
    best = Best()
    print(f"{machine.line()}\n{target}: training steps/s, {options.seconds:g} s each", flush=True)
    columns: Any = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        bar = progress.add_task("trials (the first may compile)", total=count(options.config))
        for trial in tune(options.config, options.seconds):
            progress.advance(bar)
            _show(trial, best.see(trial))
    assert best.trial is not None
    path = tuned_file(target)
    path.parent.mkdir(parents=True, exist_ok=True)
    head = f"# found by: cavalcade tune {target}\n# {best.trial.rate:,.0f} steps/s on {machine.line()}\n"
    write_whole(path, head + yaml.safe_dump(preset(best.trial.config), sort_keys=False))
    print(f"best: {best.trial.words}, {best.trial.rate:,.0f} steps/s\nwritten to {path}")
    print(f"use it with: cavalcade train {target} --hardware tuned")
    return 0


def _show(trial: Trial, better: bool) -> None:
    if trial.trouble:
        print(f"  {trial.words:<40} {trial.trouble}", flush=True)
        return
    shares = f"{trial.collecting:.0%} collecting, {1 - trial.collecting:.0%} learning"
    print(f"  {trial.words:<40}{trial.rate:>12,.0f}   {shares}{'   best so far' * better}", flush=True)
