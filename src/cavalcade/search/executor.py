"""Who trains the members of a search: here, as one population in this process; in `fleet`, as tasks of Ray."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray
from torch import Tensor

from cavalcade.config import SearchConfig
from cavalcade.search.members import ORDER, UNIVERSAL, Member
from cavalcade.search.pool import Pool, Slot, on_gpu
from cavalcade.search.scoring import CpuScorer, GpuScorer, Policies, Score, Scorer
from cavalcade.workflow.orders import Order


class Done(NamedTuple):
    """A training that is done, and its policy."""

    slot: Slot
    why: str
    policy: dict[str, Tensor]
    tail: float
    tail_error: float
    found: Score | None  # none with score tail: no further games are played
    by_order: list[Score]  # of a universal policy that is only evaluated: under every order
    seconds: float  # that scoring took


class Saved(NamedTuple):
    """What a checkpoint holds of trainings under way."""

    policy: Mapping[str, Tensor]
    learner: Mapping[str, Tensor]
    games: Mapping[str, NDArray]
    info: dict[str, Any]


class Trainings(Protocol):
    """Members in training."""

    notes: list[str]  # what there is to say about it, to be told once
    network: dict[str, Any]  # what a checkpoint says of the networks

    @property
    def slots(self) -> list[Slot]:
        """Who is in training."""
        ...

    @property
    def room(self) -> int:
        """How many may train at once (q)."""
        ...

    def start(self, member: Member, stored: Mapping[str, Tensor] | None) -> None:
        """Takes a member in; stored: the policy it begins with."""
        ...

    def update(self) -> int:
        """Goes on; returns how many updates members have made together since the last time."""
        ...

    def finished(self) -> list[Done]:
        """Those that are done since the last time; they are in training no more."""
        ...

    def save(self) -> Saved:
        """All of it."""
        ...

    def close(self) -> None:
        """Ends what is under way."""
        ...


class LocalTrainings:
    """Members trained together in this process, a population as large as it takes."""

    def __init__(
        self, config: SearchConfig, orders: Sequence[Order], threads: int, together: int, saved: Saved | None = None
    ):
        self.room = together
        slots: list[Any] = saved.info["slots"] if saved else [None]
        self.pool = Pool(config, orders, len(slots), threads)
        if saved:
            self.pool.load(saved.policy, saved.learner, saved.games, slots)
        self._scorer = make_scorer(config, orders, threads)
        self.notes = self.pool.notes
        self.network = {"inputs": self.pool.spec.inputs, "actions": self.pool.spec.actions}

    @property
    def slots(self) -> list[Slot]:
        """Who is in training."""
        return [slot for slot in self.pool.slots if slot]

    def start(self, member: Member, stored: Mapping[str, Tensor] | None) -> None:
        """Takes a member in."""
        if None not in self.pool.slots:
            self.pool = self.pool.resized(self.pool.busy, self.room)
        self.pool.start(self.pool.slots.index(None), member, stored)

    def update(self) -> int:
        """One update of all members; room that nobody needs any more is given up first."""
        if self.pool.env.continues and 0 < len(self.pool.busy) < len(self.pool.slots):
            self.pool = self.pool.resized(self.pool.busy, len(self.pool.busy))
        self.pool.update()
        return len(self.pool.busy)

    def finished(self) -> list[Done]:
        """Scores those that are done."""
        return done(self.pool, self._scorer)

    def save(self) -> Saved:
        """All of it."""
        return Saved(*self.pool.save())

    def close(self) -> None:
        """Ends the environments."""
        self.pool.env.close()
        if self._scorer:
            self._scorer.close()


def make_scorer(config: SearchConfig, orders: Sequence[Order], threads: int) -> Scorer | None:
    """Who plays the games of scores: where members train; nobody where training episodes are the score."""
    if config.score == "tail":
        return None
    return GpuScorer(config, orders) if on_gpu(config) else CpuScorer(config, orders, threads)


def done(pool: Pool, scorer: Scorer | None) -> list[Done]:
    """Takes the members that are done out of a pool, and scores their policies."""
    over = pool.finished()
    if not over:
        return []
    start = time.monotonic()
    policies = pool.policies([i for i, _ in over])
    tails = [pool.tail_score(i) for i, _ in over]
    kept = [pool.release(i) for i, _ in over]
    scored = scorer.score(policies, [slot.member for slot, _ in kept]) if scorer else [None] * len(over)
    by_order = [_by_order(pool, scorer, policies, row, slot.member) for row, (slot, _) in enumerate(kept)]
    seconds = (time.monotonic() - start) / len(over)
    return [
        Done(slot, why, policy, *tail, found, orders, seconds)
        for (_, why), (slot, policy), tail, found, orders in zip(over, kept, tails, scored, by_order, strict=True)
    ]


def _by_order(pool: Pool, scorer: Scorer | None, policies: Policies, row: int, member: Member) -> list[Score]:
    """Scores of one policy under every order, where that is all that is asked of it."""
    if not pool.config.evaluate_only or member.kind != UNIVERSAL or scorer is None:
        return []
    rows = [row] * len(pool.orders)
    same = Policies(policies.spec, policies.weights[rows], policies.shift[rows], policies.scale[rows])
    return scorer.score(same, [replace(member, kind=ORDER, order=order) for order in range(len(rows))])
