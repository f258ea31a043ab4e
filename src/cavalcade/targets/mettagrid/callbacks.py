"""Callbacks of training on MettaGrid: held-out scores, recordings, monitoring and profiles."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from cavalcade.envs.mettagrid.episode import record_episode
from cavalcade.ppo.engines.recurrent.engine import RecurrentEngine
from cavalcade.ppo.engines.recurrent.runner import RecurrentRunner
from cavalcade.ppo.trainer import Callback, Update
from cavalcade.targets.mettagrid.arenas import game_of
from cavalcade.targets.mettagrid.config import MettagridConfig
from cavalcade.targets.mettagrid.scoring import heldout_rewards
from cavalcade.targets.monitor import Monitor
from cavalcade.vector.hosted import HELDOUT_SEEDS

_ARENAS = 4  # per held-out score during training
RECORDINGS, PROFILES = "recordings", "profiles"


def callbacks_for(config: MettagridConfig, engine: RecurrentEngine, folder: Path) -> list[Callback]:
    """The callbacks that a configuration enables."""
    found: list[Callback] = []
    if config.monitor_every:
        found.append(Monitor(engine, config.monitor_every, rate="agent_steps_per_second"))
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
