"""Machine metrics beside those of learning: CPU, memory, GPU, waiting times."""

import time

import numpy as np
import psutil
import torch

from cavalcade.ppo.engine import Engine
from cavalcade.ppo.trainer import Update
from cavalcade.vector.pool import WorkerPool

_CPU = torch.device("cpu")


class Monitor:
    """Adds machine metrics to the metrics, every `every` updates: CPU, memory, GPU, waiting times."""

    def __init__(self, engine: Engine, every: int = 1, rate: str = "steps_per_second"):
        self._learner, self._every, self._rate = engine, every, rate
        self._pool: WorkerPool | None = getattr(getattr(engine.env, "hosted", engine.env), "pool", None)
        psutil.cpu_percent()
        self._last, self._said = self._now(), False

    def __call__(self, update: Update) -> None:
        if update.number % self._every == 0:
            update.metrics |= {name: np.array([value]) for name, value in self.measure().items()}

    def measure(self) -> dict[str, float]:
        """Machine metrics by name; shares are of the time since the last measurement."""
        now = self._now()
        seconds, waited, rolled, learnt, busy, steps = (a - b for a, b in zip(now, self._last, strict=True))
        self._last = now
        device = getattr(self._learner, "device", _CPU)
        found = {
            self._rate: steps * self._learner.env.spec.num_envs / seconds,
            "cpu_percent": psutil.cpu_percent(),
            "memory_mb": psutil.Process().memory_info().rss / 2**20,
            "rollout_share": rolled / seconds,
            "training_share": learnt / seconds,
            "learner_waiting": waited / seconds,
        }
        if self._pool is not None and self._pool.busy is not None:
            share = busy / (seconds * len(self._pool.busy))
            found["workers_waiting"] = max(0.0, 1 - share)  # fragments are counted at their ends
        if device.type == "cuda":
            found["gpu_memory_mb"] = torch.cuda.memory_allocated(device) / 2**20
            found |= self._gpu_percent()
        return found

    def _now(self) -> tuple[float, ...]:
        spent = self._learner.timer.seconds
        busy = 0.0 if self._pool is None or self._pool.busy is None else float(self._pool.busy.sum())
        rolled = sum(spent.get(name, 0.0) for name in ("act", "step", "store", "rollout"))
        learnt = sum(spent.get(name, 0.0) for name in ("advantage", "update"))
        return (time.monotonic(), spent.get("step", 0.0), rolled, learnt, busy, float(self._learner.counters.clock))

    def _gpu_percent(self) -> dict[str, float]:
        """Percentage of the last second in which the GPU was busy; empty, and said once, if it cannot be read."""
        try:
            return {"gpu_percent": float(torch.cuda.utilization())}
        except Exception as error:  # NVML raises its own types of errors; none is worth a run
            if not self._said:
                self._said = True
                self._learner.notes.append(f"gpu_percent is not measured: {error}; pip install 'cavalcade[cuda]'")
            return {}
