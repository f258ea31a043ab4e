"""Scores by the official protocol."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from cavalcade.config.hosting import WorkerConfig
from cavalcade.envs.cage2.cyborg import Cyborg
from cavalcade.envs.cage2.env import Cage2
from cavalcade.envs.cage2.protocol import Actor, Cell, cell, episode_returns, first_index, nine_cells
from cavalcade.envs.cage2.red_choice import Red
from cavalcade.envs.cage2.task import Cage2Task
from cavalcade.ppo.mlp_policy import MlpPolicy
from cavalcade.targets.returns import hosted_returns

_GAMES = 10  # per CybORG worker: enough that workers seldom wait for each other


def score(
    actor: Actor,
    task: Cage2Task,
    reds: Iterable[Red],
    horizons: Iterable[int],
    episodes: int,
    *,
    seed: int,
    **given: Any,
) -> Iterator[Cell]:
    """Scores an actor on cells of the protocol; it observes what `task` shows.

    Options given as keywords take precedence over those of the task.
    """
    return nine_cells(actor, episodes=episodes, seed=seed, reds=reds, horizons=horizons, **task.shown | given)


def best_policy(saved: MlpPolicy, episodes: int = 1000) -> tuple[int, NDArray]:
    """Index of the policy that does best by the objective of its training, and the means of all, (P,).

    All policies play the run's own task on validation games, which neither training nor scoring uses.
    """
    task: Cage2Task = saved.config.task
    env = Cage2(
        saved.policies * episodes,
        red=task.red,
        stream="evaluate",
        seed=[0] * saved.policies,
        horizon=task.horizon,
        scenario=getattr(saved.config, "changes", None),
        objective=getattr(saved.config, "objective", "return"),
        **task.shown,
    )
    means = episode_returns(saved.runner(), env).reshape(saved.policies, episodes).mean(axis=1)
    return int(means.argmax()), means


def cyborg_cell(
    actor: Actor,
    task: Cage2Task,
    red: str,
    horizon: int,
    episodes: int,
    checkout: Path,
    python: Path | None,
    *,
    workers: int,
    seed: int,
    progress: Callable[[int], None] = lambda done: None,
) -> Cell:
    """Scores an actor on a cell in a checkout of CybORG; progress is called with the episodes done."""
    host = WorkerConfig(backend="shared", workers=min(workers, episodes))
    shown = {name: task.shown[name] for name in ("extras", "dtype")}
    games = min(episodes, _GAMES * host.workers)
    which: dict[str, Any] = {"stream": "heldout", "seed": seed, "first_index": first_index(horizon, red, episodes)}
    env = Cyborg(checkout, games, python, host, red=red, horizon=horizon, **which, **shown)
    try:
        env.reset()
        returns, _ = hosted_returns(actor, env, episodes, horizon, progress)
    finally:
        env.close()
    return cell(horizon, red, returns[:episodes])
