"""The official evaluation protocol of CAGE-2: three horizons, three Red agents, the sum of nine mean returns.

Knows nothing of policies: any function from a batch to actions can be evaluated.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.threads import free_threads
from cavalcade.envs.cage2.changes import CHANGED
from cavalcade.envs.cage2.env import Cage2
from cavalcade.envs.cage2.red_choice import Red
from cavalcade.envs.cage2.reward import HORIZONS, RETURN
from cavalcade.envs.cage2.scenario import MIXED
from cavalcade.envs.cage2.scenario import REDS as AGENTS

REDS = ("bline", "meander", "sleep")
CELLS = {f"{red}-{horizon}": (horizon, red) for horizon in HORIZONS for red in REDS}  # by name
_Z = 1.959964  # 95 %

Actor = Callable[[Any], NDArray]


class Cell(NamedTuple):
    """One of the nine cells: mean return with half the width of its 95 % confidence interval."""

    horizon: int
    red: str
    mean: float
    interval: float
    episodes: int
    deviation: float


def episode_returns(actor: Actor, env: Cage2) -> NDArray[np.float64]:
    """Plays one episode in each environment; returns what each counts by the objective of the batch, (N,)."""
    env.reset()
    weighted = np.zeros(env.spec.num_envs)  # in tenths
    with free_threads():
        for _ in range(env.params.horizon):
            env.step(actor(env))
            if env.params.objective != RETURN:
                weighted += np.rint(10 * env.buffers.reward)
    return (env.final_total if env.params.objective == RETURN else weighted) / 10


def cell(horizon: int, red: str, returns: NDArray[np.float64]) -> Cell:
    """Mean, 95 % confidence interval and standard deviation of returns."""
    deviation = float(returns.std(ddof=1)) if len(returns) > 1 else 0.0
    return Cell(horizon, red, float(returns.mean()), _Z * deviation / len(returns) ** 0.5, len(returns), deviation)


def first_index(horizon: int, red: Red, episodes: int) -> int:
    """Index of the first environment of a cell; no two cells have a game in common, but for user-defined Reds."""
    number = AGENTS.index(red) if red in AGENTS else MIXED
    return (horizon * len(AGENTS) + number) * episodes


def nine_cells(
    actor: Actor,
    *,
    revision: str,
    episodes: int,
    seed: int,
    reds: Iterable[Red] = REDS,
    horizons: Iterable[int] = HORIZONS,
    **options: Any,
) -> Iterator[Cell]:
    """Plays the protocol on held-out games; options as for `Cage2`."""
    for horizon in horizons:
        for red in reds:
            first = first_index(horizon, red, episodes)
            common = {"revision": revision, "horizon": horizon, "seed": seed, "first_index": first}
            env = Cage2(episodes, red=red, stream="heldout", **common, **options)
            name = red if isinstance(red, str) else env.episode_kind_names[-1].removesuffix(CHANGED)
            yield cell(horizon, name, episode_returns(actor, env))


def total(cells: Iterable[Cell]) -> tuple[float, float]:
    """The sum of the means, and half the width of its 95 % confidence interval."""
    cells = list(cells)
    return sum(c.mean for c in cells), float(np.sqrt(sum(c.interval**2 for c in cells)))


# The final leaderboard of 2022, 1,000 episodes per cell on revision leaderboard-2022 (README of cage-challenge-2):
# team, method, total, its interval, then B_line and Meander at 30, 50 and 100 steps.
LEADERBOARD = (
    ("CardiffUni", "PPO and greedy decoys", -54.57, 0.43, -3.47, -5.64, -6.41, -8.69, -13.76, -16.60),
    ("Keeping it RL", "ensemble of ensembles", -56.90, 0.59, -3.48, -6.47, -5.85, -10.33, -11.39, -19.38),
    ("Mindrake", "HIPPO, float observations", -57.05, 0.56, -3.53, -6.76, -6.20, -10.13, -12.78, -17.65),
    ("UoA", "belief ensemble", -69.88, 0.88, -3.87, -6.54, -6.74, -12.01, -14.63, -26.09),
    ("Keeping it RL", "plain PPO", -73.98, 0.94, -4.76, -8.03, -8.13, -12.91, -17.19, -22.94),
    ("organisers", "PPO baseline", -95.47, 1.36, -8.75, -7.31, -14.92, -12.04, -30.19, -22.21),
    ("organisers", "React-Restore", -823.89, 1.03, -58.83, -44.29, -93.05, -85.75, -184.34, -192.63),
    ("organisers", "random", -2015.61, 30.93, -154.06, -33.43, -347.10, -171.49, -726.92, -566.41),
    ("organisers", "sleeping Blue", -3112.20, 6.67, -218.65, -39.31, -480.17, -267.60, -1134.03, -972.43),
)
