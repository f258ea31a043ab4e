"""Members of a search's population: trainings to be done, and what came of them."""

import math
from dataclasses import dataclass

SEARCH, CONFIRM, CONTROL = "search", "confirm", "control"
# Kinds of training: how the order enters. Controls train as long, as often and from as many steps.
ORDER, NO_ALIGNMENT, SHUFFLED, UNSEEN, PLAIN, UNIVERSAL = (
    "order", "no alignment", "shuffled", "unseen", "plain PPO", "universal",
)  # fmt: skip
CONTROLS = (NO_ALIGNMENT, SHUFFLED, UNSEEN, PLAIN)


@dataclass(frozen=True)
class Member:
    """A training."""

    number: int
    purpose: str
    kind: str
    order: int  # index of the order; −1 for a new one in each episode
    seed: int
    updates: int
    start: str = ""  # the stored policy it begins with, if any …
    resume: bool = False  # … optimiser included
    rung: int = 0
    mean: float = math.nan  # what was believed when it was proposed
    deviation: float = math.nan
    bound: float = math.nan

    @property
    def aligned(self) -> bool:
        """Whether keeping the order is rewarded."""
        return self.kind in (ORDER, SHUFFLED, UNSEEN, UNIVERSAL)

    @property
    def shown(self) -> bool:
        """Whether the policy sees the order."""
        return self.kind in (ORDER, NO_ALIGNMENT, SHUFFLED, UNIVERSAL)

    @property
    def stored_as(self) -> str:
        """The name under which its policy is kept; no other member ever has it."""
        return f"member-{self.number}"


@dataclass(frozen=True)
class Result:
    """What came of a training."""

    member: Member
    stop: str  # budget, threshold or plateau
    updates: int
    episodes: float  # of full length, that it played
    steps: int
    used: float  # episodes that the search had used by then
    score: float
    error: float  # standard error of the score
    heldout: float  # greedy, fresh games
    tail: float  # last 3 training episodes of every environment
    task: float  # training returns of its last update: of the task …
    bonus: float  # … of alignment …
    total: float  # … and both
    compliance: float  # in the fresh games
    chance: float
    counted: float  # share of fresh games with anything to count
    training_compliance: float  # of its last update
    passed: bool  # reached the compliance threshold, if there is one
    seconds: float  # into the run
