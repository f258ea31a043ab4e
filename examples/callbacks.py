"""Stop a training when it is good enough: a callback receives every update and may end the run.

python examples/callbacks.py
"""

import numpy as np

import cavalcade


class StopAtReturn:
    """Stops once the mean return of recent episodes exceeds a threshold; adds that mean to the metrics."""

    def __init__(self, threshold: float, episodes: int = 100):
        self.threshold, self.count, self.recent = threshold, episodes, []

    def __call__(self, update) -> bool:
        """Receives an update: its metrics, its episodes, how far training has come."""
        self.recent = [*self.recent, *update.episodes.total][-self.count :]
        mean = float(np.mean(self.recent)) if self.recent else -np.inf
        if np.isfinite(mean):
            update.metrics["recent_return"] = np.array([mean])
        return len(self.recent) == self.count and mean > self.threshold


run = cavalcade.train("gym:CartPole-v1", backend="serial", num_envs=16, steps=200_000, callbacks=[StopAtReturn(60)])
print(f"stopped after {run.outcome.updates} updates; finished: {run.outcome.finished}")
print(f"it can be resumed: {run.path}")
