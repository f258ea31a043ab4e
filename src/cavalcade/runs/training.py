"""A training run, new or resumed: environments, engine, recorder; stops cleanly on a signal."""

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from cavalcade.config.base import RunConfig
from cavalcade.config.io import as_dict
from cavalcade.core.errors import ConfigError, WorkerError
from cavalcade.core.slices import short_slices
from cavalcade.policy.module import MakeModule
from cavalcade.ppo.data_parallel import DistributedEngine, Stoppable
from cavalcade.ppo.distributed import ALONE, Ranks, TorchRanks
from cavalcade.ppo.rollout import Episodes
from cavalcade.ppo.trainer import Callback, Trainable, Update, train
from cavalcade.runs.advice import resume_advice
from cavalcade.runs.directory import RunDirectory, provenance
from cavalcade.runs.display import make_display
from cavalcade.runs.distributed import checkpoint_everywhere
from cavalcade.runs.history import check_budget, check_changes, record_changes
from cavalcade.runs.initial import begin_initial, start_from
from cavalcade.runs.logs import check_sizes
from cavalcade.runs.notes import add_notes
from cavalcade.runs.policies import load_policy
from cavalcade.runs.recorder import TrainingRecorder
from cavalcade.runs.writers import make_writer
from cavalcade.targets import target_named
from cavalcade.targets.base import Setup


@dataclass(frozen=True)
class Outcome:
    """How a training ended."""

    finished: bool
    signal: int  # the one that stopped it, or 0
    seconds: float
    steps: int
    updates: int  # in total, before a resume included


class Training:
    """A run in a locked directory, ready to train: new, or restored from its newest checkpoint."""

    def __init__(
        self,
        run: RunDirectory[Any],
        config: RunConfig,
        *,
        resume: bool = False,
        threads: int = 0,
        quiet: bool = False,
        writers: Sequence[str] = (),
        ranks: Ranks = ALONE,
        callbacks: Sequence[Callback] = (),
        network: MakeModule | None = None,
        init: Path | None = None,
    ):
        self.run, self.config, self.quiet, self.ranks = run, config, quiet, ranks
        self.target = target_named(config.target)
        if ranks.first:
            check_changes(run, config) if resume else run.check_new()
        checkpoint = checkpoint_everywhere(run, config, ranks) if resume else None
        if checkpoint and ranks.first:
            check_sizes(run.path, checkpoint.info["logs"])
        check_budget(run, config, checkpoint)
        before = run.meta() if resume and ranks.first else {}
        known = threads or (int(before["threads"]) if resume and ranks.size == before.get("ranks", 1) == 1 else 0)
        if checkpoint and network is None and "module" in checkpoint.info.get("network", {}):
            module = checkpoint.info["network"]["module"]
            raise ConfigError(
                f"{run} has a custom network, {module}; resume it from Python: "
                f"cavalcade.Run(path, network={module.rpartition(':')[2]}).resume()"
            )
        setup = Setup(
            threads=known,
            engine_before=str(before.get("engine", "")),
            load=load_policy,
            network=network,
            network_before=checkpoint.info["network"] if checkpoint else {},
        )
        short_slices()  # also for threads and workers that start from here on
        prepared = self._prepare(setup)
        self.engine, self.notes = prepared.engine, prepared.notes
        self._asked: Stoppable = SilentRecorder()
        self.learner: Trainable = self.engine
        if isinstance(ranks, TorchRanks):
            self.learner = DistributedEngine(self.engine, ranks, self._asked)
        self.engine.env.reset()
        source = start_from(self.engine, init, config, ranks, network) if init else None
        if checkpoint:
            self.learner.restore(checkpoint.snapshot)
        self.engine.refresh()
        if resume and ranks.first and (then := before.get("ranks", 1)) != ranks.size:
            change = "results differ only by the order of summation"
            self.notes.append(f"the run began with {then} ranks and now has {ranks.size}; {change}")
        if resume and ranks.first:
            self.notes += record_changes(run, config, checkpoint)
        self._checkpoint = checkpoint
        self._callbacks = [*self.target.callbacks(config, self.engine, run.path), *callbacks] if ranks.first else []
        self._writers = [make_writer(name, run.path, as_dict(config)) for name in writers] if ranks.first else []
        if source:
            if isinstance(self.learner, DistributedEngine):
                self.learner.gather()
            self.notes.append(f"initial weights: {source.said}")
        if not resume and ranks.first:
            begin_initial(run, config, self.learner, source)
            made = {"threads": prepared.threads, "engine": self.engine.name, "ranks": ranks.size}
            run.begin(config, provenance() | made)
        if ranks.first:
            add_notes(run.path, int(checkpoint.info["update"]) if checkpoint else 0, self.notes)
        if isinstance(self.learner, DistributedEngine):
            self.learner.gather()  # a rank that cannot write has failed by now

    def _prepare(self, setup: Setup) -> Any:
        """Environments and engine; with several ranks, this rank's share of them."""
        if not isinstance(self.ranks, TorchRanks):
            return self.target.prepare(self.config, setup)
        n: int = self.config.ppo.num_envs  # pyright: ignore[reportAttributeAccessIssue] — every target has it
        mine, first = self.target.share(self.config, self.ranks), self.ranks.share(n, "num_envs").start
        prepared = self.target.prepare(mine, replace(setup, ranks=self.ranks, first_index=first))
        size = mine.ppo.num_envs
        note = f"{self.ranks.size} ranks, {size} environments and {prepared.threads} threads each"
        prepared.notes.insert(0, note)
        return prepared

    def train(self) -> Outcome:
        """Trains until the budget is used up or a signal arrives; writes a checkpoint in both cases."""
        before, timer = self.learner.counters.clock, self.learner.timer
        recorder = self._recorder()
        asked = recorder if self.learner is self.engine else self._asked
        called_off = [False]
        with stop_on_signal(asked) as received:
            try:
                timer.skip()
                try:
                    adapt = self.target.adapt(self.config, self.engine)
                    callbacks = [_noting(callback, called_off) for callback in self._callbacks]
                    train(self.learner, self.config.updates, recorder, adapt=adapt, callbacks=[*callbacks, self._stop])
                except WorkerError as error:
                    recorder.checkpoint(self.learner)
                    if not self.learner.counters.updates:  # nothing to resume from
                        raise
                    raise WorkerError(f"{error}\n{resume_advice(error, 'train', self.run.path)}") from None
                recorder.checkpoint(self.learner)
                timer.lap("checkpoint")
            finally:
                recorder.close()
                for callback in self._callbacks:
                    getattr(callback, "close", lambda: None)()
                self.engine.env.close()
        counters = self.learner.counters
        steps = (counters.clock - before) * self.learner.num_envs
        finished = counters.updates >= self.config.updates
        number = received[0] or (0 if finished or called_off[0] else signal.SIGTERM)  # or of another rank
        return Outcome(finished, number, sum(timer.seconds.values()), steps, counters.updates)

    def _stop(self, update: Update) -> bool:
        """Ranks stop together, after the update in which one of them was asked to."""
        return isinstance(self.learner, DistributedEngine) and self.learner.stop_requested

    def _recorder(self) -> Any:
        """The recorder; only the first rank writes."""
        if not self.ranks.first:
            return SilentRecorder()
        display = make_display(self.quiet)
        return TrainingRecorder(self.run, self.config, self.learner, display, self._writers, self._checkpoint)


def _noting(callback: Callback, called_off: list[bool]) -> Callback:
    """Wraps a callback to note whether it stopped the training."""

    def call(update: Update) -> bool | None:
        stop = callback(update)
        called_off[0] = called_off[0] or bool(stop)
        return stop

    return call


class SilentRecorder:
    """Writes nothing, on all ranks but the first."""

    def __init__(self):
        self.stopping = False

    def record(self, learner: Trainable, episodes: Episodes, metrics: dict[str, NDArray]) -> None:
        pass

    def checkpoint(self, learner: Trainable) -> None:
        pass

    def close(self) -> None:
        pass


@contextmanager
def stop_on_signal(recorder: Stoppable) -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM stop a run after the current update; a second one ends the process at once.

    Only Python's main thread can handle signals; in other threads, as under Ray Tune, they are left to their owner.
    """
    received = [0]
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {}

    def stop(number: int, _frame: Any) -> None:
        received[0] = number
        recorder.stopping = True
        signal.signal(number, before[number])

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, stop)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
