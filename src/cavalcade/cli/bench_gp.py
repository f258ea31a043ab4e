"""`cavalcade bench gp`: how well searchers find the best of 120 orders."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cavalcade.bench import gp, machine
from cavalcade.cli.bench import write_figures
from cavalcade.cli.parse import check_folder, parse
from cavalcade.cli.waiting import waiting
from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.errors import ConfigError, RunError, at_least


@dataclass(frozen=True)
class Options:
    """Compares searchers by simple regret, on synthetic objectives or on the stored scores of an exhaustive search."""

    repeats: int = 200
    """Objectives, or searches on stored scores."""
    methods: tuple[Literal["gp-ucb", "thompson", "random", "heuristic"], ...] = gp.METHODS
    """Searchers; heuristic is that of the CAGE-2 workflow-search scripts."""
    objectives: tuple[Literal["pairwise", "mallows"], ...] = gp.OBJECTIVES
    """Synthetic objectives."""
    noises: tuple[float, ...] = (1.0, 3.0)
    """Deviations of the noise; that of the true values is 3."""
    checkpoints: tuple[int, ...] = (8, 20, 40)
    """Evaluations after which the regret is taken."""
    scores: Path | None = None
    """The run of an exhaustive search with several trainings of each order: use its scores instead."""
    json: Path | None = None
    """Write all regrets to this file."""


def run(args: list[str]) -> int:
    """Prints a table for each objective."""
    options = parse(Options, args, "bench gp")
    at_least("repeats", options.repeats, 2)
    if list(options.checkpoints) != sorted(set(options.checkpoints)) or min(options.checkpoints, default=0) < 1:
        raise ConfigError(f"checkpoints are {options.checkpoints}; they must be above 0 and rise")
    check_folder("json", options.json)
    figures: dict[str, Any] = {"machine": machine.describe()}
    workers = os.cpu_count() or 1
    scores = stored_scores(options.scores) if options.scores else None
    print(machine.line())
    if scores:
        with waiting(f"searching {options.repeats} times in stored scores"):
            found = gp.replayed_table(scores, options.repeats, options.methods, options.checkpoints, workers)
        spread = np.std([np.mean(s) for s in scores])
        _print(f"{options.scores}: deviation of the means of orders {spread:.2f}", found, options.checkpoints)
        figures["stored"] = {name: regrets.tolist() for name, regrets in found.items()}
    else:
        for objective in options.objectives:
            for noise in options.noises:
                with waiting(f"searching {options.repeats} objectives"):
                    found = gp.synthetic_table(
                        objective, noise, options.repeats, options.methods, options.checkpoints, workers
                    )
                _print(f"{objective}, noise {noise:g}", found, options.checkpoints)
                figures[f"{objective} {noise:g}"] = {name: regrets.tolist() for name, regrets in found.items()}
    write_figures(options.json, figures)
    return 0


def stored_scores(path: Path) -> list[list[float]]:
    """Scores of every order in an exhaustive search."""
    try:
        results = json.loads((path / "summary.json").read_text())["results"]
    except (OSError, ValueError, KeyError) as error:
        raise RunError(f"{path} has no finished search ({type(error).__name__})") from None
    names = [CAGE2.text(order) for order in CAGE2.orders()]
    by_order = [[r["heldout"] for r in results if r["order"] == name and not r["member"]["start"]] for name in names]
    if min(map(len, by_order)) < 2:
        raise RunError(f"{path} has orders with fewer than two trainings; search with --searcher exhaustive --rounds 5")
    return by_order


def _print(title: str, found: dict[str, NDArray[np.float64]], checkpoints: tuple[int, ...]) -> None:
    head = "".join(f"{f'T = {t}':>17}" for t in checkpoints)
    print(f"\nmean simple regret ± 95 %, {title}\n  {'':<10}{head}")
    for name, regrets in found.items():
        cells = "".join(
            f"{regrets[:, i].mean():>9.2f} ± {gp.interval(regrets[:, i]):.2f} " for i in range(len(checkpoints))
        )
        print(f"  {name:<10}{cells}", flush=True)
    if "gp-ucb" in found:
        for name in found:
            if name in ("random", "heuristic"):
                apart = found[name] - found["gp-ucb"]
                cells = "".join(
                    f"{apart[:, i].mean():>9.2f} ± {gp.interval(apart[:, i]):.2f} " for i in range(len(checkpoints))
                )
                print(f"  {name} − gp-ucb, paired{cells}", flush=True)
