"""Members of a search's population: trainings to be done, and what came of them."""

import math
from dataclasses import dataclass

SEARCH, CONFIRM, CONTROL = "search", "confirm", "control"
# Kinds of training: how the order enters. Controls train as long, as often and from as many steps: with another order
# in each episode, the same without seeing which, and without any order.
ORDER, SHUFFLED, UNSEEN, PLAIN, UNIVERSAL = "order", "shuffled", "shuffled unseen", "plain PPO", "universal"
CONTROLS = (SHUFFLED, UNSEEN, PLAIN)


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
    def bound_by_order(self) -> bool:
        """Whether the order is enforced."""
        return self.kind != PLAIN

    @property
    def shown(self) -> bool:
        """Whether the policy sees the order."""
        return self.kind not in (UNSEEN, PLAIN)

    @property
    def stored_as(self) -> str:
        """The name under which its policy is kept; no other member ever has it."""
        return stored_as(self.number)


def stored_as(number: int) -> str:
    """The name under which the policy of a training is kept."""
    return f"member-{number}"


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
    heldout: float  # greedy, fresh games; not a number with score tail
    tail: float  # last 3 training episodes of every environment
    task: float  # training returns of its last update: of the task …
    bonus: float  # … of alignment …
    total: float  # … and both
    compliance: float  # in the games of the score, by Blue's table; not a number if nothing counted
    counted: float  # decisions that count per episode
    true_compliance: float  # the same on the true state
    true_counted: float
    choice: float
    original: float
    chance: float
    binding: float  # decisions per episode in which the order forbade something
    bound: list[float]  # … by pair of subtasks
    training_compliance: float  # of its last update, by the measure of the configuration
    multiplier: float  # cost of a violation at the end, with enforce lagrangian
    passed: bool  # reached the compliance threshold, if there is one
    seconds: float  # into the run
