"""Scores of policies by the official protocol."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.config import Cage2Task
from cavalcade.envs.cage2.cyborg import CyborgBatch
from cavalcade.envs.cage2.env import Cage2
from cavalcade.envs.cage2.protocol import HORIZONS, REDS, Actor, Cell, cell, episode_returns, nine_cells
from cavalcade.runs.policy import SavedPolicy


def score(
    actor: Actor,
    task: Cage2Task,
    reds: Iterable[str],
    horizons: Iterable[int],
    episodes: int,
    *,
    seed: int,
    **given: Any,
) -> Iterator[Cell]:
    """Cells of the protocol for an actor that sees what `task` shows; options given go before those of the task."""
    return nine_cells(actor, episodes=episodes, seed=seed, reds=reds, horizons=horizons, **task.shown | given)


def best_policy(saved: SavedPolicy, episodes: int = 1000) -> tuple[int, NDArray]:
    """The policy of a run with the best mean return, and the returns of all, on games apart from training and scoring.

    They play the run's own task, all side by side.
    """
    task = saved.config.task
    env = Cage2(
        saved.policies * episodes,
        red=task.red,
        stream="evaluate",
        seed=[0] * saved.policies,
        horizon=task.horizon,
        **task.shown,
    )
    means = episode_returns(saved.player(), env).reshape(saved.policies, episodes).mean(axis=1)
    return int(means.argmax()), means


def cyborg_score(
    actor: Actor, task: Cage2Task, episodes: int, checkout: Path, python: Path | None, *, workers: int, seed: int
) -> Iterator[Cell]:
    """The nine cells, played in a checkout of CybORG."""
    workers = min(workers, episodes)
    for horizon in HORIZONS:
        for red in REDS:
            batch = CyborgBatch(
                checkout,
                workers,
                python,
                horizon=horizon,
                **{name: task.shown[name] for name in ("extras", "dtype")},
            )
            try:
                returns: list[float] = []
                while len(returns) < episodes:
                    batch.begin(red, None if returns else seed)
                    for _ in range(horizon):
                        batch.step(actor(batch))
                    returns += batch.returns.tolist()
            finally:
                batch.close()
            yield cell(horizon, red, np.array(returns[:episodes]))
