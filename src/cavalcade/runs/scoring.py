"""Scores of policies by the official protocol."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cavalcade.config import Cage2Task
from cavalcade.envs.cage2.cyborg import CyborgBatch
from cavalcade.envs.cage2.protocol import HORIZONS, REDS, Actor, Cell, cell, nine_cells


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
    options = {"revision": task.revision, "variant": task.variant, "green": task.green, "extras": task.extras} | given
    dtype = "float32" if "time" in task.extras else "uint8"
    return nine_cells(actor, episodes=episodes, seed=seed, reds=reds, horizons=horizons, dtype=dtype, **options)


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
                extras=task.extras,
                dtype="float32" if "time" in task.extras else "uint8",
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
