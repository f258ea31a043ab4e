"""Records a training: metrics, episodes, checkpoints and the progress display."""

import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.config.base import RunConfig
from cavalcade.config.io import as_dict
from cavalcade.core.contract import BROKEN
from cavalcade.ppo.rollout import Episodes
from cavalcade.ppo.trainer import Trainable
from cavalcade.runs.checkpoint import Checkpoint, save_checkpoint
from cavalcade.runs.directory import RunDirectory
from cavalcade.runs.display import Display, Progress
from cavalcade.runs.files import EPISODES, METRICS
from cavalcade.runs.logs import Log
from cavalcade.runs.notes import add_notes
from cavalcade.runs.writers import Writer

EPISODE_COLUMNS = ("update", "policy", "environment", "kind", "return", "length")
_SHOWN = ("reward", "policy_loss", "value_loss", "entropy", "kl", "distinct_observations")
_MACHINE = (
    "cpu_percent", "memory_mb", "rollout_share", "training_share", "learner_waiting", "workers_waiting",
    "gpu_memory_mb", "gpu_percent",
)  # fmt: skip
_MOST = 1000  # episodes logged per update; metrics include all
_RECENT = 20  # updates that displayed returns are averaged over


class TrainingRecorder:
    """Writes logs and checkpoints of a training, and shows its progress."""

    def __init__(
        self,
        run: RunDirectory,
        config: RunConfig,
        learner: Trainable,
        display: Display,
        writers: list[Writer],
        checkpoint: Checkpoint | None,
    ):
        self.stopping = False
        self._run, self._config, self._display, self._writers = run, config, display, writers
        info: dict[str, Any] = checkpoint.info if checkpoint else {}
        offsets = info.get("logs", {})
        self._metrics = Log(run.path / METRICS, offset=offsets.get(METRICS))
        columns = (*EPISODE_COLUMNS, *learner.episode_stat_names)
        self._episodes = Log(run.path / EPISODES, ",".join(columns), offset=offsets.get(EPISODES))
        self._episodes_done = int(info.get("episodes", 0))
        self._seconds_before = float(info.get("seconds", 0.0))
        self._start = time.monotonic()
        self._first_update = learner.counters.updates
        self._shown = (self._start, learner.counters.clock)
        self._saved = self._first_update if checkpoint else -1
        self._kinds = learner.episode_kind_names
        self._recent: deque[Episodes] = deque(maxlen=_RECENT)
        self._progress = Progress(updates=config.updates)

    def record(self, learner: Trainable, episodes: Episodes, metrics: dict[str, NDArray]) -> None:
        """Logs an update, shows it, and writes a checkpoint if one is due."""
        update = learner.counters.updates
        if learner.notes:
            add_notes(self._run.path, update, learner.notes)
            for note in learner.notes:
                self._display.say(note)
            learner.notes.clear()
        self._episodes_done += len(episodes.total)
        self._log_episodes(update, episodes)
        episodes = self._whole(episodes)
        self._log_metrics(learner, episodes, metrics)
        learner.timer.lap("log")
        every = self._config.checkpoint_every
        if every and update % every == 0:
            self.checkpoint(learner)
            learner.timer.lap("checkpoint")
        self._show(learner, episodes, metrics)
        learner.timer.lap("log")

    def checkpoint(self, learner: Trainable) -> Path | None:
        """Writes a checkpoint, logs included; None if this update already has one."""
        update = learner.counters.updates
        if update == self._saved:
            return None
        info = {
            "config": as_dict(self._config),
            "network": learner.network(),
            "update": update,
            "steps": learner.counters.clock * learner.num_envs,
            "episodes": self._episodes_done,
            "seconds": self._seconds(),
            "phases": {name: round(seconds, 3) for name, seconds in learner.timer.seconds.items()},
            "logs": {METRICS: self._metrics.sync(), EPISODES: self._episodes.sync()},
        }
        keep = self._config.keep_checkpoints
        path = save_checkpoint(self._run.checkpoint_folder, update, learner.snapshot(), info, keep)
        self._saved = update
        return path

    def close(self) -> None:
        self._display.close()
        self._metrics.close()
        self._episodes.close()
        for writer in self._writers:
            writer.close()

    def _whole(self, ended: Episodes) -> Episodes:
        """Drops episodes cut short by a lost worker: their returns say nothing about the policy."""
        if BROKEN not in self._kinds:
            return ended
        kept = ended.kind != self._kinds.index(BROKEN)
        return Episodes(*(column[kept] for column in ended))

    def _seconds(self) -> float:
        return self._seconds_before + time.monotonic() - self._start

    def _log_episodes(self, update: int, ended: Episodes) -> None:
        if len(ended.total) > _MOST:
            ended = Episodes(*(column[:_MOST] for column in ended))
        names = self._kinds
        kinds = [names[kind] for kind in ended.kind.tolist()]
        columns = (
            ended.policy.tolist(),
            ended.environment.tolist(),
            kinds,
            ended.total.tolist(),
            ended.length.tolist(),
            *ended.episode_stats.T.tolist(),
        )
        row = f"{update},%d,%d,%s,%.7g,%d" + ",%.7g" * ended.episode_stats.shape[1]
        self._episodes.write([row % values for values in zip(*columns, strict=True)])

    def _log_metrics(self, learner: Trainable, ended: Episodes, metrics: dict[str, NDArray]) -> None:
        seconds, steps = self._seconds(), learner.counters.clock * learner.num_envs
        head = f'"update": {learner.counters.updates}, "steps": {steps}, "episodes": {self._episodes_done}'
        lists = [("return", _means(ended, learner.policies))]
        lists += [(name, [f"{x:.6g}" for x in values.tolist()]) for name, values in metrics.items()]
        body = ", ".join(f'"{name}": [{", ".join(values)}]' for name, values in lists)
        self._metrics.write(
            [f'{{{head}, {body}, "seconds": {seconds:.3f}}}']
        )  # JSON, several times faster than json.dumps
        if self._writers:
            flat = {name: float(np.mean(values)) for name, values in metrics.items()}
            if len(ended.total):
                flat["return"] = float(ended.total.mean())
            for writer in self._writers:
                writer.scalars(steps, flat)

    def _show(self, learner: Trainable, ended: Episodes, metrics: dict[str, NDArray]) -> None:
        self._recent.append(ended)
        if not self._display.due(learner.counters.updates == self._config.updates):
            return
        p, now = self._progress, time.monotonic()
        p.update, p.episodes = learner.counters.updates, self._episodes_done
        made, here = p.update - self._first_update, now - self._start
        n, (then, clock) = learner.num_envs, self._shown
        p.steps = learner.counters.clock * n
        p.steps_per_second = (learner.counters.clock - clock) * n / max(now - then, 1e-9)  # since the last display
        self._shown = (now, learner.counters.clock)
        p.episodes_per_second = p.steps_per_second * self._episodes_done / max(p.steps, 1)
        p.seconds_left = here / made * (p.updates - p.update)
        kind, total = (np.concatenate([getattr(part, name) for part in self._recent]) for name in ("kind", "total"))
        kinds = ((name, total[kind == i]) for i, name in enumerate(self._kinds))
        p.returns = {name: float(kept.mean()) for name, kept in kinds if len(kept)}
        p.machine = {name.replace("_", " "): f"{metrics[name][0]:.3g}" for name in _MACHINE if name in metrics}
        p.losses = {name: float(metrics[name].mean()) for name in _SHOWN if name in metrics}
        p.phases = learner.timer.shares()
        self._display.show(p)


def _means(ended: Episodes, policies: int) -> list[str]:
    """Mean return per policy of the episodes that ended; null where none did."""
    count = np.bincount(ended.policy, minlength=policies)
    total = np.bincount(ended.policy, weights=ended.total, minlength=policies)
    return [f"{t / n:.4f}" if n else "null" for t, n in zip(total.tolist(), count.tolist(), strict=True)]
