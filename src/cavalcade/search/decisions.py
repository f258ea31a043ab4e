"""Decisions of a search as a function of what was known, so that they can be logged and made again from the log.

Orders may finish in another sequence, e.g. with Ray, and a searcher then decides differently. The log records for each
decision the results known, in sequence of arrival, and the orders still in training.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cavalcade.core.errors import RunError
from cavalcade.core.files import complete_lines, plain_json
from cavalcade.runs.files import DECISIONS
from cavalcade.search.analysis import comparable
from cavalcade.search.config import SearchConfig
from cavalcade.search.domains import given_orders
from cavalcade.search.gp import Posterior
from cavalcade.search.members import CONFIRM, ORDER, SEARCHING, Result
from cavalcade.search.searchers import GpSearcher, Observation, Proposal, Searcher, make_searcher
from cavalcade.workflow.orders import Order


class Decision(NamedTuple):
    """A proposed order, and everything that the choice depended on."""

    number: int  # number of the member that trains it
    order: int
    rung: int
    made: int  # number of decisions before
    known: list[int]  # members whose results were known, in sequence of arrival
    pending: list[list[int]]  # order and rung of each member in training

    def row(self) -> str:
        """Row of the log, as JSON."""
        return json.dumps(self._asdict())


def searched(results: Sequence[Result]) -> list[Result]:
    """Trainings of orders in the search itself."""
    return [r for r in results if r.member.purpose == SEARCHING and r.member.kind == ORDER]


def resumes(config: SearchConfig) -> bool:
    """Whether a revisited order resumes its training, so that its older scores are outdated."""
    return config.warm_start != "none" and not config.evaluate_only


def observations(config: SearchConfig, results: Sequence[Result]) -> list[Observation]:
    """Scores of trainings as observations of the Gaussian process; gated if configured."""
    return [
        Observation(r.member.order, r.score, r.error**2, r.member.rung) for r in results if r.passed or not config.gate
    ]


def searcher_for(config: SearchConfig, orders: Sequence[Order], results: Sequence[Result]) -> Searcher:
    """The searcher; it excludes orders that failed the gate, which it would otherwise propose forever."""
    c = config
    failed = frozenset(r.member.order for r in results if c.gate and not r.passed)
    return make_searcher(
        c.searcher, orders, kernel=c.kernel, beta=c.ucb_beta, seed=c.seed, given=given_orders(c),
        rounds=c.rounds, excluded=failed, resumed=resumes(c),
    )  # fmt: skip


def propose(
    config: SearchConfig, orders: Sequence[Order], results: Sequence[Result], pending: Sequence[Proposal], made: int
) -> Proposal | None:
    """The next order, or None."""
    return searcher_for(config, orders, results).propose(observations(config, searched(results)), pending, made)


def belief(config: SearchConfig, orders: Sequence[Order], results: Sequence[Result]) -> Posterior:
    """Posterior over all orders, confirmation included."""
    searcher = GpSearcher(orders, config.kernel, seed=config.seed, resumed=resumes(config))
    return searcher.believe(observations(config, comparable(config, results, (SEARCHING, CONFIRM))), ())


def to_confirm(ranked: Sequence[int], rivals: int) -> list[int]:
    """The best order and its rivals, spread from the second best to the worst; ranked: best first."""
    best, *others = ranked
    places = np.unique(np.linspace(0, len(others) - 1, min(rivals, len(others))).round().astype(int))
    return [best, *(others[i] for i in places)]


def again(
    config: SearchConfig, orders: Sequence[Order], results: Sequence[Result], decisions: Sequence[Decision]
) -> list[Proposal | None]:
    """Makes the same decisions again."""
    by_number = {r.member.number: r for r in results}
    found = []
    for d in decisions:
        known = [by_number[number] for number in d.known]
        found.append(propose(config, orders, known, [Proposal(order, rung=rung) for order, rung in d.pending], d.made))
    return found


def read(path: Path, end: float = float("inf")) -> list[Decision]:
    """The decisions in the log of a search, up to an offset."""
    try:
        return [Decision(**plain_json(line)) for line in complete_lines(path / DECISIONS, end)]
    except (OSError, ValueError, TypeError) as error:
        raise RunError(f"{path / DECISIONS} cannot be read ({type(error).__name__}); restore it") from None
