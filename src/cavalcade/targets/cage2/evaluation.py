"""The official nine-cell score of a trained policy or a baseline."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cavalcade.config.base import Settings, whole
from cavalcade.core.errors import ConfigError, one_of
from cavalcade.envs.cage2.changes import Scenario
from cavalcade.envs.cage2.cyborg import commit_of
from cavalcade.envs.cage2.observe import UNOFFICIAL
from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.envs.cage2.protocol import CELLS, HORIZONS, LEADERBOARD, REDS, Actor, Cell, total
from cavalcade.envs.cage2.record import revision_of
from cavalcade.envs.cage2.scripted import BLUES, greedy
from cavalcade.envs.cage2.task import Cage2Task
from cavalcade.ppo.mlp_policy import MlpPolicy
from cavalcade.targets.base import Progress, Score, Scores, no_progress
from cavalcade.targets.cage2.planning import Planner
from cavalcade.targets.cage2.scoring import best_policy, cyborg_cell, score
from cavalcade.targets.members import choose_member

_GREEDY = ("greedy", "greedy-corrected")


@dataclass(frozen=True)
class Options(Settings):
    """Scores a policy as the challenge did: 30, 50 and 100 steps against B_line, Meander and Sleep.

    Baselines: random, sleep, react, react-restore, greedy, greedy-corrected.
    """

    episodes: int = whole(1000, 2)
    """Episodes per cell."""
    revisions: tuple[Literal["head", "leaderboard-2022"], ...] = ()
    """CybORG revisions to score on, by default both; the 2022 leaderboard was made with leaderboard-2022.
    With --cyborg: the revision that the clone must have, by default that on which the policy was trained."""
    cells: tuple[str, ...] = ()
    """Cells to score, as Red and steps: bline-30, meander-100; by default all nine."""
    sampled: bool = False
    """Sample actions instead of acting greedily."""
    plan: int = whole(0, 0)
    """Continuations per candidate action that the policy plays before it acts, from its belief about the hidden state;
    0 for none. About 40 ms of a core per decision with 1,000."""
    member: int | None = None
    """Index of the policy in a run with several; by default the best one on validation games.
    Of a search: number of a training in search.csv."""
    order: str | None = None
    """Of a search: order whose policy is scored, by name or as types joined with >; by default the best.
    Of a greedy baseline: order of host types."""
    seed: int = whole(1, 0)
    """Seed of the games; they never overlap with training."""
    simulator: Literal["cavalcade", "cyborg"] | None = None
    """Play in our simulator or in your own checkout of CybORG; by default in CybORG if --cyborg is given."""
    cyborg: Path | None = None
    """A clone of cage-challenge/cage-challenge-2 to play in."""
    cyborg_python: Path | None = None
    """With --cyborg: Python interpreter with CybORG's dependencies; by default this one."""
    workers: int = whole(2, 1)
    """With --cyborg: number of worker processes."""

    def __post_init__(self):
        super().__post_init__()
        if self.simulator == "cyborg" and self.cyborg is None:
            raise ConfigError(
                "simulator is cyborg without --cyborg; name your clone of cage-challenge/cage-challenge-2"
            )
        if self.cyborg is None:
            self.refuse_without("--cyborg", "cyborg_python", "workers")
        if self.simulator == "cavalcade" and self.cyborg is not None:
            raise ConfigError(f"simulator is cavalcade with --cyborg {self.cyborg}; leave one out")
        for name in ("sampled", "order", "cyborg"):
            if self.plan and getattr(self, name):
                raise ConfigError(
                    f"plan is {self.plan} with {name}; planning is for greedy policies without an order in "
                    "our simulator, leave one out"
                )
        for name in self.cells:
            one_of("cells", name, CELLS)

    @property
    def chosen_cells(self) -> list[tuple[int, str]]:
        """Horizon and Red of the cells to score, in the order of the protocol."""
        return [pair for name, pair in CELLS.items() if name in self.cells or not self.cells]


def evaluate(policy: MlpPolicy | str, options: Options, progress: Progress = no_progress) -> Scores:
    """Scores a policy, or a baseline by name, on the nine cells, beside the leaderboard of 2022."""
    make_actor, task, name = blue_of(policy, options)
    plain: dict[str, Any] = {
        "policy": name, "episodes": options.episodes, "simulator": "cyborg" if options.cyborg else "cavalcade",
        "greedy": not options.sampled,
    }  # fmt: skip
    simulator, revisions = "cavalcade", options.revisions or ("leaderboard-2022", "head")
    if options.cyborg:
        clone = _clone(options, None if isinstance(policy, str) else task.revision)
        plain["clone"] = clone
        simulator, revisions = f"cyborg at commit {clone['commit'] or 'unknown'}", (clone["revision"],)
    results: dict[str, list[Cell]] = {}
    lines = [f"{name}, {options.episodes:,} episodes per cell, mean ± 95 %, simulator {simulator}"]
    for revision in revisions:
        results[revision] = cells = list(_cells(options, make_actor(), task, revision, progress))
        lines += _cell_lines(revision, cells)
    if len(options.chosen_cells) == len(CELLS):
        lines += _leaderboard_lines()
    plain["revisions"] = {r: [c._asdict() for c in cells] for r, cells in results.items()}
    plain["totals"] = {r: dict(zip(("total", "interval"), total(c), strict=True)) for r, c in results.items()}
    return Scores(tuple(_scores(results, options.episodes)), "\n".join(lines), plain)


def _clone(options: Options, trained_on: str | None) -> dict[str, str]:
    """Path, commit and revision of the clone; raises `ConfigError` if it is not of the revision that is wanted."""
    assert options.cyborg is not None
    commit, revision = commit_of(options.cyborg), revision_of(options.cyborg)
    wanted = options.revisions or ((trained_on,) if trained_on else (revision,))
    if revision not in wanted:
        why = "was asked for" if options.revisions else "is what the policy was trained on"
        raise ConfigError(
            f"{options.cyborg} is of revision {revision} (commit {commit or 'unknown'}); {' or '.join(wanted)} {why}: "
            f"check out the other one (leaderboard-2022: 606813b), or give --revisions {revision}"
        )
    return {"path": str(options.cyborg), "commit": commit, "revision": revision}


def _scores(results: dict[str, list[Cell]], episodes: int) -> Iterator[Score]:
    for revision, cells in results.items():
        yield Score(f"{revision} total", *total(cells), episodes * len(cells))
        for c in cells:
            yield Score(f"{revision} {c.red} {c.horizon}", c.mean, c.interval, episodes)


def _cells(options: Options, actor: Actor, task: Cage2Task, revision: str, progress: Progress) -> Iterator[Cell]:
    official: dict[str, Any] = {"revision": revision, "green": False}
    cells, episodes, seed = options.chosen_cells, options.episodes, options.seed
    for i, (horizon, red) in enumerate(cells):
        if not options.cyborg:
            yield from score(actor, task, [red], [horizon], episodes, seed=seed, **official)
            continue
        news = partial(_told, progress, f"cell {i + 1} of {len(cells)}, {red} {horizon}", episodes)
        there = (options.cyborg, options.cyborg_python)
        workers = options.workers
        yield cyborg_cell(actor, task, red, horizon, episodes, *there, workers=workers, seed=seed, progress=news)


def _told(progress: Progress, where: str, episodes: int, done: int) -> None:
    progress(f"playing in CybORG: {where}, {min(done, episodes)} of {episodes} episodes")


def blue_of(policy: MlpPolicy | str, options: Options) -> tuple[Callable[[], Actor], Cage2Task, str]:
    """A factory of the Blue that a policy or the name of a baseline stands for, the task it observes, and its name."""
    return _baseline(policy, options) if isinstance(policy, str) else _trained(policy, options)


def _baseline(name: str, options: Options) -> tuple[Callable[[], Actor], Cage2Task, str]:
    """A factory of the scripted Blue, the task that it observes, and its name."""
    if name not in BLUES:
        raise ConfigError(
            f"{name!r} is not a run, a checkpoint, a search, a policy file, model:NAME or one of {', '.join(BLUES)}"
        )
    if options.plan:
        raise ConfigError(f"plan is {options.plan} with {name}; only trained policies plan")
    if options.order and name not in _GREEDY:
        raise ConfigError(f"order is {options.order!r} with {name}; only {' and '.join(_GREEDY)} take one")
    blue = BLUES[name]
    if options.order:
        types = [CAGE2.names[i] for i in CAGE2.parse(options.order)]
        blue = greedy(types, corrected=name == "greedy-corrected")
    if options.cyborg and name not in ("random", "sleep", "react"):
        raise ConfigError(f"{name} reads the true state, which the protocol of CybORG does not show")

    def make() -> Actor:
        rng = np.random.default_rng(options.seed)
        return lambda env: blue(env, rng)

    return make, Cage2Task(), name + (f" in the order {options.order}" if options.order else "")


def _trained(policy: MlpPolicy, options: Options) -> tuple[Callable[[], Actor], Cage2Task, str]:
    """A factory of the policy's runner, the task that it observes, and its name."""
    task = task_of(policy)
    member, name = chosen(policy, options.member, options.sampled)
    if unofficial := [extra for extra in task.extras if extra in UNOFFICIAL]:
        name += f", observes {' and '.join(unofficial)}: not an official score"
    if options.plan:
        name += f", with {options.plan:,} continuations per action"
        return lambda: Planner(policy[member], options.plan, seed=options.seed), task, name
    return lambda: policy.runner(member, greedy=not options.sampled, seed=options.seed), task, name


def task_of(policy: Any) -> Cage2Task:
    """The task that a policy was trained on; raises `ConfigError` if it is not CAGE-2."""
    task = getattr(policy.config, "task", None)
    if not isinstance(task, Cage2Task):
        raise ConfigError(f"{policy.path} was trained on {policy.config.target}, not on CAGE-2")
    return task


def chosen(policy: MlpPolicy, member: int | None, sampled: bool) -> tuple[int, str]:
    """Index of the policy that plays, by default the best on validation games, and its description."""
    name = f"{policy.label} at update {policy.update}, {'sampled' if sampled else 'greedy'}"
    if differences := getattr(policy.config, "changes", Scenario()).differences:
        name += f", trained on games that are not the challenge ({', '.join(differences)})"
    if policy.order:
        name += (f", {policy.path.stem}" if policy.path.is_file() else "") + f", order {policy.order}"
    asked = None if policy.path.is_file() else member  # of a search, the number of a training
    index, which = choose_member(policy, asked, lambda found: best_policy(found)[0])
    name += f", {which}" if which else ""
    return index, name


def _cell_lines(revision: str, cells: list[Cell]) -> list[str]:
    reds = [red for red in REDS if any(c.red == red for c in cells)]
    lines = [f"\nrevision {revision}", f"  {'steps':>5}" + "".join(f"{red:>20}" for red in reds)]
    for horizon in HORIZONS:
        row = {c.red: f"{c.mean:>12.2f} ± {c.interval:<5.2f}" for c in cells if c.horizon == horizon}
        if row:
            lines.append((f"  {horizon:>5}" + "".join(row.get(red, " " * 20) for red in reds)).rstrip())
    mean, interval = total(cells)
    of = "" if len(cells) == len(CELLS) else f" of {len(cells)} {'cell' if len(cells) == 1 else 'cells'}"
    return [*lines, f"  total{of} {mean:.2f} ± {interval:.2f}"]


def _leaderboard_lines() -> list[str]:
    heads = "".join(f"{cell:>9}" for cell in ("B30", "M30", "B50", "M50", "B100", "M100"))
    lines = [f"\nleaderboard of 2022 (revision leaderboard-2022)   total      {heads}"]
    for team, method, score_, interval, *cells in LEADERBOARD:
        text = f"  {f'{team}, {method}':<44}{score_:>9.2f} ± {interval:<5.2f}"
        lines.append(text + "".join(f"{c:>9.2f}" for c in cells))
    return lines
