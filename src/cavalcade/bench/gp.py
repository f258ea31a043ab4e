"""How well searchers find the best of 120 orders: on synthetic objectives, and on stored scores of real trainings.

Simple regret: how far the true value of the order that a searcher would name after T evaluations is below the best. The
searchers name the order with the highest posterior mean among those tried; random search and the heuristic of the
CAGE-2 workflow-search scripts that with the highest mean of its own scores.
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray

from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.search.searchers import GpSearcher, Observation, random_sequence
from cavalcade.workflow.orders import precedences

METHODS = ("gp-ucb", "thompson", "random", "heuristic")
OBJECTIVES = ("pairwise", "mallows")
_DEVIATION = 3.0  # of the true values, as in the table that is the yardstick
_ORDERS = CAGE2.orders()
_SIGNS = precedences(_ORDERS)
_DISTANCE = (_SIGNS.shape[1] - _SIGNS @ _SIGNS.T) / 2


def synthetic(kind: str, seed: int) -> NDArray[np.float64]:
    """True values of the 120 orders: linear in precedences, or a draw from a Gaussian process."""
    rng = np.random.default_rng([seed, OBJECTIVES.index(kind)])
    if kind == "pairwise":
        values = _SIGNS @ rng.standard_normal(_SIGNS.shape[1])
    else:
        values = np.linalg.cholesky(np.exp(-_DISTANCE / 4) + 1e-9 * np.eye(120)) @ rng.standard_normal(120)
    return _DEVIATION * (values - values.mean()) / values.std()


def heuristic_choice(tried: Sequence[int], scores: Sequence[float]) -> int:
    """The next order by the rule of the CAGE-2 workflow-search scripts.

    A tried order has the mean of its first score and deviation 1 / (1 + visits); another a mean weighted by
    exp(−2 d) over those tried and deviation 10 d + 1 for the nearest, d the Kendall distance from 0 to 1. The bound is
    mean + 2 / (1 + visits / 2) · deviation, the first of the best wins.
    """
    mean, deviation, visits = np.zeros(120), np.full(120, 10.0), np.zeros(120)
    if tried:
        near = _DISTANCE[:, list(tried)] / 10
        weight = np.exp(-2 * near)
        mean = weight @ np.asarray(scores) / weight.sum(axis=1)
        deviation = 10 * near.min(axis=1) + 1
        first: dict[int, float] = {}
        for order, score in zip(tried, scores, strict=True):
            first.setdefault(order, score)
            visits[order] += 1
        for order, score in first.items():
            mean[order], deviation[order] = score, 1 / (1 + visits[order])
    return int(np.argmax(mean + 2 / (1 + 0.5 * visits) * deviation))


def simple_regrets(
    method: str,
    truth: NDArray[np.float64],
    noise: float | Callable[[int, np.random.Generator], float],
    *,
    seed: int,
    checkpoints: Sequence[int] = (8, 20, 40),
) -> list[float]:
    """Simple regret after numbers of evaluations; noise: its deviation, or what draws a score of an order."""
    rng = np.random.default_rng([seed, 77])
    searcher = GpSearcher(_ORDERS, thompson=method == "thompson", seed=seed)
    sequence = random_sequence(120, seed)
    observed: list[Observation] = []
    regrets = []
    for t in range(max(checkpoints)):
        if method == "random":
            order = sequence[t % 120]
        elif method == "heuristic":
            order = heuristic_choice([o.order for o in observed], [o.score for o in observed])
        else:
            proposal = searcher.propose(observed, (), t)
            assert proposal is not None
            order = proposal.order
        if isinstance(noise, float | int):
            score, known = float(truth[order]) + noise * rng.standard_normal(), noise**2
        else:
            score, known = noise(order, rng), 0.0
        observed.append(Observation(order, score, known))
        if t + 1 in checkpoints:
            regrets.append(float(truth.max() - truth[_named(method, searcher, observed)]))
    return regrets


def _named(method: str, searcher: GpSearcher, observed: list[Observation]) -> int:
    """The order that a method would name as the best."""
    tried = sorted({o.order for o in observed})
    if method in ("random", "heuristic"):
        return max(tried, key=lambda i: float(np.mean([o.score for o in observed if o.order == i])))
    mean = searcher.believe(observed, ()).mean
    return max(tried, key=lambda i: mean[i])


def _one(task: tuple[str, str, float, int, tuple[int, ...]]) -> list[float]:
    method, objective, noise, seed, checkpoints = task
    torch.set_num_threads(1)
    return simple_regrets(method, synthetic(objective, seed), noise, seed=seed, checkpoints=checkpoints)


def synthetic_table(
    objective: str, noise: float, repeats: int, methods: Sequence[str], checkpoints: tuple[int, ...], workers: int
) -> dict[str, NDArray[np.float64]]:
    """Simple regrets (repeats, checkpoints) of each method on the same objectives with the same noise."""
    found = {}
    with ProcessPoolExecutor(workers) as pool:
        for method in methods:
            tasks = [(method, objective, noise, seed, checkpoints) for seed in range(repeats)]
            found[method] = np.array(list(pool.map(_one, tasks, chunksize=4)))
    return found


def _replayed(task: tuple[str, list[list[float]], int, tuple[int, ...]]) -> list[float]:
    method, scores, seed, checkpoints = task
    torch.set_num_threads(1)
    truth = np.array([np.mean(s) for s in scores], np.float64)

    def draw(order: int, rng: np.random.Generator) -> float:
        return float(rng.choice(scores[order]))

    return simple_regrets(method, truth, draw, seed=seed, checkpoints=checkpoints)


def replayed_table(
    scores: list[list[float]], repeats: int, methods: Sequence[str], checkpoints: tuple[int, ...], workers: int
) -> dict[str, NDArray[np.float64]]:
    """The same on stored scores: an evaluation draws one of an order's trainings, its truth is their mean."""
    found = {}
    with ProcessPoolExecutor(workers) as pool:
        for method in methods:
            tasks = [(method, scores, seed, checkpoints) for seed in range(repeats)]
            found[method] = np.array(list(pool.map(_replayed, tasks, chunksize=4)))
    return found


def interval(values: NDArray[np.float64]) -> float:
    """Half the width of a 95 % interval of a mean."""
    return 1.96 * float(values.std(ddof=1)) / math.sqrt(len(values))
