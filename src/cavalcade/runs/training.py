"""A training run from beginning to end: environment, learner, record; new or resumed; stopped cleanly or not at all."""

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from numpy.typing import NDArray

from cavalcade.config import AnyTrainConfig, GymTrainConfig, TrainConfig
from cavalcade.config_mettagrid import MettagridTrainConfig
from cavalcade.device import Device
from cavalcade.envs.contract import Environment
from cavalcade.errors import WorkerError
from cavalcade.jit import all_threads
from cavalcade.plain import as_dict
from cavalcade.ppo.fused.learner import FusedLearner, why_not
from cavalcade.ppo.make import make_learner
from cavalcade.ppo.parallel import ParallelLearner
from cavalcade.ppo.precompile import StandIn, compiled_learner
from cavalcade.ppo.ranks import ALONE, Ranks, TorchRanks
from cavalcade.ppo.resident.learner import ResidentLearner
from cavalcade.ppo.resident.make import resident_device, resident_learner
from cavalcade.ppo.rollout import Ended
from cavalcade.ppo.threads import choose_threads, choose_torch_threads, use_threads, use_torch_threads
from cavalcade.ppo.torch_learner import TorchLearner
from cavalcade.ppo.trainer import Adapt, Trainee, train
from cavalcade.runs.directory import RunDirectory, provenance
from cavalcade.runs.display import make_display
from cavalcade.runs.environments import environment_for
from cavalcade.runs.intervals import MettagridRecorder
from cavalcade.runs.mettagrid import learner_for
from cavalcade.runs.ranks import check_parallel, checkpoint_everywhere, share_of
from cavalcade.runs.recorder import TrainingRecorder
from cavalcade.runs.writers import make_writer
from cavalcade.vector.hosted import Hosted, cores
from cavalcade.workflow.tracking import WorkflowEnvironment


@dataclass(frozen=True)
class Outcome:
    """How a training ended."""

    finished: bool
    signal: int  # that stopped it, or 0
    seconds: float
    steps: int


class Training:
    """A run in a locked directory, ready to go: new, or where its newest checkpoint left it."""

    def __init__(
        self,
        run: RunDirectory,
        config: AnyTrainConfig,
        *,
        resume: bool = False,
        threads: int = 0,
        quiet: bool = False,
        writers: Sequence[str] = (),
        ranks: Ranks = ALONE,
    ):
        self.run, self.config, self.quiet, self.ranks = run, config, quiet, ranks
        checkpoint = checkpoint_everywhere(run, config, ranks) if resume else None
        before = run.meta() if resume and ranks.first else {}
        known = threads or (int(before["threads"]) if resume and ranks.size == before.get("ranks", 1) == 1 else 0)
        self.learner: Trainee
        self.notes: list[str] = []
        self._was: Device | None = None  # where a resumed run has run
        if resume:
            self._was = "cuda" if before.get("learner") == ResidentLearner.name else "cpu"
        if isinstance(ranks, TorchRanks):
            threads = self._prepare_rank(config, known, ranks)
        elif isinstance(config, MettagridTrainConfig):
            threads = self._prepare_bptt(config, known)
        else:
            threads = self._prepare_population(config, known)
        if not isinstance(ranks, TorchRanks):
            self._games = self.env  # of this process
        self.env.reset()
        if checkpoint:
            self.env.load_state(checkpoint.environment)
            self.learner.load_tensors(checkpoint.policy, checkpoint.learner)
            if not self.env.continues:
                self.learner.forget_games()
        if isinstance(self.learner, ResidentLearner):
            self.learner.restore()
        if resume and ranks.first and (then := before.get("ranks", 1)) != ranks.size:
            change = "results change by the order of summation only"
            self.notes.append(f"ranks were {then} when the run was begun and are {ranks.size} now; {change}")
        self._checkpoint = checkpoint
        self._writers = [make_writer(name, run.path, as_dict(config)) for name in writers] if ranks.first else []
        if not resume and ranks.first:
            made = {"threads": threads, "learner": self.learner.name, "ranks": ranks.size}
            run.begin(config, provenance() | made)
        if isinstance(self.learner, ParallelLearner):
            self.learner.snap()  # whoever cannot write has said so by now

    def _prepare_population(self, config: TrainConfig | GymTrainConfig, known: int) -> int:
        """Environment and learner of policies without memory; returns how many threads they use."""
        if type(config) is TrainConfig:
            named = config.device if self._was is None or config.device != "auto" else self._was
            device, self.notes = resident_device(named, config.ppo, config.task.horizon)
            if device.type == "cuda":
                return self._prepare_resident(config, device)
        trial = environment_for(config, all_threads())
        self._compile(trial, config)
        threads = known or choose_threads()
        use_threads(threads)
        self.env = environment_for(config, threads) if trial.continues else trial
        if isinstance(config, GymTrainConfig) and config.host.backend == "ray":
            self.learner, notes = self._fragments(config), []
        else:
            self.learner, notes = make_learner(self.env, config.ppo, config.seeds)
        self.notes = [*self.notes, *notes]
        if isinstance(self.learner, TorchLearner):
            torch.set_num_threads(known or choose_torch_threads())
        return threads

    def _fragments(self, config: GymTrainConfig) -> Trainee:
        """The learner of environments in Ray actors, which play by themselves."""
        from cavalcade.ppo.fragments import FragmentLearner

        assert isinstance(self.env, Hosted)
        h = config.host
        actors = len(self.env.groups)
        self.notes = [f"on Ray: {actors} actors with {config.ppo.num_envs // actors} environments each"]
        return FragmentLearner(self.env, config.ppo, config.seeds, staleness=h.staleness, vtrace=h.correction)

    def _compile(self, trial: Environment, config: TrainConfig | GymTrainConfig) -> None:
        """Compiles what the learner of an environment needs, by trying it out."""
        if trial.continues:
            compiled_learner(trial, config.ppo, config.seeds)
        elif isinstance(config, GymTrainConfig) and config.host.backend == "ray":
            return  # actors and their learner are plain torch
        elif not why_not(trial, config.ppo, distinct=False):  # hosted games are no place to try things out
            compiled_learner(StandIn(**StandIn.looks_of(trial)), config.ppo, config.seeds[:1])

    def _prepare_rank(self, config: AnyTrainConfig, known: int, ranks: TorchRanks) -> int:
        """This rank's share of environment and learner; returns how many threads it uses."""
        check_parallel(config)
        mine, first = share_of(config, ranks), ranks.share(config.ppo.num_envs, "num_envs").start
        threads = known or max(1, cores() // ranks.local_size)
        use_threads(threads)
        if ranks.local_rank:  # the first compiles for all
            ranks.barrier()
        env = environment_for(mine, threads, first)
        if not isinstance(mine, MettagridTrainConfig):
            self._compile(env, mine)
        if env.continues:  # it may have been tried out
            env = environment_for(mine, threads, first)
        if not ranks.local_rank:
            ranks.barrier()
        if isinstance(mine, MettagridTrainConfig):
            learner, notes = learner_for(env, mine, ranks), []
        else:
            learner, notes = make_learner(env, mine.ppo, mine.seeds, ranks=ranks)
        if not isinstance(learner, FusedLearner):
            torch.set_num_threads(threads)
        self.learner = ParallelLearner(learner, ranks)
        self._games, self.env = env, self.learner.env
        self.notes = [f"{ranks.size} ranks, {mine.ppo.num_envs} environments and {threads} threads each", *notes]
        if torch.cuda.is_available() and not isinstance(mine, MettagridTrainConfig):
            self.notes.append("on CPUs: ranks do not share trainings on GPUs, except of mettagrid")
        return threads

    def _prepare_resident(self, config: TrainConfig, device: torch.device) -> int:
        """Games and learner on a GPU; no threads of the host."""
        self.env = environment_for(config, 1)
        self.learner = resident_learner(self.env, config.ppo, config.seeds, device, config.precision)
        self.notes = [*self.notes, f"on {torch.cuda.get_device_name(device)}", *self.learner.notes]
        return 0

    def _prepare_bptt(self, config: MettagridTrainConfig, known: int) -> int:
        """Arenas and learner of a policy with memory; returns how many threads learning uses."""
        threads = known or choose_torch_threads()
        use_torch_threads(threads)
        self.env = environment_for(config, threads)
        try:
            self.learner = learner_for(self.env, config)
        except BaseException:
            self.env.close()
            raise
        return threads

    def train(self) -> Outcome:
        """Trains until the budget is spent or a signal comes; either way a checkpoint of that moment is left."""
        before, timer = self.learner.state.clock, self.learner.timer
        recorder = self._recorder()
        asked: Any = recorder
        if isinstance(self.learner, ParallelLearner):
            asked = SilentRecorder()  # ranks stop together, after the update in which one of them was asked to
            self.learner.watched_by(recorder, asked)
        with stop_on_signal(asked) as received:
            try:
                timer.skip()
                try:
                    train(self.learner, self.config.updates, recorder, self._adapt())
                except WorkerError as error:
                    recorder.checkpoint(self.learner)
                    raise WorkerError(f"{error}\ngo on with: cavalcade train --resume {self.run}") from None
                recorder.checkpoint(self.learner)
                timer.lap("checkpoint")
            finally:
                recorder.close()
                self.env.close()
        steps = (self.learner.state.clock - before) * self.env.spec.num_envs
        finished = self.learner.state.updates >= self.config.updates
        number = received[0] or (0 if finished else signal.SIGTERM)  # another rank may have got it
        return Outcome(finished, number, sum(timer.seconds.values()), steps)

    def _adapt(self) -> Adapt | None:
        """What follows the compliance of each update: the multipliers of orders enforced by a cost."""
        config, env = self.config, self._games
        if not isinstance(env, WorkflowEnvironment) or not isinstance(config, TrainConfig):
            return None
        if config.workflow.enforce != "lagrangian":
            return None

        def adapt(episodes: Ended) -> dict[str, NDArray]:
            given = (episodes.policy, episodes.figures, config.policies, config.workflow.follow_threshold)
            multipliers = env.adapt_multipliers(*given).copy()
            if isinstance(self.learner, ResidentLearner):
                self.learner.games.push_weights()
            return {"multiplier": multipliers}

        return adapt

    def _recorder(self) -> Any:
        """Who writes the record; of several ranks, the first."""
        if not self.ranks.first:
            return SilentRecorder()
        kind: Any = MettagridRecorder if isinstance(self.config, MettagridTrainConfig) else TrainingRecorder
        return kind(self.run, self.config, self.learner, make_display(self.quiet), self._writers, self._checkpoint)


class SilentRecorder:
    """Writes nothing: another rank does."""

    def __init__(self):
        self.stopping = False

    def record(self, learner: Trainee, episodes: Ended, metrics: dict[str, NDArray]) -> None:
        """Nothing."""

    def checkpoint(self, learner: Trainee) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Stoppable(Protocol):
    """Anything that can be asked to stop."""

    stopping: bool


@contextmanager
def stop_on_signal(recorder: Stoppable) -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM end a run after the update under way; a second one ends the process at once.

    Python lets only the main thread take signals; in another, as under Ray Tune, they are left to whoever has it.
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
