"""`cavalcade bench orders`: what trainings of all 120 orders say, and how far a search's answers can be trusted."""

import itertools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cavalcade.bench import calibration, orders
from cavalcade.bench.orders_figure import orders_figure
from cavalcade.cli.bench import write_figures
from cavalcade.cli.parse import check_folder, parse
from cavalcade.cli.waiting import waiting
from cavalcade.errors import ConfigError, at_least, one_of
from cavalcade.search.verdict import Interval, sentence

PARTS = ("truth", "binding", "transfer", "calibration", "universal")


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
        count = orders.collect(options.collect, options.table)
        print(f"{options.table}: {count} trainings of {len(options.collect)} runs")
    games = orders.read(options.table)
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
        orders_figure(games).savefig(options.picture)
        print(options.picture)
    write_figures(options.json, found)
    return 0


def _title(game: orders.Game) -> str:
    return f"{game.red}, {game.revision}, {game.episodes:,} episodes"


def _show(i: Interval, sign: str = "") -> str:
    return f"{i.estimate:{sign}.2f} ({i.low:{sign}.2f} to {i.high:{sign}.2f})"


def _truth(_: Options, games: list[orders.Trained]) -> dict[str, Any]:
    plain = {}
    for t in games:
        with waiting(f"resampling {_title(t.game)}"):
            s = orders.said(t)
        many = sum(map(len, t.scores.values()))
        print(f"\n{_title(t.game)}: {many} trainings, IQM {_show(s.all)}")
        print(f"  {sentence(s.verdict, f'{len(t.scores)} orders in {len(s.units)} classes, {many} trainings')}")
        if s.explained:
            e, ranks = s.explained, s.of_ranks.share if s.of_ranks else 0.0
            spread = f"(sd {e.between:.2f}; within a class {e.within:.2f})"
            print(f"  between classes {e.share:.0%} of the variance of scores {spread}, {ranks:.0%} of that of ranks")
        lowest = np.nanmin(list(t.compliance.values()))
        true = np.nanmean(list(t.true_compliance.values()))
        print(f"  compliance by Blue's table: lowest {lowest:.3f}; on the true state: mean {true:.2f}")
        for name, interval, n in zip(orders.PAIRS, s.effects, t.bound, strict=True):
            a, b = name.split("/")
            mark = " *" if interval.low > 0 or interval.high < 0 else ""
            bound = f"binds {n:.2g} times per episode" if n else "never binds"
            print(f"    {f'{a} before {b}':<28}{_show(interval, '+'):<28}{bound}{mark}")
        for kind, scores in t.controls.items():
            print(f"    {kind:<28}{_show(orders.interval_of(scores))}")
        print(f"    {'best − plain PPO':<28}{_show(s.gain, '+')}")
        for text, count, interval in [*s.units[:3], *s.units[-3:]] if len(s.units) > 6 else s.units:
            print(f"    {_show(interval):<28}{text}" + (f" and {count - 1} like it" if count > 1 else ""))
        plain[_title(t.game)] = {
            "answer": s.verdict.answer,
            "difference": s.verdict.extremes.difference if s.verdict.extremes else None,
            "explained": s.explained,
            "effects": dict(zip(orders.PAIRS, s.effects, strict=True)),
            "gain": s.gain,
            "units": s.units,
        }
    return plain


def _binding(_: Options, games: list[orders.Trained]) -> dict[str, Any]:
    titles = [_title(t.game) for t in games]
    print("\nbinding decisions per episode, order by order")
    print("  " + "; ".join(f"{i + 1} {title}" for i, title in enumerate(titles)))
    for order, name in enumerate(orders.NAMES):
        print(f"  {name:<48}" + "".join(f"{t.binding[order]:>8.2f}" for t in games))
    return {
        title: dict(zip(orders.NAMES, t.binding.values(), strict=True)) for title, t in zip(titles, games, strict=True)
    }


def _transfer(_: Options, games: list[orders.Trained]) -> dict[str, Any]:
    print("\nagreement of rankings, Kendall's τ (95 % interval; 1 the same, 0 unrelated, −1 reversed)")
    found = {}
    for one, other in itertools.combinations(games, 2):
        with waiting("resampling rankings"):
            tau = orders.agreement(orders.ranking(one), orders.ranking(other))
        found[f"{_title(one.game)} / {_title(other.game)}"] = tau
        print(f"  {_title(one.game):<44}{_title(other.game):<44}{_show(tau, '+')}", flush=True)
    return found


def _calibration(options: Options, games: list[orders.Trained]) -> dict[str, Any]:
    workers = os.cpu_count() or 1
    print(f"\nanswers of {options.searches} simulated searches with default settings")
    found = {}
    for t in games:
        scores, units = [t.scores[order] for order in range(len(t.scores))], t.classes
        for title, permuted in (("as trained", False), ("labels permuted: all orders equal", True)):
            with waiting(f"searching in {_title(t.game)}"):
                said = calibration.answers(scores, units, options.searches, permuted=permuted, workers=workers)
            found[f"{_title(t.game)}, {title}"] = said
            shares = ", ".join(f"{answer} {share:.1%}" for answer, share in said.items())
            print(f"  {_title(t.game) + ', ' + title:<78}{shares}", flush=True)
    return found


def _universal(options: Options, games: list[orders.Trained]) -> dict[str, Any]:
    print("\nscores from universal policies against trainings of each order, Kendall's τ (95 % interval)")
    found = {}
    for path in options.universal:
        universal = orders.universal_ranking(path)
        best = int(np.argmax(universal.means()))
        for t in games:
            truth = orders.ranking(t)
            tau = orders.agreement(universal, truth)
            found[f"{path} / {_title(t.game)}"] = tau
            regret = truth.means().max() - truth.means()[best]
            print(
                f"  {path.name:<24}{_title(t.game):<44}{_show(tau, '+')}  regret of its best {regret:.2f}", flush=True
            )
    return found
