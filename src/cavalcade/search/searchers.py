"""Searchers propose which order to train next, given the scores so far and the orders in training.

A proposal depends only on observations, pending orders and the seed, so that a search can be resumed anywhere.
Searchers never wait: orders in training count as pending.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from cavalcade.core.errors import ConfigError, one_of
from cavalcade.search.gp import Posterior, posterior
from cavalcade.workflow.orders import Order

SEARCHERS = ("gp-ucb", "thompson", "exhaustive", "halving", "random", "fixed")
_CONFIDENCE = 0.1  # δ of the schedule of β


class Observation(NamedTuple):
    """Score of one training of an order."""

    order: int  # index of the order
    score: float
    variance: float  # of the evaluation
    rung: int = 0  # for halving: how often its budget was multiplied


class Proposal(NamedTuple):
    """An order to train, and its posterior."""

    order: int
    mean: float = math.nan
    deviation: float = math.nan  # standard deviation
    bound: float = math.nan  # acquisition value
    rung: int = 0


class Searcher(Protocol):
    """Proposes orders."""

    def propose(self, observed: Sequence[Observation], pending: Sequence[Proposal], made: int) -> Proposal | None:
        """The next order, or None if none is left to try; made: proposals so far."""
        ...


def beta_at(step: int, orders: int) -> float:
    """√β_t of GP-UCB for a finite set: 2 ln(|W| π² t² / 6δ) (Srinivas et al. 2010)."""
    return math.sqrt(2 * math.log(orders * math.pi**2 * max(step, 1) ** 2 / (6 * _CONFIDENCE)))


@dataclass(frozen=True)
class GpSearcher:
    """Upper confidence bound or Thompson sampling on the exact posterior over all orders."""

    orders: Sequence[Order]
    kernel: str = "mallows"
    beta: float = 2.0  # 0 for the schedule
    thompson: bool = False
    seed: int = 0
    excluded: frozenset[int] = frozenset()
    resumed: bool = False  # a revisited order resumes its training: only its latest score counts

    def believe(self, observed: Sequence[Observation], pending: Sequence[Proposal], made: int = 0) -> Posterior:
        """The posterior; pending orders reduce its standard deviation but not its mean (Desautels et al. 2014)."""
        observed = latest(observed) if self.resumed else observed
        return posterior(
            self.orders,
            [o.order for o in observed],
            [o.score for o in observed],
            [o.variance for o in observed],
            pending=[p.order for p in pending],
            kernel=self.kernel,
            seed=self.seed * 1_000_003 + made,
        )

    def propose(self, observed: Sequence[Observation], pending: Sequence[Proposal], made: int) -> Proposal | None:
        """The order with the highest bound; ties are broken at random."""
        found = self.believe(observed, pending, made)
        beta = self.beta or beta_at(made + 1, len(self.orders))
        bound = found.draw if self.thompson else found.mean + beta * found.deviation
        refused = self.excluded | {p.order for p in pending}
        allowed = np.array([i not in refused for i in range(len(bound))])
        if not allowed.any():
            return None
        tie = np.random.Generator(np.random.Philox(key=self.seed, counter=made)).random(len(bound))
        best = int(np.lexsort((tie, np.where(allowed, np.round(bound, 9), -np.inf)))[-1])
        if not observed:
            return Proposal(best)  # nothing is believed yet
        return Proposal(best, float(found.mean[best]), float(found.deviation[best]), float(bound[best]))


@dataclass(frozen=True)
class ListSearcher:
    """Proposes the orders of a list in turn."""

    sequence: Sequence[int]

    def propose(self, observed: Sequence[Observation], pending: Sequence[Proposal], made: int) -> Proposal | None:
        return Proposal(self.sequence[made]) if made < len(self.sequence) else None


@dataclass(frozen=True)
class RandomSearcher:
    """Proposes all orders in random sequence, then in another one, and so on."""

    count: int
    seed: int = 0

    def propose(self, observed: Sequence[Observation], pending: Sequence[Proposal], made: int) -> Proposal | None:
        return Proposal(random_sequence(self.count, self.seed, 1 + made // self.count)[made])


@dataclass(frozen=True)
class HalvingSearcher:
    """Asynchronous successive halving (Li et al. 2020): the best third of a rung gets three times the budget."""

    count: int
    seed: int = 0
    factor: int = 3
    rungs: int = 4
    excluded: frozenset[int] = frozenset()

    def propose(self, observed: Sequence[Observation], pending: Sequence[Proposal], made: int) -> Proposal | None:
        """Promotes an order if one qualifies, else begins a new one."""
        began = {(o.order, o.rung) for o in observed} | {(p.order, p.rung) for p in pending}
        for rung in range(self.rungs - 2, -1, -1):
            here = sorted((o for o in observed if o.rung == rung), key=lambda o: -o.score)
            for one in here[: len(here) // self.factor]:
                if (one.order, rung + 1) not in began and one.order not in self.excluded:
                    return Proposal(one.order, rung=rung + 1)
        left = (i for i in random_sequence(self.count, self.seed) if i not in self.excluded)
        fresh = [i for i in left if (i, 0) not in began]
        return Proposal(fresh[0]) if fresh else None


def random_sequence(count: int, seed: int, rounds: int = 1) -> list[int]:
    """All orders in random sequence, `rounds` times."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    return [int(i) for _ in range(rounds) for i in rng.permutation(count)]


def latest(observed: Sequence[Observation]) -> list[Observation]:
    """The latest observation of each order."""
    return list({o.order: o for o in observed}.values())


def make_searcher(
    name: str,
    orders: Sequence[Order],
    *,
    kernel: str = "mallows",
    beta: float = 2.0,
    seed: int = 0,
    given: Sequence[Order] = (),
    rounds: int = 1,
    excluded: frozenset[int] = frozenset(),
    resumed: bool = False,
) -> Searcher:
    """A searcher by name; given: orders of `fixed`; rounds: trainings per order of `exhaustive` and `fixed`."""
    one_of("searcher", name, SEARCHERS)
    index = {order: i for i, order in enumerate(orders)}
    if name in ("gp-ucb", "thompson"):
        return GpSearcher(orders, kernel, beta, name == "thompson", seed, excluded, resumed)
    if name == "halving":
        return HalvingSearcher(len(orders), seed, excluded=excluded)
    if name == "random":
        return RandomSearcher(len(orders), seed)
    if name == "exhaustive":
        return ListSearcher(list(range(len(orders))) * rounds)
    if not given:
        raise ConfigError("searcher is fixed without --orders; name one or more orders")
    return ListSearcher([index[order] for order in given] * rounds)
