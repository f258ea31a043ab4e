"""Executors train the members of a search: this process, as one population, or Ray tasks (`ray_executor`)."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from cavalcade.search.config import SearchConfig
from cavalcade.search.members import ORDER, UNIVERSAL, Member
from cavalcade.search.pool import Pool, SavedPool, Slot, on_gpu
from cavalcade.search.scoring import CpuScorer, GpuScorer, Policies, Score, Scorer
from cavalcade.workflow.orders import Order


class Done(NamedTuple):
    """A finished training with its policy and scores."""

    slot: Slot
    why: str
    policy: dict[str, Tensor]
    tail: float
    tail_error: float
    found: Score | None  # None with score tail: no further games are played
    by_order: list[Score]  # with evaluate-only: a universal policy under every order
    seconds: float  # spent on scoring


class Executor(Protocol):
    """Trains members."""

    notes: list[str]  # shown once
    network: dict[str, Any]  # description of the networks, for checkpoints

    @property
    def slots(self) -> list[Slot]:
        """Members in training."""
        ...

    @property
    def room(self) -> int:
        """How many members may train at once (q)."""
        ...

    def start(self, member: Member, stored: Mapping[str, Tensor] | None) -> None:
        """Adds a member; stored: its initial policy."""
        ...

    def update(self) -> int:
        """Continues training; returns the updates made by all members since the last call."""
        ...

    def finished(self) -> list[Done]:
        """Removes and returns the members that finished since the last call."""
        ...

    def save(self) -> SavedPool:
        """Complete state, for a checkpoint."""
        ...

    def close(self) -> None:
        """Stops training and releases resources."""
        ...


class LocalExecutor:
    """Trains members in this process, as a population that grows and shrinks."""

    def __init__(
        self, config: SearchConfig, orders: Sequence[Order], threads: int, room: int, saved: SavedPool | None = None
    ):
        self.room = room
        slots: list[Any] = saved.info["slots"] if saved else [None]
        self.pool = Pool(config, orders, len(slots), threads)
        if saved:
            self.pool.load(saved)
        self._scorer = make_scorer(config, orders, threads)
        self.notes = self.pool.notes
        self.network = {"inputs": self.pool.spec.inputs, "actions": self.pool.spec.actions}

    @property
    def slots(self) -> list[Slot]:
        return [slot for slot in self.pool.slots if slot]

    def start(self, member: Member, stored: Mapping[str, Tensor] | None) -> None:
        if None not in self.pool.slots:
            self.pool = self.pool.resized(self.pool.busy, self.room)
        self.pool.start(self.pool.slots.index(None), member, stored)

    def update(self) -> int:
        """One update of all members; first shrinks the population to the slots in use."""
        if self.pool.env.resumable and 0 < len(self.pool.busy) < len(self.pool.slots):
            self.pool = self.pool.resized(self.pool.busy, len(self.pool.busy))
        self.pool.update()
        return len(self.pool.busy)

    def finished(self) -> list[Done]:
        return done(self.pool, self._scorer)

    def save(self) -> SavedPool:
        return self.pool.save()

    def close(self) -> None:
        self.pool.env.close()
        if self._scorer:
            self._scorer.close()


def make_scorer(config: SearchConfig, orders: Sequence[Order], threads: int) -> Scorer | None:
    """The scorer, on the device that trains; None if training episodes are the score."""
    if config.score == "tail":
        return None
    return GpuScorer(config, orders) if on_gpu(config) else CpuScorer(config, orders, threads)


def done(pool: Pool, scorer: Scorer | None) -> list[Done]:
    """Removes finished members from a pool, and scores their policies."""
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
    """Scores of a universal policy under every order, with evaluate-only."""
    if not pool.config.evaluate_only or member.kind != UNIVERSAL or scorer is None:
        return []
    rows = [row] * len(pool.orders)
    same = Policies(policies.spec, policies.weights[rows], policies.shift[rows], policies.scale[rows])
    return scorer.score(same, [replace(member, kind=ORDER, order=order) for order in range(len(rows))])
