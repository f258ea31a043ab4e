"""A payoff table: every Blue against every Red, mean returns on held-out games with 95 % intervals."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cavalcade.config.base import Settings, whole
from cavalcade.core.errors import ConfigError
from cavalcade.envs.cage2.protocol import REDS, Cell
from cavalcade.envs.cage2.red_choice import Red, red_codes
from cavalcade.ppo.mlp_policy import MlpPolicy
from cavalcade.targets.base import Score, Scores
from cavalcade.targets.cage2 import evaluation
from cavalcade.targets.cage2.scoring import score

_WIDTH = 18  # of a column


@dataclass(frozen=True)
class Options(Settings):
    """Plays every Blue against every Red on held-out games; prints mean returns of Blue with 95 % intervals.

    A Blue is a run, a checkpoint, a search, or a baseline: random, sleep, react, react-restore, greedy,
    greedy-corrected.
    """

    reds: tuple[str, ...] = REDS
    """Reds: bline, meander, sleep, mixed, or module:function for a Red of your own (docs/own-red.md)."""
    steps: int = whole(100, 1)
    """Steps per episode."""
    episodes: int = whole(1000, 2)
    """Episodes per cell."""
    revision: Literal["head", "leaderboard-2022"] = "head"
    """Revision of CybORG: the newest, or that of the 2022 leaderboard."""
    sampled: bool = False
    """Sample actions instead of acting greedily."""
    seed: int = whole(1, 0)
    """Seed of the games; they never overlap with training. All Blues meet a Red in the same games."""


def payoff(
    blues: Sequence[MlpPolicy | str],
    options: Options,
    reds: Sequence[Red] = (),
    progress: Callable[[int, int], Any] = lambda done, cells: None,
) -> Scores:
    """Plays the table; `reds` may have functions and replaces those of the options.

    Calls `progress` with the number of cells that are done and that of all.
    """
    reds = reds or options.reds
    if not blues or not reds:
        raise ConfigError(f"{len(blues)} Blues and {len(reds)} Reds; name at least one of each")
    chosen = evaluation.Options(episodes=options.episodes, sampled=options.sampled, seed=options.seed)
    found = [evaluation.blue_of(blue, chosen) for blue in blues]
    for red in reds:  # fails now rather than in the middle of the games
        red_codes(red, 1)
    rows: dict[str, list[Cell]] = {}
    for i, (make_actor, task, name) in enumerate(found):
        label = name if name not in rows else f"{name} ({i + 1})"
        rows[label] = []
        for j, red in enumerate(reds):
            progress(i * len(reds) + j, len(found) * len(reds))
            official: dict[str, Any] = {"revision": options.revision, "green": False}
            rows[label] += score(
                make_actor(), task, [red], [options.steps], options.episodes, seed=options.seed, **official
            )
    cells = [{"blue": blue, **cell._asdict()} for blue, row in rows.items() for cell in row]
    settings = ("steps", "episodes", "revision", "sampled", "seed")
    plain = {name: getattr(options, name) for name in settings} | {"cells": cells}
    scores = [
        Score(f"{blue} against {cell.red}", cell.mean, cell.interval, cell.episodes)
        for blue, row in rows.items()
        for cell in row
    ]
    return Scores(tuple(scores), "\n".join(_lines(rows, options)), plain)


def _lines(rows: dict[str, list[Cell]], options: Options) -> list[str]:
    """The table: a row per Blue, a column per Red, and the worst of them for each Blue."""
    reds = [cell.red for cell in next(iter(rows.values()))]
    first, wide = max(4, *map(len, rows)), [max(_WIDTH, len(red) + 2) for red in reds]
    title = f"mean return of Blue ± 95 %, {options.episodes:,} episodes of {options.steps} steps per cell, revision "
    heads = "".join(f"{red:>{n}}" for red, n in zip(reds, wide, strict=True))
    lines = [title + options.revision, "", f"{'Blue':<{first}}{heads}  worst Red"]
    for blue, row in rows.items():
        texts = (f"{cell.mean:.2f} ± {cell.interval:.2f}" for cell in row)
        worst = min(row, key=lambda cell: cell.mean).red
        cells = "".join(f"{text:>{n}}" for text, n in zip(texts, wide, strict=True))
        lines.append(f"{blue:<{first}}{cells}  {worst}")
    return lines
