"""Callbacks of training on MettaGrid: held-out scores, recordings, monitoring and profiles."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from cavalcade.envs.mettagrid.episode import record_episode
from cavalcade.ppo.engines.recurrent.engine import RecurrentEngine
from cavalcade.ppo.engines.recurrent.runner import RecurrentRunner
from cavalcade.ppo.trainer import Callback, Update
from cavalcade.targets.mettagrid.arenas import game_of
from cavalcade.targets.mettagrid.config import MettagridConfig
from cavalcade.targets.mettagrid.scoring import heldout_rewards
from cavalcade.vector.hosted import HELDOUT_SEEDS, Hosted

_ARENAS = 4  # per held-out score during training
RECORDINGS, PROFILES = "recordings", "profiles"


def callbacks_for(config: MettagridConfig, engine: RecurrentEngine, folder: Path) -> list[Callback]:
    """The callbacks that a configuration enables."""
    found: list[Callback] = []
    if config.monitor_every:
        found.append(Monitor(engine, config.monitor_every))
    if config.evaluate_every:
        found.append(HeldoutScore(engine, config))
    if config.record_every:
        found.append(Recording(engine, config, folder / RECORDINGS))
    if config.profile_every:
        found.append(Profile(config.profile_every, folder / PROFILES))
    return found


class HeldoutScore:
    """Adds the mean reward on held-out maps to the metrics, every `evaluate_every` updates."""

    def __init__(self, engine: RecurrentEngine, config: MettagridConfig):
        self._engine, self._config = engine, config

    def __call__(self, update: Update) -> None:
        c = self._config
        if update.number % c.evaluate_every == 0:
            scores = heldout_rewards(RecurrentRunner(self._engine.policy, seed=c.seed), c.arena, _ARENAS, seed=c.seed)
            update.metrics["heldout"] = np.array([scores.mean()])
            self._engine.timer.lap("evaluate")


class Recording:
    """Records a whole episode for MettaScope, every `record_every` updates."""

    def __init__(self, engine: RecurrentEngine, config: MettagridConfig, folder: Path):
        self._engine, self._config, self._folder = engine, config, folder

    def __call__(self, update: Update) -> None:
        c = self._config
        if update.number % c.record_every == 0:
            actor = RecurrentRunner(self._engine.policy, seed=c.seed)
            record_episode(
                game_of(c.arena), HELDOUT_SEEDS + c.seed, actor, self._folder / f"{update.number:08d}.json.z"
            )
            self._engine.timer.lap("record")


class Profile:
    """Profiles one update with torch.profiler, every `every` updates, and writes the table to a file."""

    def __init__(self, every: int, folder: Path):
        self._every, self._folder = every, folder
        self._profiler: Any = None

    def __call__(self, update: Update) -> None:
        if self._profiler is not None:
            self.close()
            self._folder.mkdir(exist_ok=True)
            table = self._ended.key_averages().table(sort_by="self_cpu_time_total", row_limit=40)
            (self._folder / f"{update.number:08d}.txt").write_text(table)
        elif update.number % self._every == 0:
            self._profiler = torch.profiler.profile()
            self._profiler.__enter__()

    def close(self) -> None:
        """Ends a profile in progress."""
        if self._profiler is not None:
            self._profiler.__exit__(None, None, None)
            self._ended, self._profiler = self._profiler, None


class Monitor:
    """Adds machine metrics to the metrics, every `every` updates: CPU, memory, GPU, waiting times."""

    def __init__(self, engine: RecurrentEngine, every: int = 1):
        self._learner, self._every = engine, every
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
        env, device = self._learner.env, self._learner.device
        found = {
            "agent_steps_per_second": steps * env.spec.num_envs / seconds,
            "cpu_percent": psutil.cpu_percent(),
            "memory_mb": psutil.Process().memory_info().rss / 2**20,
            "rollout_share": rolled / seconds,
            "training_share": learnt / seconds,
            "learner_waiting": waited / seconds,
        }
        if isinstance(env, Hosted) and env.config.backend in ("shared", "async"):
            found["workers_waiting"] = 1 - busy / (seconds * len(env.shared.busy))
        if device.type == "cuda":
            found["gpu_memory_mb"] = torch.cuda.memory_allocated(device) / 2**20
            found |= self._gpu_percent()
        return found

    def _now(self) -> tuple[float, ...]:
        spent = self._learner.timer.seconds
        env = self._learner.env
        busy = float(env.shared.busy.sum()) if isinstance(env, Hosted) else 0.0
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
