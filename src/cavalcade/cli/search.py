"""`cavalcade search`: which order is best, and does it matter?"""

import json
import math
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

from cavalcade.cli.orders import select_reward
from cavalcade.cli.parse import option, parse
from cavalcade.cli.search_merge import MergeOptions, merged, replay
from cavalcade.cli.waiting import COMPILING, waiting
from cavalcade.config import SearchConfig
from cavalcade.errors import ConfigError, RunError, at_least
from cavalcade.plain import as_dict, differences
from cavalcade.report.search import search_report
from cavalcade.runs.directory import RunDirectory, open_search, write_whole
from cavalcade.runs.training import stop_on_signal
from cavalcade.search.analysis import Findings, findings
from cavalcade.search.display import SearchDisplay
from cavalcade.search.domains import TARGETS
from cavalcade.search.engine import Search
from cavalcade.search.verdict import Verdict
from cavalcade.search.words import summary
from cavalcade.statistics import half_interval

SUMMARY = "summary.json"
# Options and values of the CAGE-2 workflow-search scripts that have another name here.
ALIASES = {
    "--n-envs": "--num-envs", "--n-workers": "--num-envs", "--red-agent": "--red", "--gp-beta": "--ucb-beta",
    "--n-eval-episodes": "--score-episodes", "--max-steps": "--horizon", "--checkpoint-dir": "--run",
    "B_lineAgent": "bline", "RedMeanderAgent": "meander", "SleepAgent": "sleep",
}  # fmt: skip


@dataclass(frozen=True)
class Options:
    """Searches for the best order of repair: trains a policy for each order it tries, scores it on fresh games.

    `cavalcade search merge RUN…` joins what was begun with --shard; `cavalcade search replay RUN` makes its decisions
    again.
    """

    target: tyro.conf.Positional[Literal["cage2", "checkpoints", "cyborg"]]
    """CAGE-2, a small gridworld in which the order is known to matter, or CAGE-2 in your own checkout of CybORG."""
    config: SearchConfig = field(default_factory=SearchConfig)
    run: Path | None = None
    """Folder of the run; runs/search-TARGET-TIME if not given."""
    seeds: int = 1
    """Times to repeat the whole search, each in a folder of its own; given again, the command goes on."""
    threads: int = 0
    """CPU threads; 0 measures how many are worth using."""
    quiet: bool = False
    """Show nothing but errors."""


@dataclass(frozen=True)
class ResumeOptions:
    """Goes on with a search from its newest checkpoint, exactly as if it had never stopped."""

    resume: Path
    """Folder of the run."""
    quiet: bool = False
    """Show nothing but errors."""


def run(args: list[str]) -> int:
    """Begins a search or goes on with one."""
    args, notes = select_reward(translate(args))
    if args[:1] == ["merge"]:
        options = parse(MergeOptions, args[1:], "search merge")
        directory, config = merged(options)
        return _search(directory, config, quiet=options.quiet, resume=True)
    if args[:1] == ["replay"]:
        return replay(args[1:])
    if any(arg.split("=")[0] == "--resume" for arg in args):
        resumed = parse(ResumeOptions, args, "search")
        directory = open_search(resumed.resume)
        return _search(directory, directory.config(), quiet=resumed.quiet, resume=True)
    options = parse(Options, args, "search", _defaults(args))
    at_least("threads", options.threads, 0)
    at_least("seeds", options.seeds, 1)
    if options.seeds > 1 and options.config.shard:
        raise ConfigError(
            f"seeds is {options.seeds} with shard {options.config.shard}; give --seed to each share instead"
        )
    config = replace(options.config, target=options.target)
    path = options.run or Path("runs", f"search-{options.target}-{time.strftime('%Y%m%d-%H%M%S')}")
    common: dict[str, Any] = {"quiet": options.quiet, "threads": options.threads}
    if not options.quiet:
        print("\n".join(notes), end="\n" * len(notes))
    if options.seeds == 1:
        return _search(RunDirectory(path, SearchConfig), config, **common)
    for i in range(options.seeds):
        directory = RunDirectory(path / f"seed-{config.seed + i}", SearchConfig)
        here = replace(config, seed=config.seed + i)
        resume = directory.exists()
        if resume and (changed := differences(directory.config(), here)):
            raise RunError(f"{directory} has other settings: {'; '.join(changed)}; choose another --run")
        if (directory.path / SUMMARY).exists():
            continue  # the command was stopped after this one, and given again
        if status := _search(directory, here, resume=resume, **common):
            return status
    if not options.quiet:
        print(_over_seeds(path, [config.seed + i for i in range(options.seeds)]))
    return 0


def translate(args: list[str]) -> list[str]:
    """Arguments with the names that they have here."""
    found = []
    for arg in args:
        flag, sign, value = arg.partition("=")
        found.append(ALIASES.get(flag, flag) + sign + ALIASES.get(value, value) if sign else ALIASES.get(arg, arg))
    return found


def _defaults(args: list[str]) -> Options | None:
    """What suits the small gridworld, or CybORG; CAGE-2 has the general defaults."""
    base = SearchConfig()
    if args[:1] == ["cyborg"]:
        slow = replace(base, target="cyborg", cyborg=option(args, "cyborg") or "", score_episodes=50, n_workflows=10)
        return Options("cyborg", slow)
    if TARGETS[1] not in args:
        return None
    small = replace(
        base,
        task=replace(base.task, horizon=40),
        ppo=replace(base.ppo, update_steps=40, hidden=(32,), learning_rate=0.005),
        n_workflows=24,
    )
    return Options(TARGETS[1], small)  # pyright: ignore[reportArgumentType]


def _search(directory: RunDirectory[SearchConfig], config: SearchConfig, *, quiet: bool, **options: Any) -> int:
    with directory.locked():
        with waiting(COMPILING):
            search = Search(directory, config, **options)
        if not quiet:
            print(f"run {directory}", flush=True)
        display = SearchDisplay(search, quiet)
        with stop_on_signal(search) as received:
            try:
                while not search.done and not search.stopping:
                    for result in search.advance():
                        display.result(result)
                    display.tick()
                search.checkpoint()
            finally:
                display.close()
                search.close()
        if not search.done:
            print(f"stopped at update {search.updates}; go on with: cavalcade search --resume {directory}")
            return 128 + received[0]
        _conclude(search, quiet)
    return 0


def _conclude(search: Search, quiet: bool) -> None:
    """Writes summary and report, and prints what was found."""
    if search.config.shard:
        if not quiet:
            print(f"share {search.config.shard} is done: {len(search.results)} trainings in {search.seconds:.1f} s; "
                  "join all of them with: cavalcade search merge RUN…")  # fmt: skip
        return
    found = findings(search.config, search.subtasks, search.orders, search.results, search.belief())
    facts = {
        "orders_trained": len(
            {r.member.order for r in search.results if r.member.purpose == "search" and r.member.order >= 0}
        ),
        "trainings": len(search.results),
        "episodes": search.used,
        "steps": search.steps,
        "seconds": search.seconds,
        "steps_per_second": search.steps / search.seconds,
        "scoring_share": search.scoring_seconds / search.seconds,
    }
    plain = {"config": as_dict(search.config), **facts, **_plain(found, search)}
    write_whole(search.run.path / SUMMARY, json.dumps(plain, indent=1))
    write_whole(search.run.path / "report.html", search_report(search.run.path))
    if quiet:
        return
    print("\n" + summary(found, search.subtasks, search.orders))
    print(
        f"\n{facts['orders_trained']} orders in {facts['trainings']} trainings, {search.used:,.0f} episodes of search, "
        f"{search.steps:,} steps in {search.seconds:.1f} s: {facts['steps_per_second']:,.0f} steps/s; "
        f"scoring took {facts['scoring_share']:.1%}\nreport {search.run.path / 'report.html'}"
    )


def _plain(found: Findings, search: Search) -> dict[str, Any]:
    def text(order: int) -> str:
        return search.subtasks.text(search.orders[order])

    return {
        "winner": text(found.best) if found.winner else None,
        "best": text(found.best) if found.best >= 0 else None,
        "headline": found.headline,
        "answer": found.answer,
        "verdict": _plain_verdict(found.verdict) if found.verdict else None,
        "notes": found.notes,
        "not_followed": [text(order) for order in found.check.unfollowed],
        "classes": {text(order): text(found.check.classes[order]) for order in found.check.trials},
        "ranking": [{**_finite(r._asdict()), "order": text(r.order)} for r in found.ranking],
        "explained": _finite(found.explained._asdict()) if found.explained else None,
        "effects": [e._asdict() for e in found.effects],
        "groups": found.groups,
        "results": [
            {**_finite(asdict(r)), "order": text(r.member.order) if r.member.order >= 0 else None}
            for r in search.results
        ],
    }


def _plain_verdict(v: Verdict) -> dict[str, Any]:
    d = v.extremes.difference if v.extremes else None
    numbers = {"answer": v.answer, "p": v.p, "level": v.alpha, "margin": v.margin, "needed": v.needed}
    return _finite(numbers | ({"difference": d.estimate, "low": d.low, "high": d.high} if d else {}))


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """Plain data for JSON, which knows no NaN and no infinity."""
    return {
        name: _finite(x) if isinstance(x, dict) else None if isinstance(x, float) and not math.isfinite(x) else x
        for name, x in values.items()
    }


def _over_seeds(path: Path, seeds: list[int]) -> str:
    """What repeated searches agree on."""
    lines = [f"\nover {len(seeds)} searches:"]
    rows = []
    for seed in seeds:
        try:
            rows.append(json.loads((path / f"seed-{seed}" / SUMMARY).read_text()))
        except (OSError, ValueError) as error:
            raise RunError(f"{path / f'seed-{seed}' / SUMMARY} cannot be read ({type(error).__name__})") from None
    for seed, row in zip(seeds, rows, strict=True):
        mean = np.mean(row["groups"]["best order"]) if row["groups"]["best order"] else math.nan
        said = row["verdict"]["answer"] if row["verdict"] else "cannot tell"
        lines.append(f"  seed {seed}: {said}; best {row['best']}, confirmed {mean:.2f}")
    for name in rows[0]["groups"]:
        means = [float(np.mean(row["groups"][name])) for row in rows if row["groups"].get(name)]
        if len(means) > 1:
            lines.append(f"  {name:<14}{np.mean(means):>9.2f} ± {half_interval(means):.2f} (95 %)")
    return "\n".join(lines)
