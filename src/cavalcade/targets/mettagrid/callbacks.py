"""What a training on MettaGrid does every so many updates, besides learning: scores, recorded episodes, monitoring."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from numpy.typing import NDArray

from cavalcade.config_mettagrid import MettagridTrainConfig
from cavalcade.envs.mettagrid.episode import record_episode
from cavalcade.ppo.bptt.learner import BpttLearner
from cavalcade.ppo.bptt.player import TokenPlayer
from cavalcade.ppo.rollout import Ended
from cavalcade.runs.mettagrid import game_of, heldout_rewards
from cavalcade.runs.recorder import TrainingRecorder
from cavalcade.vector.hosted import HELDOUT_SEEDS, Hosted

_ARENAS = 4  # that a score during training is the mean of
REPLAYS, PROFILES = "replays", "profiles"


class MettagridRecorder(TrainingRecorder):
    """Also scores, records, monitors and profiles, each at its interval."""

    def __init__(self, run: Any, config: MettagridTrainConfig, learner: BpttLearner, *rest: Any):
        super().__init__(run, config, learner, *rest)
        self._settings, self._folder = config, run.path
        self._monitor = Monitor(learner)
        self._profiler: Any = None

    def record(self, learner: Any, episodes: Ended, metrics: dict[str, NDArray]) -> None:
        """Whatever is due, then the log."""
        c, update = self._settings, learner.state.updates
        for note in learner.notes:
            self._display.say(note)
        learner.notes.clear()
        if _due(c.monitor_every, update):
            found = self._monitor.look()
            metrics |= {name: np.array([value]) for name, value in found.items()}
            self._progress.machine = {name.replace("_", " "): f"{value:.3g}" for name, value in found.items()}
        if _due(c.evaluate_every, update):
            scores = heldout_rewards(TokenPlayer(learner.policy, seed=c.seed), c.arena, _ARENAS, seed=c.seed)
            metrics |= {"heldout": np.array([scores.mean()])}
            learner.timer.lap("evaluate")
        if _due(c.replay_every, update):
            path = self._folder / REPLAYS / f"{update:08d}.json.z"
            actor = TokenPlayer(learner.policy, seed=c.seed)
            record_episode(game_of(c.arena), HELDOUT_SEEDS + c.seed, actor, path)
            learner.timer.lap("replay")
        self._profile(update)
        super().record(learner, episodes, metrics)

    def close(self) -> None:
        """Writes what is held back; a profile that is under way is given up."""
        if self._profiler is not None:
            self._profiler.__exit__(None, None, None)
            self._profiler = None
        super().close()

    def _profile(self, update: int) -> None:
        """Profiles the update after one that is due."""
        if self._profiler is not None:
            self._profiler.__exit__(None, None, None)
            folder: Path = self._folder / PROFILES
            folder.mkdir(exist_ok=True)
            table = self._profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=40)
            (folder / f"{update:08d}.txt").write_text(table)
            self._profiler = None
        elif _due(self._settings.profile_every, update):
            self._profiler = torch.profiler.profile()
            self._profiler.__enter__()


class Monitor:
    """The machine since the last look: processor, memory, GPU, and who waited for whom."""

    def __init__(self, learner: BpttLearner):
        self._learner = learner
        psutil.cpu_percent()
        self._last = self._now()

    def look(self) -> dict[str, float]:
        """Figures by name; shares are of the time since the last look."""
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
            found["workers_waiting"] = 1 - busy / (seconds * len(env.slab.busy))
        if device.type == "cuda":
            found["gpu_memory_mb"] = torch.cuda.memory_allocated(device) / 2**20
            found |= _gpu_utilisation()
        return found

    def _now(self) -> tuple[float, ...]:
        spent = self._learner.timer.seconds
        env = self._learner.env
        busy = float(env.slab.busy.sum()) if isinstance(env, Hosted) else 0.0
        rolled = sum(spent.get(name, 0.0) for name in ("act", "step", "store"))
        learnt = sum(spent.get(name, 0.0) for name in ("advantage", "update"))
        return (time.monotonic(), spent.get("step", 0.0), rolled, learnt, busy, float(self._learner.state.clock))


def _gpu_utilisation() -> dict[str, float]:
    """Per cent of the last second in which the GPU worked; nothing where its library cannot be asked."""
    try:
        return {"gpu_percent": float(torch.cuda.utilization())}
    except Exception:  # a library of the driver's maker, with errors of its own; not worth a run
        return {}


def _due(every: int, update: int) -> bool:
    return bool(every) and update % every == 0
