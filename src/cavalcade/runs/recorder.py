"""The record of a training: metrics, episodes, checkpoints, and what is shown of it meanwhile."""

import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.config import AnyTrainConfig
from cavalcade.plain import as_dict
from cavalcade.ppo.rollout import Ended
from cavalcade.ppo.trainer import Trainee
from cavalcade.runs.checkpoint import Checkpoint, save_checkpoint
from cavalcade.runs.directory import EPISODES, METRICS, RunDirectory
from cavalcade.runs.display import Display, Progress
from cavalcade.runs.logs import Log
from cavalcade.runs.writers import Writer
from cavalcade.vector.hosted import BROKEN

EPISODE_COLUMNS = ("update", "policy", "environment", "label", "return", "length")
_SHOWN = ("reward", "policy_loss", "value_loss", "entropy", "kl", "distinct_rows")
_MOST = 1000  # episodes of an update that are listed one by one; metrics count them all
_RECENT = 20  # updates whose episodes the returns on display are the mean of


class TrainingRecorder:
    """Writes everything a training leaves behind."""

    def __init__(
        self,
        run: RunDirectory,
        config: AnyTrainConfig,
        learner: Trainee,
        display: Display,
        writers: list[Writer],
        checkpoint: Checkpoint | None,
    ):
        self.stopping = False
        self._run, self._config, self._display, self._writers = run, config, display, writers
        info: dict[str, Any] = checkpoint.info if checkpoint else {}
        offsets = info.get("logs", {})
        self._metrics = Log(run.path / METRICS, offset=offsets.get(METRICS))
        columns = (*EPISODE_COLUMNS, *learner.env.figure_names)
        self._episodes = Log(run.path / EPISODES, ",".join(columns), offset=offsets.get(EPISODES))
        self._episodes_done = int(info.get("episodes", 0))
        self._seconds_before = float(info.get("seconds", 0.0))
        self._start = time.monotonic()
        self._first_update = learner.state.updates
        self._shown = (self._start, learner.state.clock)
        self._saved = self._first_update if checkpoint else -1
        self._labels = learner.env.label_names
        self._recent: deque[Ended] = deque(maxlen=_RECENT)
        self._progress = Progress(updates=config.updates)

    def record(self, learner: Trainee, episodes: Ended, metrics: dict[str, NDArray]) -> None:
        """Logs an update, shows it, and writes a checkpoint if one is due."""
        update = learner.state.updates
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

    def checkpoint(self, learner: Trainee) -> Path | None:
        """Writes a checkpoint of this moment, logs included, unless there is one."""
        update = learner.state.updates
        if update == self._saved:
            return None
        info = {
            "config": as_dict(self._config),
            "network": learner.network(),
            "update": update,
            "steps": learner.state.clock * learner.env.spec.num_envs,
            "episodes": self._episodes_done,
            "seconds": self._seconds(),
            "logs": {METRICS: self._metrics.flush(), EPISODES: self._episodes.flush()},
        }
        policy, rest = learner.tensors()
        environment = learner.env.save_state()
        path = save_checkpoint(self._run.checkpoint_folder, update, policy, rest, environment, info, self._config.keep)
        self._saved = update
        return path

    def close(self) -> None:
        """Writes what is held back."""
        self._display.close()
        self._metrics.close()
        self._episodes.close()
        for writer in self._writers:
            writer.close()

    def _whole(self, ended: Ended) -> Ended:
        """Without the episodes that broke off with a worker: their returns say nothing of the policy."""
        if BROKEN not in self._labels:
            return ended
        kept = ended.label != self._labels.index(BROKEN)
        return Ended(*(column[kept] for column in ended))

    def _seconds(self) -> float:
        return self._seconds_before + time.monotonic() - self._start

    def _log_episodes(self, update: int, ended: Ended) -> None:
        if len(ended.total) > _MOST:
            ended = Ended(*(column[:_MOST] for column in ended))
        names = self._labels
        labels = [names[label] for label in ended.label.tolist()]
        columns = (
            ended.policy.tolist(),
            ended.environment.tolist(),
            labels,
            ended.total.tolist(),
            ended.length.tolist(),
            *ended.figures.T.tolist(),
        )
        row = f"{update},%d,%d,%s,%.7g,%d" + ",%.7g" * ended.figures.shape[1]
        self._episodes.write([row % values for values in zip(*columns, strict=True)])

    def _log_metrics(self, learner: Trainee, ended: Ended, metrics: dict[str, NDArray]) -> None:
        seconds, steps = self._seconds(), learner.state.clock * learner.env.spec.num_envs
        head = f'"update": {learner.state.updates}, "steps": {steps}, "episodes": {self._episodes_done}'
        lists = [("return", _means(ended, learner.policies))]
        lists += [(name, [f"{x:.6g}" for x in values.tolist()]) for name, values in metrics.items()]
        body = ", ".join(f'"{name}": [{", ".join(values)}]' for name, values in lists)
        self._metrics.write(
            [f'{{{head}, {body}, "seconds": {seconds:.3f}}}']
        )  # JSON, several times faster than by json
        if self._writers:
            flat = {name: float(np.mean(values)) for name, values in metrics.items()}
            if len(ended.total):
                flat["return"] = float(ended.total.mean())
            for writer in self._writers:
                writer.scalars(steps, flat)

    def _show(self, learner: Trainee, ended: Ended, metrics: dict[str, NDArray]) -> None:
        self._recent.append(ended)
        if not self._display.due(learner.state.updates == self._config.updates):
            return
        p, now = self._progress, time.monotonic()
        p.update, p.episodes = learner.state.updates, self._episodes_done
        made, here = p.update - self._first_update, now - self._start
        n, (then, clock) = learner.env.spec.num_envs, self._shown
        p.steps = learner.state.clock * n
        p.steps_per_second = (learner.state.clock - clock) * n / max(now - then, 1e-9)  # since it was last shown
        self._shown = (now, learner.state.clock)
        p.episodes_per_second = p.steps_per_second * self._episodes_done / max(p.steps, 1)
        p.seconds_left = here / made * (p.updates - p.update)
        label, total = (np.concatenate([getattr(part, name) for part in self._recent]) for name in ("label", "total"))
        kinds = ((name, total[label == i]) for i, name in enumerate(self._labels))
        p.returns = {name: float(kept.mean()) for name, kept in kinds if len(kept)}
        p.losses = {name: float(metrics[name].mean()) for name in _SHOWN if name in metrics}
        p.phases = learner.timer.shares()
        self._display.show(p)


def _means(ended: Ended, policies: int) -> list[str]:
    """Mean return of the episodes of each policy that ended; null where none did."""
    count = np.bincount(ended.policy, minlength=policies)
    total = np.bincount(ended.policy, weights=ended.total, minlength=policies)
    return [f"{t / n:.4f}" if n else "null" for t, n in zip(total.tolist(), count.tolist(), strict=True)]
