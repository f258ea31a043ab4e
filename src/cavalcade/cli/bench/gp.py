"""`cavalcade bench gp`: how well searchers find the best of 120 orders, on synthetic objectives and on stored scores.

Simple regret: how far the true value of the order that a method names after T evaluations is below the best. As in a
search, up to q orders train in parallel: results arrive in the order of the proposals, each makes room for the next,
and what has not arrived is pending. Searchers do not know the noise of scores, only the variance of an evaluation where
a table states it. GP-UCB and Thompson sampling name the order with the highest posterior mean among those tried,
halving the same within its top rung; random search and the heuristic of the CAGE-2 workflow-search scripts that with
the highest mean of its own scores.

Halving needs scores of several budgets. On synthetic objectives a score of rung r has its noise divided by √3^r and
costs 3^r of the T evaluations; in stored scores, all of one budget, it cannot search.
"""

import csv
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cavalcade.cli.bench import write_statistics
from cavalcade.cli.parse import check_folder, parse
from cavalcade.core.errors import ConfigError, RunError, at_least, one_of
from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.runs.waiting import waiting
from cavalcade.search.members import ORDER, SEARCHING
from cavalcade.search.searchers import GpSearcher, HalvingSearcher, Observation, Proposal, Searcher, make_searcher
from cavalcade.tuning import machine
from cavalcade.workflow.orders import classes, precedences

METHODS = ("gp-ucb", "thompson", "halving", "random", "heuristic")
OBJECTIVES = ("pairwise", "mallows")
_CHECKPOINTS = (8, 20, 40)
_FACTOR = HalvingSearcher.factor  # by which halving multiplies the budget
_DEVIATION = 3.0  # of the true values, as in the table that is the yardstick
_ORDERS = CAGE2.orders()
_SIGNS = precedences(_ORDERS)
_DISTANCE = (_SIGNS.shape[1] - _SIGNS @ _SIGNS.T) / 2
_SINGLE = {"revision": "revision", "red": "red", "episodes": "training_episodes"}  # columns and their options
_HALVING = "halving: a score of rung r has its noise divided by √3^r and costs 3^r evaluations"
_NO_HALVING = "halving is left out: stored scores are of one budget, and it needs several"

Draw = Callable[[Proposal, np.random.Generator], tuple[float, float]]  # a score, and the variance of its evaluation
Table = dict[str, NDArray]  # of each method, (repeats, checkpoints)


@dataclass(frozen=True)
class Options:
    """Compares searchers by simple regret, on synthetic objectives or on stored scores of trainings."""

    repeats: int = 200
    """Objectives, or searches on stored scores."""
    methods: tuple[Literal["gp-ucb", "thompson", "halving", "random", "heuristic"], ...] = METHODS
    """Searchers; heuristic is that of the CAGE-2 workflow-search scripts."""
    parallel_orders: int = 8
    """Orders that train in parallel: the next is chosen when one is done, the others are pending."""
    objectives: tuple[Literal["pairwise", "mallows"], ...] = OBJECTIVES
    """Synthetic objectives."""
    noises: tuple[float, ...] = (1.0, 3.0)
    """Standard deviations of the noise, unknown to the searchers; that of the true values is 3."""
    checkpoints: tuple[int, ...] = _CHECKPOINTS
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
    write_statistics(options.json, {"machine": machine.describe(), **regrets})
    return 0


def _check(options: Options) -> None:
    at_least("repeats", options.repeats, 2)
    at_least("parallel_orders", options.parallel_orders, 1)
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
        raise ConfigError(f"methods is empty; name one or more of {', '.join(METHODS)}")
    if options.scores and set(options.methods) == {"halving"}:
        raise ConfigError(f"methods is halving; {_NO_HALVING}")
    check_folder("json", options.json)


def _wanted(options: Options) -> dict[str, str]:
    """Values of options that choose rows."""
    given = {name: getattr(options, name) for name in _SINGLE.values()}
    return {name: str(value) for name, value in given.items() if value is not None}


# Searches, simulated.


def synthetic(kind: str, seed: int) -> NDArray[np.float64]:
    """True values of the 120 orders: linear in precedences, or a draw from a Gaussian process."""
    rng = np.random.default_rng([seed, OBJECTIVES.index(kind)])
    if kind == "pairwise":
        values = _SIGNS @ rng.standard_normal(_SIGNS.shape[1])
    else:
        values = np.linalg.cholesky(np.exp(-_DISTANCE / 4) + 1e-9 * np.eye(120)) @ rng.standard_normal(120)
    return _DEVIATION * (values - values.mean()) / values.std()


class Trainings(NamedTuple):
    """Stored trainings of the 120 orders."""

    scores: list[list[float]]  # of each order's trainings
    errors: list[list[float]]  # standard errors of their evaluations, 0 where not stated

    def draw(self, proposal: Proposal, rng: np.random.Generator) -> tuple[float, float]:
        """The score of one of an order's trainings, drawn at random, and the variance of its evaluation."""
        i = rng.integers(len(self.scores[proposal.order]))
        return self.scores[proposal.order][i], self.errors[proposal.order][i] ** 2

    def truth(self, subtasks: Sequence[str] = CAGE2.names) -> NDArray[np.float64]:
        """The mean of the trainings of each order's class: all orders with these subtasks in the same order."""
        pairs = [k for k, pair in enumerate(CAGE2.pairs()) if all(CAGE2.names[i] in subtasks for i in pair)]
        alike = classes(_ORDERS, pairs)
        pooled: dict[int, list[float]] = {}
        for first, scores in zip(alike, self.scores, strict=True):
            pooled.setdefault(first, []).extend(scores)
        return np.array([np.mean(pooled[first]) for first in alike], np.float64)


def heuristic_choice(tried: Sequence[int], scores: Sequence[float], pending: Sequence[int] = ()) -> int:
    """The next order by the rule of the CAGE-2 workflow-search scripts.

    A tried order has the mean of its first score and deviation 1 / (1 + visits); another a mean weighted by
    exp(−2 d) over those tried and deviation 10 d + 1 for the nearest, d the Kendall distance from 0 to 1. The bound is
    mean + 2 / (1 + visits / 2) · deviation, the first of the best wins. The scripts train one order at a time; here
    pending orders count as visits, and leave the means alone.
    """
    mean, deviation, visits = np.zeros(120), np.full(120, 10.0), np.zeros(120)
    if tried:
        weight = np.exp(-2 * _DISTANCE[:, list(tried)] / 10)
        mean = weight @ np.asarray(scores) / weight.sum(axis=1)
        for order, score in reversed(list(zip(tried, scores, strict=True))):
            mean[order] = score
    if visited := [*tried, *pending]:
        np.add.at(visits, visited, 1)
        deviation = np.where(visits > 0, 1 / (1 + visits), _DISTANCE[:, visited].min(axis=1) + 1)
    return int(np.argmax(mean + 2 / (1 + 0.5 * visits) * deviation))


@dataclass(frozen=True)
class HeuristicSearcher:
    """The rule of the CAGE-2 workflow-search scripts."""

    def propose(self, observed: Sequence[Observation], pending: Sequence[Proposal], made: int) -> Proposal | None:
        """The order with the highest bound."""
        known = [o.order for o in observed], [o.score for o in observed]
        return Proposal(heuristic_choice(*known, [p.order for p in pending]))


def search(
    searcher: Searcher, draw: Draw, rng: np.random.Generator, budget: int, parallel_orders: int
) -> list[Observation]:
    """The results of a search with up to so many orders in training, in the order of their proposals."""
    observed: list[Observation] = []
    pending: list[Proposal] = []
    made = used = 0
    while True:
        while used < budget and len(pending) < parallel_orders:
            proposal = searcher.propose(observed, pending, made)
            if proposal is None or used + _FACTOR**proposal.rung > budget:
                break
            pending.append(proposal)
            made, used = made + 1, used + _FACTOR**proposal.rung
        if not pending:
            return observed
        first = pending.pop(0)
        score, variance = draw(first, rng)
        observed.append(Observation(first.order, score, variance, first.rung))


def named_orders(method: str, draw: Draw, *, seed: int, parallel_orders: int, checkpoints: Sequence[int]) -> list[int]:
    """The order that a method names after each number of evaluations."""
    searcher = HeuristicSearcher() if method == "heuristic" else make_searcher(method, _ORDERS, seed=seed)

    def found(budget: int) -> list[Observation]:
        return search(searcher, draw, np.random.default_rng([seed, 77]), budget, parallel_orders)

    if method == "halving":  # what it begins depends on what is left
        return [_named(method, found(budget)) for budget in checkpoints]
    observed = found(max(checkpoints))
    return [_named(method, observed[:count]) for count in checkpoints]


def _named(method: str, observed: Sequence[Observation]) -> int:
    """The order that a method names as the best of those tried; halving: of the top rung with at least two orders."""
    if method == "halving":
        orders = {rung: {o.order for o in observed if o.rung == rung} for rung in sorted({o.rung for o in observed})}
        top = max((rung for rung, tried in orders.items() if len(tried) > 1), default=0)
        observed = [o for o in observed if o.rung == top]
    tried = sorted({o.order for o in observed})
    if method in ("random", "heuristic"):
        return max(tried, key=lambda i: float(np.mean([o.score for o in observed if o.order == i])))
    mean = GpSearcher(_ORDERS).believe(observed, ()).mean
    return max(tried, key=lambda i: mean[i])


def simple_regrets(
    method: str,
    truth: NDArray[np.float64],
    noise: float,
    *,
    seed: int,
    parallel_orders: int = 8,
    checkpoints: Sequence[int] = _CHECKPOINTS,
) -> list[float]:
    """Simple regret after each number of evaluations; noise: standard deviation of a score of rung 0."""

    def draw(proposal: Proposal, rng: np.random.Generator) -> tuple[float, float]:
        return truth[proposal.order] + noise / math.sqrt(_FACTOR**proposal.rung) * rng.standard_normal(), 0.0

    named = named_orders(method, draw, seed=seed, parallel_orders=parallel_orders, checkpoints=checkpoints)
    return [float(truth.max() - truth[order]) for order in named]


def _once_synthetic(
    objective: str, noise: float, parallel_orders: int, checkpoints: tuple[int, ...], method: str, seed: int
):
    return simple_regrets(
        method, synthetic(objective, seed), noise, seed=seed, parallel_orders=parallel_orders, checkpoints=checkpoints
    )


def _once_stored(trainings: Trainings, parallel_orders: int, checkpoints: tuple[int, ...], method: str, seed: int):
    return named_orders(method, trainings.draw, seed=seed, parallel_orders=parallel_orders, checkpoints=checkpoints)


def _repeat(once: Callable[..., list], methods: Sequence[str], repeats: int, workers: int) -> Table:
    with ProcessPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        found = {method: pool.map(partial(once, method), range(repeats), chunksize=4) for method in methods}
        return {method: np.array(list(rows)) for method, rows in found.items()}


def _synthetic_regrets(
    objective: str,
    noise: float,
    methods: Sequence[str],
    repeats: int,
    checkpoints: tuple[int, ...],
    parallel_orders: int,
    workers: int,
) -> Table:
    """Simple regrets of each method on the same objectives with the same noise."""
    return _repeat(partial(_once_synthetic, objective, noise, parallel_orders, checkpoints), methods, repeats, workers)


def _stored_choices(
    trainings: Trainings,
    methods: Sequence[str],
    repeats: int,
    checkpoints: tuple[int, ...],
    parallel_orders: int,
    workers: int,
) -> Table:
    """The orders that each method names in searches on stored scores: `truth.max() − truth[them]` is their regret."""
    return _repeat(partial(_once_stored, trainings, parallel_orders, checkpoints), methods, repeats, workers)


# Stored scores.


def stored_scores(path: Path, wanted: Mapping[str, str]) -> Trainings:
    """Scores of every order: trainings of orders in the search itself, from scratch, all of one budget.

    Confirmations, controls and trainings that start from another policy do not count. wanted: values of options that
    choose rows.
    """
    rows = _table_rows(path) if path.is_file() or path.suffix == ".csv" else _run_rows(path)
    alone = {"purpose": SEARCHING, "kind": ORDER, "start": ""}
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
    return Trainings(scores, errors)


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


# Tables.


def _synthetic(options: Options) -> dict[str, Table]:
    if "halving" in options.methods:
        print(_HALVING)
    tables = {}
    for objective in options.objectives:
        for noise in options.noises:
            with waiting(f"searching {options.repeats} objectives"):
                found = _synthetic_regrets(objective, noise, options.methods, *_extent(options))
            _print(f"{objective}, noise {noise:g}, q = {options.parallel_orders}", found, options.checkpoints)
            tables[f"{objective} {noise:g}"] = found
    return tables


def _stored(options: Options, trainings: Trainings) -> dict[str, Table]:
    methods = [name for name in options.methods if name != "halving"]
    if len(methods) < len(options.methods):
        print(_NO_HALVING)
    with waiting(f"searching {options.repeats} times in stored scores"):
        named = _stored_choices(trainings, methods, *_extent(options))
    kinds = {"stored": (CAGE2.names, "120 orders")}
    if options.classes:
        count = math.factorial(len(set(options.classes)))
        kinds["classes"] = options.classes, f"{count} classes by the order of {', '.join(options.classes)}"
    head = f"{options.scores}, {sum(map(len, trainings.scores))} trainings, q = {options.parallel_orders}"
    tables = {}
    for kind, (subtasks, what) in kinds.items():
        truth = trainings.truth(subtasks)
        tables[kind] = {name: truth.max() - truth[orders] for name, orders in named.items()}
        title = f"{head}, {what}, standard deviation of their means {truth.std():.2f}"
        _print(title, tables[kind], options.checkpoints)
    return tables


def _extent(options: Options) -> tuple[int, tuple[int, ...], int, int]:
    return options.repeats, options.checkpoints, options.parallel_orders, os.cpu_count() or 1


def _print(title: str, found: Table, checkpoints: tuple[int, ...]) -> None:
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
    return f"{regrets.mean():>9.2f} ± {_interval(regrets):.2f}"


def _interval(values: NDArray[np.float64]) -> float:
    """Half the width of a 95 % interval of a mean."""
    return 1.96 * float(values.std(ddof=1)) / math.sqrt(len(values))
