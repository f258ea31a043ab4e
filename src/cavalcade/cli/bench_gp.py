"""`cavalcade bench gp`: how well searchers find the best of 120 orders."""

import csv
import json
import math
import os
from collections.abc import Mapping, Sequence
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
from cavalcade.errors import ConfigError, RunError, at_least, one_of
from cavalcade.search.members import ORDER, SEARCH

_SINGLE = {"revision": "revision", "red": "red", "episodes": "training_episodes"}  # columns and their options
_HALVING = "halving: a score of rung r has its noise divided by √3^r and costs 3^r evaluations"
_NO_HALVING = "halving is left out: stored scores are of one budget, and it needs several"


@dataclass(frozen=True)
class Options:
    """Compares searchers by simple regret, on synthetic objectives or on stored scores of trainings."""

    repeats: int = 200
    """Objectives, or searches on stored scores."""
    methods: tuple[Literal["gp-ucb", "thompson", "halving", "random", "heuristic"], ...] = gp.METHODS
    """Searchers; heuristic is that of the CAGE-2 workflow-search scripts."""
    together: int = 8
    """Orders in training together: the next is chosen when one is done, the others are pending."""
    objectives: tuple[Literal["pairwise", "mallows"], ...] = gp.OBJECTIVES
    """Synthetic objectives."""
    noises: tuple[float, ...] = (1.0, 3.0)
    """Standard deviations of the noise, unknown to the searchers; that of the true values is 3."""
    checkpoints: tuple[int, ...] = gp.CHECKPOINTS
    """Evaluations after which the regret is taken."""
    scores: Path | None = None
    """Use stored scores: the run of an exhaustive search, or a CSV file with the columns order and score, and
    standard_error if the variance of evaluations is known."""
    revision: str | None = None
    """Rows of the CSV file with this value in the column revision."""
    red: str | None = None
    """Rows of the CSV file with this value in the column red."""
    training_episodes: int | None = None
    """Rows of the CSV file with this value in the column episodes."""
    classes: tuple[str, ...] = ()
    """Subtasks; orders that agree in their relative order are one class, and regret is reported for classes too."""
    json: Path | None = None
    """Write all regrets to this file."""


def run(args: list[str]) -> int:
    """Prints a table for each objective."""
    options = parse(Options, args, "bench gp")
    _check(options)
    trainings = stored_scores(options.scores, _wanted(options)) if options.scores else None
    print(machine.line())
    tables = _stored(options, trainings) if trainings else _synthetic(options)
    regrets = {title: {name: rows.tolist() for name, rows in table.items()} for title, table in tables.items()}
    write_figures(options.json, {"machine": machine.describe(), **regrets})
    return 0


def _check(options: Options) -> None:
    at_least("repeats", options.repeats, 2)
    at_least("together", options.together, 1)
    if list(options.checkpoints) != sorted(set(options.checkpoints)) or min(options.checkpoints, default=0) < 1:
        raise ConfigError(f"checkpoints are {options.checkpoints}; they must be above 0 and rise")
    if not all(0 <= noise < math.inf for noise in options.noises):
        raise ConfigError(f"noises are {options.noises}; they must be at least 0")
    for name in options.classes:
        one_of("classes", name, CAGE2.names)
    if len(set(options.classes)) == 1:
        raise ConfigError(f"classes is {options.classes[0]}; it takes two or more of {', '.join(CAGE2.names)}")
    if not options.scores and (given := [*_wanted(options), *(["classes"] if options.classes else [])]):
        raise ConfigError(f"{given[0]} is given without scores; name a run or a CSV file with --scores")
    if not options.methods:
        raise ConfigError(f"methods is empty; name one or more of {', '.join(gp.METHODS)}")
    if options.scores and set(options.methods) == {"halving"}:
        raise ConfigError(f"methods is halving; {_NO_HALVING}")
    check_folder("json", options.json)


def _wanted(options: Options) -> dict[str, str]:
    """Values of options that choose rows."""
    given = {name: getattr(options, name) for name in _SINGLE.values()}
    return {name: str(value) for name, value in given.items() if value is not None}


def _synthetic(options: Options) -> dict[str, gp.Table]:
    if "halving" in options.methods:
        print(_HALVING)
    tables = {}
    for objective in options.objectives:
        for noise in options.noises:
            with waiting(f"searching {options.repeats} objectives"):
                found = gp.synthetic_regrets(objective, noise, options.methods, *_extent(options))
            _print(f"{objective}, noise {noise:g}, q = {options.together}", found, options.checkpoints)
            tables[f"{objective} {noise:g}"] = found
    return tables


def _stored(options: Options, trainings: gp.Trainings) -> dict[str, gp.Table]:
    methods = [name for name in options.methods if name != "halving"]
    if len(methods) < len(options.methods):
        print(_NO_HALVING)
    with waiting(f"searching {options.repeats} times in stored scores"):
        named = gp.stored_choices(trainings, methods, *_extent(options))
    kinds = {"stored": (CAGE2.names, "120 orders")}
    if options.classes:
        count = math.factorial(len(set(options.classes)))
        kinds["classes"] = options.classes, f"{count} classes by the order of {', '.join(options.classes)}"
    head = f"{options.scores}, {sum(map(len, trainings.scores))} trainings, q = {options.together}"
    tables = {}
    for kind, (subtasks, what) in kinds.items():
        truth = trainings.truth(subtasks)
        tables[kind] = {name: truth.max() - truth[orders] for name, orders in named.items()}
        title = f"{head}, {what}, standard deviation of their means {truth.std():.2f}"
        _print(title, tables[kind], options.checkpoints)
    return tables


def _extent(options: Options) -> tuple[int, tuple[int, ...], int, int]:
    return options.repeats, options.checkpoints, options.together, os.cpu_count() or 1


def stored_scores(path: Path, wanted: Mapping[str, str]) -> gp.Trainings:
    """Scores of every order: trainings of orders in the search itself, from scratch, all of one budget.

    Confirmations, controls and trainings that start from another policy do not count. wanted: values of options that
    choose rows.
    """
    rows = _table_rows(path) if path.is_file() or path.suffix == ".csv" else _run_rows(path)
    alone = {"purpose": SEARCH, "kind": ORDER, "start": ""}
    rows = [row for row in rows if all(row.get(column, value) == value for column, value in alone.items())]
    rows = _chosen(path, rows, wanted)
    scores, errors = ([[] for _ in CAGE2.orders()] for _ in range(2))
    index = {order: i for i, order in enumerate(CAGE2.orders())}
    for row in rows:
        try:
            order = index[CAGE2.parse(row["order"])]
            score, error = float(row["score"]), float(row.get("standard_error") or 0.0)
        except (TypeError, ValueError) as why:
            raise RunError(f"{path}: {why}") from None
        if not (math.isfinite(score) and 0 <= error < math.inf):
            raise RunError(f"{path} has score {score} with standard_error {error}; both must be finite")
        scores[order].append(score)
        errors[order].append(error)
    if few := [CAGE2.text(order) for order, i in index.items() if len(scores[i]) < 2]:
        raise RunError(
            f"{path} has {len(few)} orders with fewer than two trainings, {few[0]} among them; search with "
            "--searcher exhaustive --rounds 5"
        )
    return gp.Trainings(scores, errors)


def _run_rows(path: Path) -> list[dict[str, Any]]:
    """Trainings of a run; `updates` is their budget."""
    try:
        results = json.loads((path / "summary.json").read_text())["results"]
        return [
            {name: r["member"][name] for name in ("purpose", "kind", "start", "updates")}
            | {"order": r["order"], "score": r["score"], "standard_error": r["error"]}
            for r in results
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} has no finished search ({type(error).__name__})") from None


def _table_rows(path: Path) -> list[dict[str, Any]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file, restval=""))
    except (OSError, ValueError, csv.Error) as error:
        raise RunError(f"{path} cannot be read as a table ({type(error).__name__})") from None
    if missing := [name for name in ("order", "score") if not rows or name not in rows[0]]:
        raise RunError(f"{path} has no rows with {' and '.join(missing)}; it must be a CSV file with these columns")
    return rows


def _chosen(path: Path, rows: Sequence[dict[str, Any]], wanted: Mapping[str, str]) -> Sequence[dict[str, Any]]:
    """Rows with the wanted values; refuses none, and several revisions, Reds or budgets together."""
    for column, option in _SINGLE.items():
        if option not in wanted:
            continue
        values = sorted({row[column] for row in rows if column in row})
        if not values:
            raise ConfigError(f"{option} is {wanted[option]}; {path} has no column {column}, leave it out")
        one_of(option, wanted[option], values)
        rows = [row for row in rows if row[column] == wanted[option]]
    for column, option in {**_SINGLE, "updates": ""}.items():
        values = sorted({str(row[column]) for row in rows if column in row})
        if len(values) > 1:
            how = f"choose one with --{option.replace('_', '-')}" if option else "all must have the same"
            raise ConfigError(f"{path} has trainings of {column} {', '.join(values)}; {how}")
    return rows


def _print(title: str, found: gp.Table, checkpoints: tuple[int, ...]) -> None:
    rows = dict(found)
    if "gp-ucb" in found:
        paired = (name for name in found if name in ("halving", "random", "heuristic"))
        rows |= {f"{name} − gp-ucb, paired": found[name] - found["gp-ucb"] for name in paired}
    width = max(map(len, rows))
    head = "".join(f"{f'T = {t}':>16}" for t in checkpoints)
    print(f"\nmean simple regret ± 95 %, {title}\n  {'':<{width}}{head}")
    for name, regrets in rows.items():
        print(f"  {name:<{width}}{''.join(map(_cell, regrets.T))}", flush=True)


def _cell(regrets: NDArray[np.float64]) -> str:
    return f"{regrets.mean():>9.2f} ± {gp.interval(regrets):.2f}"
