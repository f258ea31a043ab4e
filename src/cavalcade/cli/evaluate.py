"""`cavalcade evaluate`: the official nine-cell score of a trained policy or of a baseline."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import tyro

from cavalcade.cli.evaluate_hosted import run_hosted
from cavalcade.cli.evaluate_mettagrid import run_mettagrid
from cavalcade.cli.orders import open_policy
from cavalcade.cli.parse import check_folder, parse
from cavalcade.cli.waiting import COMPILING, waiting
from cavalcade.config import GYM, Cage2Task, SearchConfig
from cavalcade.config_mettagrid import MettagridTrainConfig
from cavalcade.envs.cage2.cyborg import check_clone
from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.envs.cage2.protocol import HORIZONS, LEADERBOARD, REDS, Actor, Cell, total
from cavalcade.envs.cage2.scripted import BLUES, greedy
from cavalcade.errors import ConfigError, at_least
from cavalcade.runs.directory import target_of
from cavalcade.runs.scoring import best_policy, cyborg_score, score

_GREEDY = ("greedy", "greedy-corrected")


@dataclass(frozen=True)
class Options:
    """Scores a policy as the challenge did: 30, 50 and 100 steps against B_line, Meander and Sleep."""

    policy: tyro.conf.Positional[str]
    """A run, a checkpoint, or a baseline: random, sleep, react, react-restore, greedy, greedy-corrected."""
    episodes: int = 1000
    """Episodes per cell."""
    revisions: tuple[Literal["head", "leaderboard-2022"], ...] = ("leaderboard-2022", "head")
    """Revisions of the game to score on; the leaderboard belongs to leaderboard-2022."""
    sampled: bool = False
    """Draw actions by their probabilities instead of taking the likeliest."""
    member: int | None = None
    """Which policy of a run with several; the best of them on games apart from these, if not given. Of a search: the
    number of a training in search.csv."""
    order: str | None = None
    """Of a search: the order whose policy is scored, by name or with > between types, or best, the default. For the
    greedy baselines: the order of host types."""
    seed: int = 1
    """Seed of the games; they are never those of a training."""
    json: Path | None = None
    """Write the figures to this file."""
    engine: Literal["cavalcade", "cyborg"] = "cavalcade"
    """Play here, or in your own checkout of CybORG."""
    cyborg: Path | None = None
    """With --engine cyborg: a clone of cage-challenge/cage-challenge-2."""
    cyborg_python: Path | None = None
    """With --engine cyborg: an interpreter with CybORG's old dependencies."""
    workers: int = 2
    """With --engine cyborg: processes."""


def run(args: list[str]) -> int:
    """Prints the cells, the total and the leaderboard beside them."""
    target = target_of(Path(args[0])) if args else ""
    if target.startswith(GYM):
        return run_hosted(args)
    if target == MettagridTrainConfig.target:
        return run_mettagrid(args)
    options = parse(Options, args, "evaluate")
    at_least("episodes", options.episodes, 2)
    at_least("seed", options.seed, 0)
    at_least("workers", options.workers, 1)
    check_folder("json", options.json)
    if options.engine == "cyborg" and options.cyborg is None:
        raise ConfigError("engine is cyborg without --cyborg; name your clone of cage-challenge/cage-challenge-2")
    make_actor, task, name = _policy(options)
    if options.cyborg:
        check_clone(options.cyborg)
    figures = {"policy": name, "episodes": options.episodes, "engine": options.engine, "greedy": not options.sampled}
    results: dict[str, list[Cell]] = {}
    print(f"{name}, {options.episodes:,} episodes per cell, mean ± 95 %")
    revisions = options.revisions if options.engine == "cavalcade" else ("checkout",)
    for revision in revisions:
        cells: list[Cell] = []
        with waiting(COMPILING if options.engine == "cavalcade" else f"playing in {options.cyborg}"):
            cells += _cells(options, make_actor(), task, revision)
        results[revision] = cells
        _print_cells(revision, cells)
    _print_leaderboard()
    if options.json:
        figures["revisions"] = {r: [c._asdict() for c in cells] for r, cells in results.items()}
        figures["totals"] = {r: dict(zip(("total", "interval"), total(c), strict=True)) for r, c in results.items()}
        options.json.write_text(json.dumps(figures, indent=1))
    return 0


def _cells(options: Options, actor: Actor, task: Cage2Task, revision: str) -> Iterator[Cell]:
    if options.engine == "cavalcade":
        official = {"revision": revision, "green": False}
        return score(actor, task, REDS, HORIZONS, options.episodes, seed=options.seed, **official)
    assert options.cyborg is not None
    return cyborg_score(
        actor, task, options.episodes, options.cyborg, options.cyborg_python, workers=options.workers, seed=options.seed
    )


def _policy(options: Options) -> tuple[Callable[[], Actor], Cage2Task, str]:
    """What to score, what it sees, and its name."""
    known = options.policy in BLUES and not Path(options.policy).exists()
    if options.order and known and options.policy not in _GREEDY:
        raise ConfigError(f"order is {options.order!r} with {options.policy}; only {' and '.join(_GREEDY)} take one")
    if known:
        blue = BLUES[options.policy]
        if options.order:
            types = [CAGE2.names[i] for i in CAGE2.parse(options.order)]
            blue = greedy(types, corrected=options.policy == "greedy-corrected")
        if options.engine == "cyborg" and options.policy not in ("random", "sleep", "react"):
            raise ConfigError(f"{options.policy} reads the true state, which the protocol of CybORG does not show")

        def make() -> Actor:
            rng = np.random.default_rng(options.seed)
            return lambda env: blue(env, rng)

        return make, Cage2Task(), options.policy + (f" in the order {options.order}" if options.order else "")
    if not Path(options.policy).exists():
        raise ConfigError(f"{options.policy!r} is no run, no checkpoint and none of {', '.join(BLUES)}")
    saved = open_policy(Path(options.policy), options.order, options.member)
    searched = isinstance(saved.config, SearchConfig)
    member = 0 if searched else options.member or 0
    name = f"{options.policy} at update {saved.update}, {'sampled' if options.sampled else 'greedy'}"
    if saved.order:
        name += f", {saved.path.stem}" * searched + f", order {saved.order}"
    if saved.policies > 1:
        if options.member is None:
            with waiting(COMPILING):
                member, _ = best_policy(saved)
        name += f", policy {member} of {saved.policies}" + (", the best in validation" * (options.member is None))
    saved.player(member)  # refuses a policy that is not there
    return lambda: saved.player(member, greedy=not options.sampled, seed=options.seed), saved.task, name


def _print_cells(revision: str, cells: list[Cell]) -> None:
    print(f"\nrevision {revision}\n  {'steps':>5}" + "".join(f"{red:>20}" for red in REDS))
    for horizon in HORIZONS:
        row = [c for red in REDS for c in cells if (c.horizon, c.red) == (horizon, red)]
        print(f"  {horizon:>5}" + "".join(f"{c.mean:>12.2f} ± {c.interval:<5.2f}" for c in row))
    mean, interval = total(cells)
    print(f"  total {mean:.2f} ± {interval:.2f}", flush=True)


def _print_leaderboard() -> None:
    heads = "".join(f"{cell:>9}" for cell in ("B30", "M30", "B50", "M50", "B100", "M100"))
    print(f"\nleaderboard of 2022 (revision leaderboard-2022)   total      {heads}")
    for team, method, score_, interval, *cells in LEADERBOARD:
        print(f"  {f'{team}, {method}':<44}{score_:>9.2f} ± {interval:<5.2f}" + "".join(f"{c:>9.2f}" for c in cells))
