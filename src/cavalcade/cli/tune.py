"""`cavalcade tune`: measures what suits this machine, and keeps it for the next run."""

import sys
from dataclasses import dataclass
from typing import Any

import yaml
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cavalcade.bench import machine
from cavalcade.bench.tune import Trial, count, preset, tune
from cavalcade.cli.parse import import_from_here, option
from cavalcade.cli.train import parse_training
from cavalcade.errors import ConfigError
from cavalcade.presets import tuned_file
from cavalcade.runs.directory import write_whole


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
    seconds, rest = _seconds(args)
    target, options = parse_training(rest, "tune")
    if not target:
        return 0
    console = Console(file=sys.stderr)
    best = Best()
    print(f"{machine.line()}\n{target}: training steps/s, {seconds:g} s each", flush=True)
    columns: Any = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        bar = progress.add_task("trials (the first may compile)", total=count(options.config))
        for trial in tune(options.config, seconds):
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


def _seconds(args: list[str]) -> tuple[float, list[str]]:
    """The option of this verb that a training does not have, and the rest."""
    text = option(args, "seconds")
    if text is None:
        return 4.0, args
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 600:
        raise ConfigError(f"seconds is {text}; it must be above 0 and at most 600")
    rest = []
    for i, arg in enumerate(args):
        if arg == "--seconds" or (i and args[i - 1] == "--seconds") or arg.startswith("--seconds="):
            continue
        rest.append(arg)
    return seconds, rest


def _show(trial: Trial, better: bool) -> None:
    if trial.trouble:
        print(f"  {trial.words:<40} {trial.trouble}", flush=True)
        return
    shares = f"{trial.collecting:.0%} collecting, {1 - trial.collecting:.0%} learning"
    print(f"  {trial.words:<40}{trial.rate:>12,.0f}   {shares}{'   best so far' * better}", flush=True)
