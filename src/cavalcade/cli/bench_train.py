"""`cavalcade bench train`: speed and results of training, beside other trainers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cavalcade.bench import machine, train
from cavalcade.cli.bench import write_figures
from cavalcade.cli.parse import check_folder, check_seconds, parse
from cavalcade.cli.waiting import COMPILING, waiting
from cavalcade.errors import at_least

_PARTS = ("speed", "population", "recipes", "overhead")


@dataclass(frozen=True)
class Options:
    """Trains CAGE-2 defenders in several ways, and prints speeds and held-out scores. Takes about ten minutes."""

    parts: tuple[Literal["speed", "population", "recipes", "overhead"], ...] = _PARTS
    """speed: beside other trainers; population: many policies at once; recipes: the shipped ones, every seed printed;
    overhead: what logs and checkpoints cost."""
    seconds: float = 10.0
    """Time for each trainer."""
    seeds: int = 5
    """Seeds of each recipe."""
    episodes: tuple[int, ...] = (20_000, 100_000)
    """Episodes that the recipes get."""
    json: Path | None = None
    """Write the raw figures to this file."""


def run(args: list[str]) -> int:
    """Prints each part as soon as it is measured."""
    options = parse(Options, args, "bench train")
    at_least("seeds", options.seeds, 1)
    check_seconds(options.seconds)
    check_folder("json", options.json)
    figures: dict[str, Any] = {"machine": machine.describe()}
    print(machine.line())
    measure = {"speed": _speed, "population": _population, "recipes": _recipes, "overhead": _overhead}
    for part in options.parts:
        figures[part] = measure[part](options)
    write_figures(options.json, figures)
    return 0


def _speed(options: Options) -> dict[str, Any]:
    figures = {}
    print(
        "\nsame shape: 200 environments × 100 steps, 4 epochs × 4 minibatches, 64-64; steps/s, best of five, in turns"
    )
    for red in train.REDS:
        with waiting(f"measuring trainers against {red}"):
            figures[red] = found = train.speeds(red, options.seconds)
        theirs = {name: rate for name, rate in found.items() if not name.startswith("cavalcade")}
        eager = max(rate for name, rate in theirs.items() if "compile" not in name)
        best = max(theirs.values())
        print(f"  {red:<34}{'steps/s':>12}{'× best peer':>14}{'× best eager':>14}")
        for name, rate in found.items():
            print(f"    {name:<32}{rate:>12,.0f}{rate / best:>14.2f}{rate / eager:>14.2f}", flush=True)
    return figures


def _population(options: Options) -> dict[str, Any]:
    with waiting(COMPILING):
        found = train.population(options.seconds)
    (one, rate), (many, total) = found.items()
    print(f"\npopulation, plain rows: P = {one} {rate:,.0f} steps/s, P = {many} {total:,.0f}: {total / rate:.2f}×")
    return {str(p): rate for p, rate in found.items()}


def _recipes(options: Options) -> list[dict[str, Any]]:
    rows = []
    print("\nrecipes, logs and checkpoints on; held-out greedy return over 1,000 games of 100 steps, revision head")
    for red in train.REDS:
        for episodes in options.episodes:
            here = []
            for row in train.recipe_rows(f"cage2-{red}", episodes, range(options.seeds)):
                here.append(row)
                print(
                    f"  {row['recipe']:<14}{episodes:>8,} episodes  seed {row['seed']}  {row['seconds']:6.1f} s  "
                    f"{row['steps_per_second']:>9,.0f} steps/s  {row['heldout']:7.2f} ± {row['interval']:.2f}",
                    flush=True,
                )
            means = np.array([row["heldout"] for row in here])
            error = means.std(ddof=1) / len(means) ** 0.5 if len(means) > 1 else 0.0
            longest = max(row["seconds"] for row in here)
            summary = f"{means.mean():.2f} ± {error:.2f} (s.e.), {longest:.1f} s at most"
            print(f"  {'mean':<14}{episodes:>8,} episodes  {summary}")
            rows += here
    return rows


def _overhead(options: Options) -> dict[str, float]:
    with waiting("measuring logs and checkpoints"):
        found = train.overhead("cage2-bline", options.episodes[-1])
    share = found["recorded"] / found["bare"] - 1
    print(f"\nlogs and checkpoints: {found['recorded']:.2f} s with, {found['bare']:.2f} s without: {share:+.1%}")
    return found
