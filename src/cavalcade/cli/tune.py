"""`cavalcade tune`: measures which settings are fastest on this machine, and keeps them for the next run."""

import sys
from dataclasses import dataclass
from typing import Any

import yaml
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cavalcade.cli.parse import check_folder, check_seconds, import_from_here
from cavalcade.cli.targets import parse_target
from cavalcade.config.presets import tuned_file
from cavalcade.core.errors import ConfigError
from cavalcade.runs.directory import write_whole
from cavalcade.targets import target_named
from cavalcade.tuning import machine
from cavalcade.tuning.tune import Trial, count, preset, tune


@dataclass(frozen=True)
class Options:
    """Measures trainings with other backends, workers, environments and batches, and keeps the fastest settings."""

    seconds: float = 4.0
    """Time for each trial."""
    recipe: str | None = None
    """Settings to start from: the name of a shipped recipe, or a YAML file."""


def run(args: list[str]) -> int:
    """Tries settings one after the other, and writes the fastest to a file."""
    import_from_here()
    target, options = parse_target(Options, args, "tune")
    check_seconds(options.seconds)
    if getattr(options.config, "device", "cpu") == "cuda":
        raise ConfigError(
            "device is cuda; only trainings on the CPU are tuned, the recipes with -gpu have sizes for a GPU"
        )
    if reason := target_named(target).not_tuned:
        raise ConfigError(reason)
    path = tuned_file(target)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{path.parent} cannot be created: {error.strerror}; set XDG_CONFIG_HOME") from None
    check_folder("the file for tuned settings", path)
    console = Console(file=sys.stderr)
    print(f"{machine.line()}\n{target}: training steps/s, {options.seconds:g} s each", flush=True)
    columns: Any = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        bar = progress.add_task("trials (the first may compile)", total=count(options.config))
        best: Trial | None = None
        for trial in tune(options.config, options.seconds):
            progress.advance(bar)
            _show(trial)
            best = trial if trial.best else best
    assert best is not None
    head = f"# found by: cavalcade tune {target}\n# {best.rate:,.0f} steps/s on {machine.line()}\n"
    write_whole(path, head + yaml.safe_dump(preset(best.config), sort_keys=False))
    print(f"best: {best.words}, {best.rate:,.0f} steps/s\nwritten to {path}")
    print(f"use it with: cavalcade train {target} --hardware tuned")
    return 0


def _show(trial: Trial) -> None:
    if trial.trouble:
        print(f"  {trial.words:<40} {trial.trouble}", flush=True)
        return
    shares = f"{trial.collecting:.0%} collecting, {1 - trial.collecting:.0%} learning"
    print(f"  {trial.words:<40}{trial.rate:>12,.0f}   {shares}{'   best so far' * trial.best}", flush=True)
