"""PPO: the loop over epochs and minibatches. Engines provide a rollout, a gradient and an optimiser step.

Arrays are NumPy arrays or torch tensors, as the engine has them; the loop uses only operators that both have. An engine
that records the loop as a CUDA graph never leaves it early: policies past their KL limit are masked out instead.
"""

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cavalcade.config.ppo import CommonPPOConfig
from cavalcade.core.timer import Timer
from cavalcade.ppo.distributed import Ranks
from cavalcade.ppo.objective import KL, KL_TOLERANCE, METRICS
from cavalcade.ppo.state import HyperParams

_UNBOUNDED = 1e30  # above every KL divergence


class Learner(Protocol):
    """The interface of an engine that the loop uses."""

    @property
    def config(self) -> CommonPPOConfig: ...

    hyper: HyperParams
    timer: Timer
    ranks: Ranks
    leaves_early: bool  # whether the loop may end before the last epoch; the test reads an array on the host

    def prepare(self, progress: Any) -> None:
        """Computes advantages and value targets of the rollout."""
        ...

    def minibatches(self, epoch: int) -> Iterable[Any]:
        """The minibatches of an epoch, in random order."""
        ...

    def gradient(self, batch: Any, active: Any) -> Any:
        """Computes the gradient of a minibatch; returns its `METRICS`, (M, P), 0 for policies that are not active."""
        ...

    def all_reduce(self, metrics: Any) -> None:
        """All-reduces gradient and metrics over ranks, in place."""
        ...

    def step(self, rates: Any, active: Any) -> Any:
        """One optimiser step of the active policies; returns gradient norms (P,), 0 for the others."""
        ...


def learning_rates(learner: Learner, progress: float | NDArray) -> NDArray:
    """Learning rates (P,); progress: completed share of the run, one for all policies or (P,)."""
    return np.asarray(learner.hyper.learning_rate * (1 - progress if learner.config.schedule == "linear" else 1))


def optimise(learner: Learner, rates: Any, limit: Any) -> tuple[Any, Any]:
    """Runs all epochs; returns means of `METRICS`, (M, P), and of gradient norms, (P,).

    rates: learning rates (P,); limit: target KL divergences (P,), 0 for none.

    A policy whose approximate KL divergence exceeds 1.5 times its limit skips the rest of the update, including the
    step of that minibatch.
    """
    limited = bool((learner.hyper.target_kl > 0).any())
    active, steps = limit >= 0, 0 * limit
    sums, norms = 0.0, 0 * limit
    bound = KL_TOLERANCE * limit + _UNBOUNDED * (limit <= 0)
    for epoch in range(learner.config.epochs):
        for batch in learner.minibatches(epoch):
            metrics = learner.gradient(batch, active)
            if learner.ranks.size > 1:
                learner.all_reduce(metrics)
            sums, steps = sums + metrics, steps + active
            if limited:
                active = active & ~(metrics[KL] > bound)
                if learner.leaves_early and not active.any():
                    return sums / steps, norms / steps
            norms = norms + learner.step(rates, active)
    return sums / steps, norms / steps


def named(means: NDArray, norms: NDArray, rates: NDArray) -> dict[str, NDArray]:
    """Metrics of an update by name, (P,) float64 each."""
    found = {name: np.asarray(row, np.float64) for name, row in zip(METRICS, means, strict=True)}
    return found | {"grad_norm": np.asarray(norms, np.float64), "learning_rate": np.asarray(rates)}
