"""How well searchers find the best of 120 orders: on synthetic objectives, and on stored scores of real trainings.

Simple regret: how far the true value of the order that a method names after T evaluations is below the best. As in a
search, up to q orders train together: results arrive in the order of the proposals, each makes room for the next, and
what has not arrived is pending. Searchers do not know the noise of scores, only the variance of an evaluation where a
table states it. GP-UCB and Thompson sampling name the order with the highest posterior mean among those tried, halving
the same within its top rung; random search and the heuristic of the CAGE-2 workflow-search scripts that with the
highest mean of its own scores.

Halving needs scores of several budgets. On synthetic objectives a score of rung r has its noise divided by √3^r and
costs 3^r of the T evaluations; in stored scores, all of one budget, it cannot search.
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.search.searchers import GpSearcher, HalvingSearcher, Observation, Proposal, Searcher, make_searcher
from cavalcade.workflow.orders import classes, precedences

METHODS = ("gp-ucb", "thompson", "halving", "random", "heuristic")
OBJECTIVES = ("pairwise", "mallows")
CHECKPOINTS = (8, 20, 40)
_FACTOR = HalvingSearcher.factor  # by which halving multiplies the budget
_DEVIATION = 3.0  # of the true values, as in the table that is the yardstick
_ORDERS = CAGE2.orders()
_SIGNS = precedences(_ORDERS)
_DISTANCE = (_SIGNS.shape[1] - _SIGNS @ _SIGNS.T) / 2

Draw = Callable[[Proposal, np.random.Generator], tuple[float, float]]  # a score, and the variance of its evaluation
Table = dict[str, NDArray]  # of each method, (repeats, checkpoints)


def synthetic(kind: str, seed: int) -> NDArray[np.float64]:
    """True values of the 120 orders: linear in precedences, or a draw from a Gaussian process."""
    rng = np.random.default_rng([seed, OBJECTIVES.index(kind)])
    if kind == "pairwise":
        values = _SIGNS @ rng.standard_normal(_SIGNS.shape[1])
    else:
        values = np.linalg.cholesky(np.exp(-_DISTANCE / 4) + 1e-9 * np.eye(120)) @ rng.standard_normal(120)
    return _DEVIATION * (values - values.mean()) / values.std()


class Trainings(NamedTuple):
    """Stored trainings of the 120 orders."""

    scores: list[list[float]]  # of each order's trainings
    errors: list[list[float]]  # standard errors of their evaluations, 0 where not stated

    def draw(self, proposal: Proposal, rng: np.random.Generator) -> tuple[float, float]:
        """The score of one of an order's trainings, drawn at random, and the variance of its evaluation."""
        i = rng.integers(len(self.scores[proposal.order]))
        return self.scores[proposal.order][i], self.errors[proposal.order][i] ** 2

    def truth(self, subtasks: Sequence[str] = CAGE2.names) -> NDArray[np.float64]:
        """The mean of the trainings of each order's class: all orders with these subtasks in the same order."""
        pairs = [k for k, pair in enumerate(CAGE2.pairs()) if all(CAGE2.names[i] in subtasks for i in pair)]
        alike = classes(_ORDERS, pairs)
        pooled: dict[int, list[float]] = {}
        for first, scores in zip(alike, self.scores, strict=True):
            pooled.setdefault(first, []).extend(scores)
        return np.array([np.mean(pooled[first]) for first in alike], np.float64)


def heuristic_choice(tried: Sequence[int], scores: Sequence[float], pending: Sequence[int] = ()) -> int:
    """The next order by the rule of the CAGE-2 workflow-search scripts.

    A tried order has the mean of its first score and deviation 1 / (1 + visits); another a mean weighted by
    exp(−2 d) over those tried and deviation 10 d + 1 for the nearest, d the Kendall distance from 0 to 1. The bound is
    mean + 2 / (1 + visits / 2) · deviation, the first of the best wins. The scripts train one order at a time; here
    pending orders count as visits, and leave the means alone.
    """
    mean, deviation, visits = np.zeros(120), np.full(120, 10.0), np.zeros(120)
    if tried:
        weight = np.exp(-2 * _DISTANCE[:, list(tried)] / 10)
        mean = weight @ np.asarray(scores) / weight.sum(axis=1)
        for order, score in reversed(list(zip(tried, scores, strict=True))):
            mean[order] = score
    if visited := [*tried, *pending]:
        np.add.at(visits, visited, 1)
        deviation = np.where(visits > 0, 1 / (1 + visits), _DISTANCE[:, visited].min(axis=1) + 1)
    return int(np.argmax(mean + 2 / (1 + 0.5 * visits) * deviation))


@dataclass(frozen=True)
class HeuristicSearcher:
    """The rule of the CAGE-2 workflow-search scripts."""

    def propose(self, observed: Sequence[Observation], pending: Sequence[Proposal], made: int) -> Proposal | None:
        """The order with the highest bound."""
        known = [o.order for o in observed], [o.score for o in observed]
        return Proposal(heuristic_choice(*known, [p.order for p in pending]))


def search(searcher: Searcher, draw: Draw, rng: np.random.Generator, budget: int, together: int) -> list[Observation]:
    """The results of a search with up to `together` orders in training, in the order of their proposals."""
    observed: list[Observation] = []
    pending: list[Proposal] = []
    made = used = 0
    while True:
        while used < budget and len(pending) < together:
            proposal = searcher.propose(observed, pending, made)
            if proposal is None or used + _FACTOR**proposal.rung > budget:
                break
            pending.append(proposal)
            made, used = made + 1, used + _FACTOR**proposal.rung
        if not pending:
            return observed
        first = pending.pop(0)
        score, variance = draw(first, rng)
        observed.append(Observation(first.order, score, variance, first.rung))


def named_orders(method: str, draw: Draw, *, seed: int, together: int, checkpoints: Sequence[int]) -> list[int]:
    """The order that a method names after each number of evaluations."""
    searcher = HeuristicSearcher() if method == "heuristic" else make_searcher(method, _ORDERS, seed=seed)

    def found(budget: int) -> list[Observation]:
        return search(searcher, draw, np.random.default_rng([seed, 77]), budget, together)

    if method == "halving":  # what it begins depends on what is left
        return [_named(method, found(budget)) for budget in checkpoints]
    observed = found(max(checkpoints))
    return [_named(method, observed[:count]) for count in checkpoints]


def _named(method: str, observed: Sequence[Observation]) -> int:
    """The order that a method names as the best of those tried; halving: of the top rung with at least two orders."""
    if method == "halving":
        orders = {rung: {o.order for o in observed if o.rung == rung} for rung in sorted({o.rung for o in observed})}
        top = max((rung for rung, tried in orders.items() if len(tried) > 1), default=0)
        observed = [o for o in observed if o.rung == top]
    tried = sorted({o.order for o in observed})
    if method in ("random", "heuristic"):
        return max(tried, key=lambda i: float(np.mean([o.score for o in observed if o.order == i])))
    mean = GpSearcher(_ORDERS).believe(observed, ()).mean
    return max(tried, key=lambda i: mean[i])


def simple_regrets(
    method: str,
    truth: NDArray[np.float64],
    noise: float,
    *,
    seed: int,
    together: int = 8,
    checkpoints: Sequence[int] = CHECKPOINTS,
) -> list[float]:
    """Simple regret after each number of evaluations; noise: standard deviation of a score of rung 0."""

    def draw(proposal: Proposal, rng: np.random.Generator) -> tuple[float, float]:
        return truth[proposal.order] + noise / math.sqrt(_FACTOR**proposal.rung) * rng.standard_normal(), 0.0

    named = named_orders(method, draw, seed=seed, together=together, checkpoints=checkpoints)
    return [float(truth.max() - truth[order]) for order in named]


def _synthetic(objective: str, noise: float, together: int, checkpoints: tuple[int, ...], method: str, seed: int):
    return simple_regrets(
        method, synthetic(objective, seed), noise, seed=seed, together=together, checkpoints=checkpoints
    )


def _stored(trainings: Trainings, together: int, checkpoints: tuple[int, ...], method: str, seed: int):
    return named_orders(method, trainings.draw, seed=seed, together=together, checkpoints=checkpoints)


def _repeat(once: Callable[..., list], methods: Sequence[str], repeats: int, workers: int) -> Table:
    with ProcessPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        found = {method: pool.map(partial(once, method), range(repeats), chunksize=4) for method in methods}
        return {method: np.array(list(rows)) for method, rows in found.items()}


def synthetic_regrets(
    objective: str,
    noise: float,
    methods: Sequence[str],
    repeats: int,
    checkpoints: tuple[int, ...],
    together: int,
    workers: int,
) -> Table:
    """Simple regrets of each method on the same objectives with the same noise."""
    return _repeat(partial(_synthetic, objective, noise, together, checkpoints), methods, repeats, workers)


def stored_choices(
    trainings: Trainings,
    methods: Sequence[str],
    repeats: int,
    checkpoints: tuple[int, ...],
    together: int,
    workers: int,
) -> Table:
    """The orders that each method names in searches on stored scores: `truth.max() − truth[them]` is their regret."""
    return _repeat(partial(_stored, trainings, together, checkpoints), methods, repeats, workers)


def interval(values: NDArray[np.float64]) -> float:
    """Half the width of a 95 % interval of a mean."""
    return 1.96 * float(values.std(ddof=1)) / math.sqrt(len(values))
