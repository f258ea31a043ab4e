"""Scores of policies by the official protocol."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.config import Cage2Task, HostConfig
from cavalcade.envs.cage2.cyborg import Cyborg
from cavalcade.envs.cage2.env import Cage2
from cavalcade.envs.cage2.protocol import HORIZONS, REDS, Actor, Cell, cell, episode_returns, nine_cells
from cavalcade.envs.contract import Environment
from cavalcade.runs.policy import SavedPolicy
from cavalcade.vector.hosted import BROKEN

_GAMES = 10  # of CybORG per worker: enough that workers seldom wait for each other


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
    task = saved.task
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


def hosted_returns(actor: Actor, env: Environment, episodes: int, most_steps: int) -> tuple[NDArray, int]:
    """Returns of the first episodes of each environment, and how many did not end within a number of steps.

    Every environment plays equally many, so that short episodes do not count more than long ones. Episodes that broke
    off with a worker do not count at all.
    """
    broken = env.label_names.index(BROKEN) if BROKEN in env.label_names else -1
    n = env.spec.num_envs
    share = -(-episodes // n)
    total, count, left = np.zeros(n), np.zeros(n, np.int64), np.full(n, most_steps)
    returns: list[float] = []
    while ((count < share) & (left > 0)).any():
        buffers = env.step(actor(env))
        counting = (count < share) & (left > 0)
        total += buffers.reward
        left -= counting
        ended = (buffers.terminated | buffers.truncated) & counting
        if env.labels is not None:
            ended &= env.labels != broken
        returns += total[ended].tolist()
        count[ended] += 1
        total[buffers.terminated | buffers.truncated] = 0
        left[ended] = most_steps
    return np.array(returns), int((count < share).sum())


def cyborg_score(
    actor: Actor, task: Cage2Task, episodes: int, checkout: Path, python: Path | None, *, workers: int, seed: int
) -> Iterator[Cell]:
    """The nine cells, played in a checkout of CybORG."""
    host = HostConfig(backend="shared", workers=min(workers, episodes))
    shown = {name: task.shown[name] for name in ("extras", "dtype")}
    for horizon in HORIZONS:
        for red in REDS:
            games = min(episodes, _GAMES * host.workers)
            env = Cyborg(checkout, games, python, host, red=red, horizon=horizon, stream="heldout", seed=seed, **shown)
            try:
                env.reset()
                returns, _ = hosted_returns(actor, env, episodes, horizon)
            finally:
                env.close()
            yield cell(horizon, red, returns[:episodes])
