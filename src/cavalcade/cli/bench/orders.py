"""`cavalcade bench orders`: what trainings of all 120 orders say, and how far a search's answers can be trusted.

The ground truth is a table. A row is one training: which game, which order, its score on fresh games, its compliance,
the decisions that bound it. Controls are rows too, by their kind.
"""

import csv
import itertools
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats

from cavalcade.cli.bench import calibration, write_statistics
from cavalcade.cli.parse import check_folder, parse
from cavalcade.core.errors import ConfigError, RunError, at_least, one_of
from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.runs.waiting import waiting
from cavalcade.search.analysis import Explained, by_class, explain, interval_of, trained_effects
from cavalcade.search.directory import open_search
from cavalcade.search.members import CONTROL, ORDER, PLAIN, SEARCHING
from cavalcade.search.records import read_rows
from cavalcade.search.verdict import Interval, Verdict, difference, iqm, judge, sentence
from cavalcade.workflow.orders import classes, precedences

COLUMNS = (
    "revision", "red", "episodes", "kind", "order", "seed", "score", "standard_error", "compliance", "counted",
    "true_compliance", "binding", "bound",
)  # fmt: skip
ORDERS = CAGE2.orders()
NAMES = [CAGE2.text(order) for order in ORDERS]
PAIRS = CAGE2.pair_names()
_RESAMPLES = 300
_FIRST, _SECOND = CAGE2.names.index("enterprise"), CAGE2.names.index("user")  # what the picture is coloured by
_COLOURS = ("#345", "#d62")


@dataclass(frozen=True)
class Options:
    """Prints what a table of trainings says: do orders matter, which precedences, at what cost; is it calibrated."""

    table: Path = Path("docs", "data", "orders.csv")
    """The table of trainings."""
    parts: tuple[Literal["truth", "binding", "transfer", "calibration", "universal"], ...] = ("truth", "transfer")
    """What to print: what each game says; binding decisions order by order; how far rankings agree between games;
    answers of simulated searches; how far scores from universal policies agree with the table."""
    collect: tuple[Path, ...] = ()
    """Write the table first, from the runs of exhaustive searches."""
    universal: tuple[Path, ...] = ()
    """Runs of searches with --evaluate-only, for the part universal."""
    episodes: int = 0
    """Only games with trainings of so many episodes; 0 for all."""
    searches: int = 500
    """Simulated searches of each kind, for the part calibration."""
    picture: Path | None = None
    """Draw the orders of the table into this file (svg, png or pdf)."""
    json: Path | None = None
    """Write the numbers to this file."""


def run(args: list[str]) -> int:
    """Prints the parts asked for."""
    options = parse(Options, args, "bench orders")
    at_least("searches", options.searches, 10)
    for name in ("json", "picture"):
        check_folder(name, getattr(options, name))
    if bool(options.universal) != ("universal" in options.parts):
        raise ConfigError("part universal and --universal RUN belong together; give both or neither")
    if options.collect:
        count = collect(options.collect, options.table)
        print(f"{options.table}: {count} trainings of {len(options.collect)} runs")
    games = read(options.table)
    if options.episodes:
        lengths = sorted({t.game.episodes for t in games})
        one_of("episodes", options.episodes, lengths)
        games = [t for t in games if t.game.episodes == options.episodes]
    found: dict[str, Any] = {}
    for part in options.parts:
        found[part] = {
            "truth": _truth, "binding": _binding, "transfer": _transfer, "calibration": _calibration,
            "universal": _universal,
        }[part](options, games)  # fmt: skip
    if options.picture:
        _figure(games).savefig(options.picture)
        print(options.picture)
    write_statistics(options.json, found)
    return 0


# The table.


class Game(NamedTuple):
    """What trainings have in common."""

    revision: str
    red: str
    episodes: int  # of a training

    @property
    def title(self) -> str:
        """In words."""
        return f"{self.red}, {self.revision}, {self.episodes:,} episodes"


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
            if (row["purpose"], row["kind"]) == (SEARCHING, ORDER) or row["purpose"] == CONTROL
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


# What is printed of it.


def _show(i: Interval, sign: str = "") -> str:
    return f"{i.estimate:{sign}.2f} ({i.low:{sign}.2f} to {i.high:{sign}.2f})"


def _truth(_: Options, games: list[Trained]) -> dict[str, Any]:
    plain = {}
    for t in games:
        with waiting(f"resampling {t.game.title}"):
            s = said(t)
        many = sum(map(len, t.scores.values()))
        print(f"\n{t.game.title}: {many} trainings, IQM {_show(s.all)}")
        print(f"  {sentence(s.verdict, f'{len(t.scores)} orders in {len(s.units)} classes, {many} trainings')}")
        if s.explained:
            e, ranks = s.explained, s.of_ranks.share if s.of_ranks else 0.0
            spread = f"(sd {e.between:.2f}; within a class {e.within:.2f})"
            print(f"  between classes {e.share:.0%} of the variance of scores {spread}, {ranks:.0%} of that of ranks")
        lowest = np.nanmin(list(t.compliance.values()))
        true = np.nanmean(list(t.true_compliance.values()))
        print(f"  compliance by Blue's table: lowest {lowest:.3f}; on the true state: mean {true:.2f}")
        for name, interval, n in zip(PAIRS, s.effects, t.bound, strict=True):
            a, b = name.split("/")
            mark = " *" if interval.low > 0 or interval.high < 0 else ""
            bound = f"binds {n:.2g} times per episode" if n else "never binds"
            print(f"    {f'{a} before {b}':<28}{_show(interval, '+'):<28}{bound}{mark}")
        for kind, scores in t.controls.items():
            print(f"    {kind:<28}{_show(interval_of(scores))}")
        print(f"    {'best − plain PPO':<28}{_show(s.gain, '+')}")
        for text, count, interval in [*s.units[:3], *s.units[-3:]] if len(s.units) > 6 else s.units:
            print(f"    {_show(interval):<28}{text}" + (f" and {count - 1} like it" if count > 1 else ""))
        plain[t.game.title] = {
            "answer": s.verdict.answer,
            "difference": s.verdict.extremes.difference if s.verdict.extremes else None,
            "compared": s.verdict.extremes.each if s.verdict.extremes else 0,
            "explained": s.explained,
            "explained_ranks": s.of_ranks,
            "effects": dict(zip(PAIRS, s.effects, strict=True)),
            "binding": dict(zip(PAIRS, t.bound.tolist(), strict=True)),
            "controls": {kind: interval_of(scores) for kind, scores in t.controls.items()},
            "gain": s.gain,
            "units": s.units,
        }
    return plain


def _binding(_: Options, games: list[Trained]) -> dict[str, Any]:
    titles = [t.game.title for t in games]
    print("\nbinding decisions per episode, order by order")
    print("  " + "; ".join(f"{i + 1} {title}" for i, title in enumerate(titles)))
    for order, name in enumerate(NAMES):
        print(f"  {name:<48}" + "".join(f"{t.binding[order]:>8.2f}" for t in games))
    return {title: dict(zip(NAMES, t.binding.values(), strict=True)) for title, t in zip(titles, games, strict=True)}


def _transfer(_: Options, games: list[Trained]) -> dict[str, Any]:
    print("\nagreement of rankings, Kendall's τ (95 % interval; 1 the same, 0 unrelated, −1 reversed)")
    found = {}
    for one, other in itertools.combinations(games, 2):
        with waiting("resampling rankings"):
            tau = agreement(ranking(one), ranking(other))
        found[f"{one.game.title} / {other.game.title}"] = tau
        print(f"  {one.game.title:<44}{other.game.title:<44}{_show(tau, '+')}", flush=True)
    return found


def _calibration(options: Options, games: list[Trained]) -> dict[str, Any]:
    workers = os.cpu_count() or 1
    print(f"\nanswers of {options.searches} simulated searches with default settings")
    found = {}
    for t in games:
        scores, units = [t.scores[order] for order in range(len(t.scores))], t.classes
        for title, permuted in (("as trained", False), ("labels permuted: all orders equal", True)):
            with waiting(f"searching in {t.game.title}"):
                said = calibration.answers(scores, units, options.searches, permuted=permuted, workers=workers)
            found[f"{t.game.title}, {title}"] = said
            shares = ", ".join(f"{answer} {share:.1%}" for answer, share in said.items())
            print(f"  {t.game.title + ', ' + title:<78}{shares}", flush=True)
    return found


def _universal(options: Options, games: list[Trained]) -> dict[str, Any]:
    print("\nscores from universal policies against trainings of each order, Kendall's τ (95 % interval)")
    found = {}
    for path in options.universal:
        universal = universal_ranking(path)
        best = int(np.argmax(universal.means()))
        for t in games:
            truth = ranking(t)
            tau = agreement(universal, truth)
            found[f"{path} / {t.game.title}"] = tau
            regret = truth.means().max() - truth.means()[best]
            print(f"  {path.name:<24}{t.game.title:<44}{_show(tau, '+')}  regret of its best {regret:.2f}", flush=True)
    return found


def _figure(games: Sequence[Trained]) -> Figure:
    """A panel per game: every order by its IQM with its trainings, coloured by enterprise before or after user."""
    columns = 2
    figure = Figure(figsize=(9, 2.6 * -(-len(games) // columns)), layout="constrained")
    panels = figure.subplots(-(-len(games) // columns), columns, squeeze=False).flatten()
    for axes, t in zip(panels, games, strict=False):
        means = np.array([interval_of(t.scores[order]).estimate for order in range(len(ORDERS))])
        ranked = np.argsort(-means)
        after = np.array([ORDERS[order].index(_FIRST) > ORDERS[order].index(_SECOND) for order in ranked])
        for colour, mine in zip(_COLOURS, (~after, after), strict=True):
            places = np.flatnonzero(mine)
            each = [(place, score) for place in places for score in t.scores[int(ranked[place])]]
            axes.plot(*zip(*each, strict=True), ".", color=colour, markersize=2, alpha=0.5, rasterized=True)
            axes.plot(places, means[ranked[places]], "_", color=colour, markersize=5)
        low = np.quantile([x for some in t.scores.values() for x in some], 0.02)
        axes.set_ylim(low - 1, max(x for some in t.scores.values() for x in some) + 1)
        axes.set_title(t.game.title, fontsize=9)
        axes.set_xlabel("orders, best first", fontsize=8)
        axes.set_ylabel("score", fontsize=8)
        axes.grid(alpha=0.3)
    for axes in panels[len(games) :]:
        axes.set_axis_off()
    handles = [panels[0].plot([], [], ".", color=c)[0] for c in _COLOURS]
    figure.legend(handles, ["enterprise before user", "user before enterprise"], loc="outside upper right", fontsize=8)
    return figure
