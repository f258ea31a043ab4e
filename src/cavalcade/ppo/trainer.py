"""The training loop: collect, update, record, until the budget is spent or somebody asks to stop."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.envs.contract import Environment
from cavalcade.errors import TrainingError
from cavalcade.ppo.population import Hyper
from cavalcade.ppo.rollout import Ended
from cavalcade.ppo.threads import Watch
from cavalcade.ppo.timer import Timer


class Counters(Protocol):
    """How far a training has come."""

    @property
    def clock(self) -> int:
        """Steps that each environment has taken."""
        ...

    @property
    def updates(self) -> int:
        """Updates that have been made."""
        ...


class Trainee(Protocol):
    """What can be trained and recorded: policies of any kind, with the environments they learn in."""

    name: str
    env: Environment
    timer: Timer
    hyper: Hyper

    @property
    def policies(self) -> int:
        """P."""
        ...

    @property
    def state(self) -> Counters:
        """How far it has come."""
        ...

    def collect(self) -> Ended:
        """Plays; returns the episodes that ended."""
        ...

    def update(self, progress: float) -> dict[str, NDArray]:
        """Learns, at a given share of the run; metrics by name, (P,) each."""
        ...

    def set_threads(self, threads: int) -> None:
        """CPU threads of learning."""
        ...

    def network(self) -> dict[str, Any]:
        """What a checkpoint says of the networks."""
        ...

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What a checkpoint holds: weights by name, and everything else that learning changes."""
        ...

    def load_tensors(self, policy: Mapping[str, Tensor], rest: Mapping[str, Tensor]) -> None:
        """Takes over what a checkpoint holds."""
        ...

    def forget_games(self) -> None:
        """The games in progress are gone: new ones begin."""
        ...


class Recorder(Protocol):
    """Whoever watches a training."""

    stopping: bool

    def record(self, learner: Trainee, episodes: Ended, metrics: dict[str, NDArray]) -> None:
        """An update has been made."""
        ...


Adapt = Callable[[Ended], dict[str, NDArray]]  # what changes with the episodes of an update; metrics (P,) by name


def train(learner: Trainee, updates: int, recorder: Recorder, adapt: Adapt | None = None) -> None:
    """Trains up to a number of updates; a resumed learner goes on from where it is."""
    watch = Watch(learner.set_threads)
    while learner.state.updates < updates and not recorder.stopping:
        start = time.perf_counter()
        episodes = learner.collect()
        adapted = adapt(episodes) if adapt else {}
        metrics = learner.update(learner.state.updates / updates) | adapted
        watch.lap(time.perf_counter() - start)
        check_finite(learner, metrics)
        recorder.record(learner, episodes, metrics)


def check_finite(learner: Trainee, metrics: dict[str, NDArray]) -> None:
    """Stops a training whose loss or gradient is no longer a number, before anything of it is saved."""
    for name, values in metrics.items():
        if not np.isfinite(values).all():
            policy = int(np.flatnonzero(~np.isfinite(values))[0])
            raise TrainingError(
                f"{name} of policy {policy} is {values[policy]} at update {learner.state.updates}; start anew with a "
                f"lower learning rate than {learner.hyper.learning_rate[policy]:g} or a smaller grad_clip than "
                f"{learner.hyper.grad_clip[policy]:g}; the checkpoints of this run are from before"
            )
