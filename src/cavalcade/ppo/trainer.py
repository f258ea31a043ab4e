"""The training loop: collect, update, record, until the budget is spent or a stop is requested."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.errors import TrainingError
from cavalcade.core.threads import ThreadGovernor
from cavalcade.core.timer import Timer
from cavalcade.ppo.rollout import Episodes
from cavalcade.ppo.snapshot import Counters, Snapshot
from cavalcade.ppo.state import HyperParams


class Trainable(Protocol):
    """What `train` needs: an engine, or the engines of several ranks."""

    name: str
    timer: Timer
    hyper: HyperParams
    policies: int  # P
    notes: list[str]

    @property
    def num_envs(self) -> int:
        """Number of environments of all policies and ranks."""
        ...

    @property
    def counters(self) -> Counters:
        """Steps and updates so far."""
        ...

    @property
    def episode_kind_names(self) -> tuple[str, ...]:
        """Names of the kinds of episodes."""
        ...

    @property
    def episode_stat_names(self) -> tuple[str, ...]:
        """Names of episode statistics besides return and length."""
        ...

    def collect(self) -> Episodes:
        """Collects a rollout; returns the episodes that ended."""
        ...

    def update(self, progress: float) -> dict[str, NDArray]:
        """Learns from the rollout; progress: completed share of the run. Returns metrics (P,) by name."""
        ...

    def set_threads(self, threads: int) -> None:
        """Sets the CPU threads of training."""
        ...

    def network(self) -> dict[str, Any]:
        """The network architecture as plain data, for a checkpoint."""
        ...

    def snapshot(self) -> Snapshot:
        """The current state of policy, optimiser, games and counters."""
        ...

    def restore(self, snapshot: Snapshot) -> None:
        """Loads a snapshot."""
        ...


@dataclass
class Update:
    """A completed update, as passed to callbacks."""

    number: int  # updates so far
    updates: int  # of the whole run
    steps: int  # environment steps so far
    metrics: dict[str, NDArray]  # (P,) by name; a callback may add to them before they are logged
    episodes: Episodes  # those that ended in its rollout
    learner: Trainable


Callback = Callable[[Update], bool | None]  # receives each update before it is logged; True stops the training
Adapt = Callable[[Episodes], dict[str, NDArray]]  # adapts the environments to the episodes of a rollout; metrics (P,)


class Recorder(Protocol):
    """Receives metrics after each update."""

    stopping: bool

    def record(self, learner: Trainable, episodes: Episodes, metrics: dict[str, NDArray]) -> None:
        """Logs an update."""
        ...


def train(
    learner: Trainable,
    updates: int,
    recorder: Recorder,
    *,
    adapt: Adapt | None = None,
    callbacks: Sequence[Callback] = (),
) -> None:
    """Trains until `updates` updates are done in total or a stop is requested."""
    governor = ThreadGovernor(learner.set_threads)
    while learner.counters.updates < updates and not recorder.stopping:
        episodes, metrics = advance(learner, learner.counters.updates / updates, governor, adapt)
        clock, number = learner.counters
        made = Update(number, updates, clock * learner.num_envs, metrics, episodes, learner)
        for callback in callbacks:
            if callback(made):
                recorder.stopping = True
        recorder.record(learner, episodes, metrics)


def advance(
    learner: Any, progress: float | NDArray, governor: ThreadGovernor, adapt: Adapt | None = None
) -> tuple[Episodes, dict[str, NDArray]]:
    """One rollout and one update."""
    start = time.perf_counter()
    episodes = learner.collect()
    adapted = adapt(episodes) if adapt else {}
    metrics = learner.update(progress) | adapted
    governor.lap(time.perf_counter() - start)
    check_finite(learner, metrics)
    return episodes, metrics


def check_finite(learner: Trainable, metrics: dict[str, NDArray]) -> None:
    """Raises `TrainingError` if a metric is NaN or infinite, before anything is saved."""
    for name, values in metrics.items():
        if not np.isfinite(values).all():
            policy = int(np.flatnonzero(~np.isfinite(values))[0])
            raise TrainingError(
                f"{name} of policy {policy} is {values[policy]} at update {learner.counters.updates}; start again with "
                f"a lower learning rate than {learner.hyper.learning_rate[policy]:g} or a smaller grad_clip than "
                f"{learner.hyper.grad_clip[policy]:g}; the checkpoints of this run are from earlier updates"
            )
