"""The official nine-cell score of a trained policy or a baseline."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cavalcade.config.base import Settings, whole
from cavalcade.core.errors import ConfigError
from cavalcade.envs.cage2.changes import Scenario
from cavalcade.envs.cage2.cyborg import check_clone
from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.envs.cage2.protocol import HORIZONS, LEADERBOARD, REDS, Actor, Cell, total
from cavalcade.envs.cage2.scripted import BLUES, greedy
from cavalcade.envs.cage2.task import Cage2Task
from cavalcade.ppo.mlp_policy import MlpPolicy
from cavalcade.targets.base import Score, Scores
from cavalcade.targets.cage2.scoring import best_policy, cyborg_score, score

_GREEDY = ("greedy", "greedy-corrected")


@dataclass(frozen=True)
class Options(Settings):
    """Scores a policy as the challenge did: 30, 50 and 100 steps against B_line, Meander and Sleep.

    Baselines: random, sleep, react, react-restore, greedy, greedy-corrected.
    """

    episodes: int = whole(1000, 2)
    """Episodes per cell."""
    revisions: tuple[Literal["head", "leaderboard-2022"], ...] = ("leaderboard-2022", "head")
    """CybORG revisions to score on; the 2022 leaderboard was made with leaderboard-2022."""
    sampled: bool = False
    """Sample actions instead of acting greedily."""
    member: int | None = None
    """Index of the policy in a run with several; by default the best one on validation games.
    Of a search: number of a training in search.csv."""
    order: str | None = None
    """Of a search: order whose policy is scored, by name or as types joined with >; by default the best.
    Of a greedy baseline: order of host types."""
    seed: int = whole(1, 0)
    """Seed of the games; they never overlap with training."""
    simulator: Literal["cavalcade", "cyborg"] = "cavalcade"
    """Play in our simulator or in your own checkout of CybORG."""
    cyborg: Path | None = None
    """With --simulator cyborg: a clone of cage-challenge/cage-challenge-2."""
    cyborg_python: Path | None = None
    """With --simulator cyborg: Python interpreter with CybORG's dependencies; by default this one."""
    workers: int = whole(2, 1)
    """With --simulator cyborg: number of worker processes."""

    def __post_init__(self):
        super().__post_init__()
        if self.simulator == "cyborg" and self.cyborg is None:
            raise ConfigError(
                "simulator is cyborg without --cyborg; name your clone of cage-challenge/cage-challenge-2"
            )


def evaluate(policy: MlpPolicy | str, options: Options) -> Scores:
    """Scores a policy, or a baseline by name, on the nine cells, beside the leaderboard of 2022."""
    make_actor, task, name = blue_of(policy, options)
    if options.cyborg:
        check_clone(options.cyborg)
    plain: dict[str, Any] = {
        "policy": name, "episodes": options.episodes, "simulator": options.simulator, "greedy": not options.sampled
    }  # fmt: skip
    results: dict[str, list[Cell]] = {}
    lines = [f"{name}, {options.episodes:,} episodes per cell, mean ± 95 %"]
    revisions = options.revisions if options.simulator == "cavalcade" else ("checkout",)
    for revision in revisions:
        results[revision] = cells = list(_cells(options, make_actor(), task, revision))
        lines += _cell_lines(revision, cells)
    lines += _leaderboard_lines()
    plain["revisions"] = {r: [c._asdict() for c in cells] for r, cells in results.items()}
    plain["totals"] = {r: dict(zip(("total", "interval"), total(c), strict=True)) for r, c in results.items()}
    return Scores(tuple(_scores(results, options.episodes)), "\n".join(lines), plain)


def _scores(results: dict[str, list[Cell]], episodes: int) -> Iterator[Score]:
    for revision, cells in results.items():
        yield Score(f"{revision} total", *total(cells), episodes * len(cells))
        for c in cells:
            yield Score(f"{revision} {c.red} {c.horizon}", c.mean, c.interval, episodes)


def _cells(options: Options, actor: Actor, task: Cage2Task, revision: str) -> Iterator[Cell]:
    if options.simulator == "cavalcade":
        official = {"revision": revision, "green": False}
        return score(actor, task, REDS, HORIZONS, options.episodes, seed=options.seed, **official)
    assert options.cyborg is not None
    return cyborg_score(
        actor, task, options.episodes, options.cyborg, options.cyborg_python, workers=options.workers, seed=options.seed
    )


def blue_of(policy: MlpPolicy | str, options: Options) -> tuple[Callable[[], Actor], Cage2Task, str]:
    """A factory of the Blue that a policy or the name of a baseline stands for, the task it observes, and its name."""
    return _baseline(policy, options) if isinstance(policy, str) else _trained(policy, options)


def _baseline(name: str, options: Options) -> tuple[Callable[[], Actor], Cage2Task, str]:
    """A factory of the scripted Blue, the task that it observes, and its name."""
    if name not in BLUES:
        raise ConfigError(f"{name!r} is not a run, a checkpoint or one of {', '.join(BLUES)}")
    if options.order and name not in _GREEDY:
        raise ConfigError(f"order is {options.order!r} with {name}; only {' and '.join(_GREEDY)} take one")
    blue = BLUES[name]
    if options.order:
        types = [CAGE2.names[i] for i in CAGE2.parse(options.order)]
        blue = greedy(types, corrected=name == "greedy-corrected")
    if options.simulator == "cyborg" and name not in ("random", "sleep", "react"):
        raise ConfigError(f"{name} reads the true state, which the protocol of CybORG does not show")

    def make() -> Actor:
        rng = np.random.default_rng(options.seed)
        return lambda env: blue(env, rng)

    return make, Cage2Task(), name + (f" in the order {options.order}" if options.order else "")


def _trained(policy: MlpPolicy, options: Options) -> tuple[Callable[[], Actor], Cage2Task, str]:
    """A factory of the policy's runner, the task that it observes, and its name."""
    task = getattr(policy.config, "task", None)
    if not isinstance(task, Cage2Task):
        raise ConfigError(f"{policy.path} was trained on {policy.config.target}, not on CAGE-2")
    name = f"{policy.label} at update {policy.update}, {'sampled' if options.sampled else 'greedy'}"
    if differences := getattr(policy.config, "changes", Scenario()).differences:
        name += f", trained on games that are not the challenge ({', '.join(differences)})"
    if policy.order:
        name += (f", {policy.path.stem}" if policy.path.is_file() else "") + f", order {policy.order}"
    member = 0
    if policy.policies > 1:
        member = best_policy(policy)[0] if options.member is None else options.member
        name += f", policy {member} of {policy.policies}" + ", the best in validation" * (options.member is None)
    elif options.member and not policy.path.is_file():
        policy.runner(options.member)  # raises if there is no such policy
    policy.runner(member)
    return lambda: policy.runner(member, greedy=not options.sampled, seed=options.seed), task, name


def _cell_lines(revision: str, cells: list[Cell]) -> list[str]:
    lines = [f"\nrevision {revision}", f"  {'steps':>5}" + "".join(f"{red:>20}" for red in REDS)]
    for horizon in HORIZONS:
        row = [c for red in REDS for c in cells if (c.horizon, c.red) == (horizon, red)]
        lines.append(f"  {horizon:>5}" + "".join(f"{c.mean:>12.2f} ± {c.interval:<5.2f}" for c in row))
    mean, interval = total(cells)
    return [*lines, f"  total {mean:.2f} ± {interval:.2f}"]


def _leaderboard_lines() -> list[str]:
    heads = "".join(f"{cell:>9}" for cell in ("B30", "M30", "B50", "M50", "B100", "M100"))
    lines = [f"\nleaderboard of 2022 (revision leaderboard-2022)   total      {heads}"]
    for team, method, score_, interval, *cells in LEADERBOARD:
        text = f"  {f'{team}, {method}':<44}{score_:>9.2f} ± {interval:<5.2f}"
        lines.append(text + "".join(f"{c:>9.2f}" for c in cells))
    return lines
