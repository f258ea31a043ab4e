"""Decisions of a search as a function of what was known: so they can be logged, and made again from the log.

Where orders finish in another sequence, as they may with Ray, a searcher decides otherwise. The log says of each
decision which results were known, in the sequence they came in, and what was still in training.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cavalcade.config import SearchConfig
from cavalcade.search.domains import given_orders
from cavalcade.search.members import ORDER, Result
from cavalcade.search.members import SEARCH as SEARCHING
from cavalcade.search.searchers import Observation, Proposal, Searcher, make_searcher
from cavalcade.workflow.orders import Order

DECISIONS = "decisions.jsonl"


class Decision(NamedTuple):
    """An order that was chosen, and all that the choice came from."""

    number: int  # of the member that trains it
    order: int
    rung: int
    made: int  # decisions before
    known: list[int]  # members whose results were known, in the sequence they came in
    pending: list[list[int]]  # order and rung of each member in training

    def row(self) -> str:
        """As a row of the log."""
        return json.dumps(self._asdict())


def searched(results: Sequence[Result]) -> list[Result]:
    """Trainings of orders in the search itself."""
    return [r for r in results if r.member.purpose == SEARCHING and r.member.kind == ORDER]


def resumes(config: SearchConfig) -> bool:
    """Whether a revisited order goes on training, so that its older scores say less."""
    return config.warm_start != "none" and not config.evaluate_only


def observations(config: SearchConfig, results: Sequence[Result]) -> list[Observation]:
    """Scores of trainings as a Gaussian process takes them, gated if so configured."""
    return [
        Observation(r.member.order, r.score, r.error**2, r.member.rung) for r in results if r.passed or not config.gate
    ]


def searcher_for(config: SearchConfig, orders: Sequence[Order], results: Sequence[Result]) -> Searcher:
    """The searcher; orders that failed the gate are set aside, so that it does not ask for them for ever."""
    c = config
    failed = frozenset(r.member.order for r in results if c.gate and not r.passed)
    return make_searcher(
        c.searcher, orders, kernel=c.kernel, beta=c.ucb_beta, seed=c.seed, given=given_orders(c),
        rounds=c.rounds, excluded=failed, resumed=resumes(c),
    )  # fmt: skip


def propose(
    config: SearchConfig, orders: Sequence[Order], results: Sequence[Result], pending: Sequence[Proposal], made: int
) -> Proposal | None:
    """The next order."""
    return searcher_for(config, orders, results).propose(observations(config, searched(results)), pending, made)


def to_confirm(ranked: Sequence[int], rivals: int) -> list[int]:
    """The best order and rivals of it, from the second best to the worst; ranked: best first."""
    best, *others = ranked
    places = np.unique(np.linspace(0, len(others) - 1, min(rivals, len(others))).round().astype(int))
    return [best, *(others[i] for i in places)]


def again(
    config: SearchConfig, orders: Sequence[Order], results: Sequence[Result], decisions: Sequence[Decision]
) -> list[Proposal | None]:
    """The same decisions, made again."""
    by_number = {r.member.number: r for r in results}
    found = []
    for d in decisions:
        known = [by_number[number] for number in d.known]
        found.append(propose(config, orders, known, [Proposal(order, rung=rung) for order, rung in d.pending], d.made))
    return found


def read(text: str) -> list[Decision]:
    """The decisions of a log."""
    rows: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    return [Decision(**row) for row in rows]
