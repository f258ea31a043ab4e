"""The training loop: collect, update, record, until the budget is spent or somebody asks to stop."""

import time
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cavalcade.errors import TrainingError
from cavalcade.ppo.learner import Learner
from cavalcade.ppo.rollout import Ended
from cavalcade.ppo.threads import Watch


class Recorder(Protocol):
    """Whoever watches a training."""

    stopping: bool

    def record(self, learner: Learner, episodes: Ended, metrics: dict[str, NDArray]) -> None:
        """An update has been made."""
        ...


def train(learner: Learner, updates: int, recorder: Recorder) -> None:
    """Trains up to a number of updates; a resumed learner goes on from where it is."""
    watch = Watch()
    while learner.state.updates < updates and not recorder.stopping:
        start = time.perf_counter()
        episodes = learner.collect()
        metrics = learner.update(learner.state.updates / updates)
        watch.lap(time.perf_counter() - start)
        check_finite(learner, metrics)
        recorder.record(learner, episodes, metrics)


def check_finite(learner: Learner, metrics: dict[str, NDArray]) -> None:
    """Stops a training whose loss or gradient is no longer a number, before anything of it is saved."""
    for name, values in metrics.items():
        if not np.isfinite(values).all():
            policy = int(np.flatnonzero(~np.isfinite(values))[0])
            raise TrainingError(
                f"{name} of policy {policy} is {values[policy]} at update {learner.state.updates}; start anew with a "
                f"lower learning rate than {learner.hyper.learning_rate[policy]:g} or a smaller grad_clip than "
                f"{learner.hyper.grad_clip[policy]:g}; the checkpoints of this run are from before"
            )
