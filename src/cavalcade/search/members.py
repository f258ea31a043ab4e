"""Members of a search's population: trainings to do, and their results."""

import math
from dataclasses import dataclass

SEARCHING, CONFIRM, CONTROL = "search", "confirm", "control"  # purposes
# Kinds of training. Controls have the same budget and number of trainings: with a random order in each episode, the
# same without observing it, and without any order.
ORDER, SHUFFLED, UNSEEN, PLAIN, UNIVERSAL = "order", "shuffled", "shuffled unseen", "plain PPO", "universal"
CONTROLS = (SHUFFLED, UNSEEN, PLAIN)


@dataclass(frozen=True)
class Member:
    """A training to do."""

    number: int
    purpose: str
    kind: str
    order: int  # index of the order; −1 for a new one in each episode
    seed: int
    updates: int
    start: str = ""  # stored policy that it begins with, if any …
    resume: bool = False  # … optimiser included
    rung: int = 0
    mean: float = math.nan  # posterior when it was proposed: mean, standard deviation and acquisition value
    deviation: float = math.nan
    bound: float = math.nan

    @property
    def bound_by_order(self) -> bool:
        return self.kind != PLAIN

    @property
    def shown(self) -> bool:
        """Whether the policy observes the order."""
        return self.kind not in (UNSEEN, PLAIN)

    @property
    def stored_as(self) -> str:
        """Unique name under which its policy is stored."""
        return stored_as(self.number)


def stored_as(number: int) -> str:
    """Name under which the policy of a training is stored."""
    return f"member-{number}"


@dataclass(frozen=True)
class Result:
    """Result of a training."""

    member: Member
    stop: str  # budget, threshold or plateau
    updates: int
    episodes: float  # full-length episodes played
    steps: int
    used: float  # episodes of the budget used by the search so far
    score: float
    error: float  # standard error of the score
    heldout: float  # greedy, fresh games; NaN with score tail
    tail: float  # last 3 training episodes of every environment
    task: float  # training returns of its last update: the task …
    bonus: float  # … alignment …
    total: float  # … and their sum
    compliance: float  # in the games of the score, by Blue's table; NaN if no decision counted
    counted: float  # decisions per episode that counted
    true_compliance: float  # the same on the true state
    true_counted: float
    choice: float
    original: float
    chance: float
    binding: float  # decisions per episode in which the order forbade something
    bound: list[float]  # … by pair of subtasks
    training_compliance: float  # of its last update, by the measure of the configuration
    multiplier: float  # cost of a violation at the end, with enforce lagrangian
    passed: bool  # whether it reached the compliance threshold, if there is one
    seconds: float  # since the start of the run
