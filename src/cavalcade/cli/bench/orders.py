"""The ground truth about orders on CAGE-2: a table of trainings of all 120 orders, and what it says.

A row is one training: which game, which order, its score on fresh games, its compliance, the decisions that bound it.
Controls are rows too, by their kind.
"""

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.errors import RunError
from cavalcade.runs.directory import open_search
from cavalcade.search.analysis import Explained, by_class, explain, interval_of, trained_effects
from cavalcade.search.members import CONTROL, ORDER, PLAIN, SEARCH
from cavalcade.search.policies import read_rows
from cavalcade.search.verdict import Interval, Verdict, difference, iqm, judge
from cavalcade.workflow.orders import classes, precedences

COLUMNS = (
    "revision", "red", "episodes", "kind", "order", "seed", "score", "standard_error", "compliance", "counted",
    "true_compliance", "binding", "bound",
)  # fmt: skip
ORDERS = CAGE2.orders()
NAMES = [CAGE2.text(order) for order in ORDERS]
PAIRS = CAGE2.pair_names()
_RESAMPLES = 300


class Game(NamedTuple):
    """What trainings have in common."""

    revision: str
    red: str
    episodes: int  # of a training


class Trained(NamedTuple):
    """The trainings of all orders in a game."""

    game: Game
    scores: dict[int, list[float]]  # by order
    controls: dict[str, list[float]]  # by kind
    compliance: dict[int, float]  # by order, the lowest of its trainings; not a number where nothing counted
    true_compliance: dict[int, float]  # by order, the mean
    binding: dict[int, float]  # decisions that bound per episode, by order
    bound: NDArray  # the same by pair of subtasks, over all orders, (10,)

    @property
    def classes(self) -> list[int]:
        """For each order the first that binds as it does."""
        return classes(ORDERS, np.flatnonzero(self.bound > 0))

    @property
    def units(self) -> dict[int, list[float]]:
        """Scores by class of orders."""
        return by_class(self.scores, self.classes)


class Said(NamedTuple):
    """What a table says of a game."""

    all: Interval  # IQM of all trainings
    explained: Explained | None  # by class
    of_ranks: Explained | None  # the same for ranks, which outliers do not rule
    verdict: Verdict
    effects: list[Interval]  # of the ten precedences
    plain: Interval  # IQM of plain PPO
    gain: Interval  # best classes − plain PPO, chosen on one half of their trainings and compared on the other
    units: list[tuple[str, int, Interval]]  # classes, best first: an order, how many, IQM


def collect(runs: Iterable[Path], table: Path) -> int:
    """Writes the trainings of exhaustive searches as a table; returns how many."""
    rows: list[dict[str, str]] = []
    for path in runs:
        config = open_search(path).config()
        if config.target != "cage2" or config.searcher != "exhaustive":
            raise RunError(f"{path} is not an exhaustive search on cage2; its trainings do not cover all orders")
        same = {"revision": config.task.revision, "red": config.task.red, "episodes": str(config.episodes_per_order)}
        rows += [
            same | {name: row[name] for name in COLUMNS[3:]}
            for row in read_rows(path)
            if (row["purpose"], row["kind"]) == (SEARCH, ORDER) or row["purpose"] == CONTROL
        ]
    try:
        with table.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows([COLUMNS, *([row[name] for name in COLUMNS] for row in rows)])
    except OSError as error:
        raise RunError(f"{table} cannot be written: {error.strerror}") from None
    return len(rows)


def read(table: Path) -> list[Trained]:
    """The games of a table."""
    try:
        with table.open(newline="") as file:
            rows = list(csv.DictReader(file))
        games = dict.fromkeys(Game(row["revision"], row["red"], int(row["episodes"])) for row in rows)
        return [_trained(game, rows) for game in games]
    except (OSError, ValueError, KeyError) as error:
        raise RunError(f"{table} is not a table of trainings ({type(error).__name__}: {error})") from None


def _trained(game: Game, rows: Sequence[dict[str, str]]) -> Trained:
    mine = [row for row in rows if Game(row["revision"], row["red"], int(row["episodes"])) == game]
    by_order: dict[int, list[dict[str, str]]] = {order: [] for order in range(len(ORDERS))}
    controls: dict[str, list[float]] = {}
    for row in mine:
        if row["kind"] == ORDER:
            by_order[NAMES.index(row["order"])].append(row)
        else:
            controls.setdefault(row["kind"], []).append(float(row["score"]))
    if few := [NAMES[order] for order, some in by_order.items() if len(some) < 2]:
        raise ValueError(f"{len(few)} orders have fewer than two trainings, {few[0]} among them")

    def numbers(order: int, name: str) -> list[float]:
        return [float(row[name]) for row in by_order[order] if row[name]] or [math.nan]

    return Trained(
        game,
        {order: numbers(order, "score") for order in by_order},
        controls,
        {order: min(numbers(order, "compliance")) for order in by_order},
        {order: float(np.mean(numbers(order, "true_compliance"))) for order in by_order},
        {order: float(np.mean(numbers(order, "binding"))) for order in by_order},
        np.mean([[float(x) for x in row["bound"].split()] for some in by_order.values() for row in some], axis=0),
    )


def said(t: Trained, margin: float = 1.0) -> Said:
    """What the trainings of a game say about orders."""
    units = t.units
    ranked = sorted(units, key=lambda unit: -float(iqm(np.asarray(units[unit]))))
    members = {unit: sum(one == unit for one in t.classes) for unit in units}
    plain = t.controls.get(PLAIN, [])
    ranks = iter(stats.rankdata([x for some in units.values() for x in some]))
    return Said(
        all=interval_of([x for some in t.scores.values() for x in some]),
        explained=explain(list(units.values())),
        of_ranks=explain([[next(ranks) for _ in some] for some in units.values()]),
        verdict=judge(units, margin=margin),
        effects=trained_effects(precedences(ORDERS), t.scores),
        plain=interval_of(plain),
        gain=difference(_best_half(units), plain) if plain else Interval(math.nan, math.nan, math.nan),
        units=[(NAMES[unit], members[unit], interval_of(units[unit])) for unit in ranked],
    )


def _best_half(units: dict[int, list[float]]) -> list[float]:
    """Scores of the best class, or the best tenth of many: chosen by every second training, the others returned."""
    chosen_on = {unit: float(iqm(np.asarray(scores[::2]))) for unit, scores in units.items()}
    best = sorted(chosen_on, key=chosen_on.__getitem__)[-max(1, len(units) // 10) :]
    return [x for unit in best for x in units[unit][1::2]]


class Ranking(NamedTuple):
    """Scores from which the 120 orders are ranked; orders of one class share theirs."""

    scores: dict[int, list[float]]  # by class
    classes: list[int]  # of each order

    def means(self, rng: np.random.Generator | None = None) -> NDArray:
        """IQM of each order; with a generator, of resampled scores: (R, 120)."""
        found = {}
        for unit, scores in self.scores.items():
            given = np.asarray(scores)
            found[unit] = iqm(given if rng is None else given[rng.integers(len(given), size=(_RESAMPLES, len(given)))])
        return np.stack([found[unit] for unit in self.classes], axis=-1)


def ranking(t: Trained) -> Ranking:
    """The ranking by trainings of every order."""
    return Ranking(t.units, t.classes)


def agreement(one: Ranking, other: Ranking) -> Interval:
    """Kendall's τ-b between rankings of the orders; interval by resampling the scores."""
    rng = np.random.Generator(np.random.Philox(key=0))
    pairs = zip(one.means(rng), other.means(rng), strict=True)
    low, high = np.quantile([float(stats.kendalltau(a, b).statistic) for a, b in pairs], [0.025, 0.975])
    return Interval(float(stats.kendalltau(one.means(), other.means()).statistic), float(low), float(high))


def universal_ranking(path: Path) -> Ranking:
    """The ranking by scores of every order from the universal policies of a search."""
    rows = [row for row in read_rows(path) if row["kind"] == ORDER and row["start"] and int(row["updates"]) == 0]
    found: dict[int, list[float]] = {order: [] for order in range(len(ORDERS))}
    for row in rows:
        found[NAMES.index(row["order"])].append(float(row["score"]))
    if not min(map(len, found.values())):
        raise RunError(f"{path} has no universal policy that was evaluated; search with --evaluate-only")
    return Ranking(found, list(found))
