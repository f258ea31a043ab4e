"""A search run: proposes, trains, scores and confirms; resumable at any moment, with an exact budget.

First the search: a searcher proposes orders, q of them train side by side, and each finished one is scored on fresh
games and makes room for the next. Then the confirmation: the best order and some rivals, from the second best to the
worst, train from scratch on fresh seeds, and so do the controls, as further members of the same population. They are
scored on games that the search has not used. While the answer is open, another batch is trained, up to a limit.
"""

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from cavalcade.config.io import as_dict
from cavalcade.core.errors import ConfigError, RunError, WorkerError
from cavalcade.core.jit import all_threads
from cavalcade.core.ray_session import import_ray
from cavalcade.core.slices import short_slices
from cavalcade.core.threads import use_threads
from cavalcade.envs.cage2.cpu import ENVIRONMENTS_PER_THREAD
from cavalcade.ppo.engine import network_for
from cavalcade.ppo.precompile import compiled_engine
from cavalcade.ppo.threads import choose_threads
from cavalcade.runs.advice import resume_advice
from cavalcade.runs.checkpoint import save_checkpoint
from cavalcade.runs.directory import RunDirectory, provenance
from cavalcade.runs.durable import make_folder, replacing
from cavalcade.runs.files import DECISIONS, METRICS, SEARCH
from cavalcade.runs.history import check_changes, record_changes
from cavalcade.runs.logs import Log, check_sizes
from cavalcade.search.analysis import check, comparable, top_rung, verdict_of
from cavalcade.search.config import SearchConfig, simulated
from cavalcade.search.decisions import Decision, belief, propose, resumes, searched, to_confirm
from cavalcade.search.domains import domain_of, given_orders, make_environment, subtasks_of
from cavalcade.search.executor import Done, Executor, LocalExecutor
from cavalcade.search.gp import Posterior
from cavalcade.search.members import CONFIRM, CONTROL, CONTROLS, ORDER, PLAIN, SEARCHING, UNIVERSAL, Member, Result
from cavalcade.search.policies import POLICIES
from cavalcade.search.pool import SavedPool, on_gpu
from cavalcade.search.records import COLUMNS, csv_row, metrics_row
from cavalcade.search.scoring import CpuScorer, Policies, Score
from cavalcade.search.searchers import Proposal
from cavalcade.workflow.orders import Order, kendall
from cavalcade.workflow.summary import COMPLIANCE

_OVERDUE = 10.0  # seconds
_SCORING = 4  # CPU threads for scoring while a GPU trains
_SEARCHED_ON_GPU = 20  # orders in training on a GPU, if scores decide on the next
_PER_GPU = 600  # orders in training on a GPU, if all are known beforehand
_PER_THREAD = 4  # orders in training; more would only cost memory
_SEEDS_PER_SEARCH = 1_000_000


class Search:
    """A search in a locked directory, ready to run: new, or restored from its newest checkpoint."""

    def __init__(
        self, run: RunDirectory[SearchConfig], config: SearchConfig, *, resume: bool = False, threads: int = 0
    ):
        self.run, self.config, self.stopping = run, config, False
        if config.executor == "ray":
            import_ray(config.ray.ray_address)  # raises if it is missing
        self.subtasks = subtasks_of(config)
        self.orders = self.subtasks.orders()
        given_orders(config)  # raises for unknown orders
        domain_of(config).check(config)
        trainings = config.rounds * (len(config.orders) or len(self.orders))
        listed = config.searcher in ("exhaustive", "fixed")
        self._most = max(trainings, len(self.orders)) if listed else len(self.orders)  # members in training at once
        if config.parallel_orders > self._most:
            raise ConfigError(
                f"parallel_orders is {config.parallel_orders}; there are only {self._most} orders to train"
            )
        if config.share[1] > trainings:
            raise ConfigError(f"shard is {config.shard}; there are only {trainings} trainings to share out")
        if resume:
            check_changes(run, config)
        checkpoint = run.checkpoint_for(config) if resume else None
        given = config
        if resume and config.device == "auto" and config.executor == "local":  # keep the device
            self.config = config = replace(config, device=run.meta().get("device", "cpu"))
        known = threads or (run.threads() if resume else 0)
        self.gpu = gpu = config.executor == "local" and on_gpu(config)
        if not config.ray.ray_address:  # otherwise other machines train
            compile_all(config, self.orders, gpu)
        short_slices()
        self.threads = known or (_SCORING if gpu else choose_threads())
        use_threads(self.threads)
        info: dict[str, Any] = checkpoint.info if checkpoint else {}
        offsets = info.get("logs", {})
        check_sizes(run.path, offsets)
        self.results = results_of(info)
        self.used_steps = int(info.get("used_steps", 0))  # of the budget, by members done or in training
        self.made = int(info.get("made", 0))  # proposals
        self.members = int(info.get("members", 0))
        self.queue = [Member(**plain) for plain in info.get("queue", [])]  # to be trained after the search
        self.batches = int(info.get("batches", 0))  # of confirmation, planned so far
        self._judged = (-1, False)  # number of results judged, and whether the answer was open
        self.searching = bool(info.get("searching", True))
        self.updates, self.steps = int(info.get("update", 0)), int(info.get("steps", 0))
        self.scoring_seconds = float(info.get("scoring_seconds", 0.0))
        self.seconds_before = float(info.get("seconds", 0.0))
        self._saved = (self.updates, self.searching) if checkpoint else None
        self._saved_at = time.monotonic()
        saved = SavedPool(checkpoint.snapshot, info) if checkpoint else None
        self.executor = self._executor(saved)
        if resume:
            record_changes(run, given, checkpoint)
        else:
            run.begin(config, provenance() | {"threads": self.threads, "device": "cuda" if gpu else "cpu"})
        self._table = Log(run.path / SEARCH, ",".join(COLUMNS), offset=offsets.get(SEARCH))
        self._metrics = Log(run.path / METRICS, offset=offsets.get(METRICS))
        self._decisions = Log(run.path / DECISIONS, offset=offsets.get(DECISIONS))
        self._logs = (self._table, self._metrics, self._decisions)
        self._table.flush()
        self._start = time.monotonic()

    def _executor(self, saved: SavedPool | None) -> Executor:
        if self.config.executor == "ray":
            from cavalcade.search.ray_executor import RayExecutor

            return RayExecutor(self.config, saved)
        room = self.config.parallel_orders or self._suits_machine()
        return LocalExecutor(self.config, self.orders, self.threads, room, saved)

    def _suits_machine(self) -> int:
        """Orders in training at once, if the configuration does not say."""
        if domain_of(self.config).hosted:
            return 1
        if on_gpu(self.config) and self.config.searcher in ("exhaustive", "fixed", "random"):
            return min(self._most, _PER_GPU)
        if on_gpu(self.config):
            return _SEARCHED_ON_GPU
        return _PER_THREAD * self.threads  # a searcher that learns from scores must not choose all at once

    @property
    def seconds(self) -> float:
        """Seconds spent on the run, before a resume included."""
        return self.seconds_before + time.monotonic() - self._start

    @property
    def used(self) -> float:
        """Budget used by the search, in full-length episodes."""
        return self.used_steps / self.config.task.horizon

    @property
    def done(self) -> bool:
        """Whether search and confirmation are complete."""
        return not self.searching and not self.queue and not self.executor.slots and not self._open()

    def advance(self) -> Iterator[Result]:
        """One update of all members in training, or with Ray one task's result; yields finished trainings."""
        self._fill()
        if not self.executor.slots:
            return
        try:
            made = self.executor.update()
        except WorkerError as error:
            self.checkpoint()
            if not self.updates:  # nothing to resume from
                raise
            raise WorkerError(f"{error}\n{resume_advice(error, 'search', self.run.path)}") from None
        if made:
            self.updates += 1
            self.steps += made * self.config.steps_per_update
            self._metrics.write([metrics_row(self.updates, self.steps, self.executor.slots, self.seconds)])
        for done in self.executor.finished():
            for result in self._finish(done):
                self.record(result)
                yield result
        if self.updates % self.config.checkpoint_every == 0 or self._overdue():
            self._fill()
            self.checkpoint()

    def _overdue(self) -> bool:
        """Whether the last checkpoint is too old; with Ray only, where an update takes as long as a task."""
        return self.config.executor == "ray" and time.monotonic() - self._saved_at > _OVERDUE

    def record(self, result: Result) -> None:
        """Records a result."""
        self.results.append(result)
        self._table.write([csv_row(result, self.subtasks, self.orders)])

    def log_decisions(self, decisions: Iterable[Decision]) -> None:
        self._decisions.write([decision.row() for decision in decisions])

    def checkpoint(self) -> None:
        """Writes a checkpoint, unless nothing has changed since the last one."""
        if self._saved == (self.updates, self.searching):
            return
        self._saved, self._saved_at = (self.updates, self.searching), time.monotonic()
        saved = self.executor.save()
        info = saved.info | {
            "config": as_dict(self.config),
            "network": self.executor.network,
            "update": self.updates,
            "steps": self.steps,
            "results": [asdict(result) for result in self.results],
            "used_steps": self.used_steps,
            "made": self.made,
            "members": self.members,
            "queue": [asdict(member) for member in self.queue],
            "batches": self.batches,
            "searching": self.searching,
            "scoring_seconds": self.scoring_seconds,
            "seconds": self.seconds,
            "logs": {log.path.name: log.sync() for log in self._logs},
        }
        save_checkpoint(self.run.checkpoint_folder, self.updates, saved.snapshot, info, self.config.keep_checkpoints)

    def close(self) -> None:
        """Flushes the logs, and closes the executor."""
        for log in self._logs:
            log.close()
        self.executor.close()

    def ranked(self) -> list[int]:
        """Orders trained at comparable budgets, best first by posterior mean."""
        mean = self.belief().mean
        trained = {r.member.order for r in comparable(self.config, self.results, (SEARCHING, CONFIRM))}
        return sorted(trained, key=lambda order: (-mean[order], order))

    def belief(self) -> Posterior:
        """Posterior over all orders, confirmation included."""
        return belief(self.config, self.orders, self.results)

    def _open(self) -> bool:
        """Whether the answer is open and another confirmation batch is allowed."""
        c = self.config
        if not c.confirm or c.shard or not 0 < self.batches < c.confirm_batches:
            return False
        if self._judged[0] != len(self.results):
            found = check(c, self.orders, self.results)
            verdict = verdict_of(c, found) if found.confirmed else None
            self._judged = len(self.results), verdict is not None and verdict.answer == "cannot tell"
        return self._judged[1]

    def _fill(self) -> None:
        """Starts members until q are in training."""
        while len(self.executor.slots) < self._room() and (member := self._next()):
            self.executor.start(member, self._stored(member.start))

    def _room(self) -> int:
        """How many members may train now."""
        room = min(self.executor.room, self._most)
        if isinstance(self.executor, LocalExecutor) and self.gpu and self.queue:  # all remaining members are known
            left = len(self.queue) + len(self.executor.slots)
            self.executor.room = room = max(room, min(left, _PER_GPU))
        return room

    def _next(self) -> Member | None:
        """The next member to train, or None for now."""
        if self.searching:
            if member := self._propose():
                return member
            if self.executor.slots:
                return None  # results of members in training decide what is next
            self.searching = False
            self.queue = self._plan()
        if not self.queue and not self.executor.slots and self._open():
            self.queue = self._plan_again()
        return self.queue.pop(0) if self.queue else None

    def _propose(self) -> Member | None:
        c = self.config
        if c.warm_start == "universal" and self.members < (c.rounds if c.evaluate_only else 1):
            self.used_steps += c.universal_updates * c.steps_per_update
            return self._member(SEARCHING, UNIVERSAL, -1, c.universal_updates)
        if c.evaluate_only:
            return None
        if c.warm_start == "universal" and not any(r.member.kind == UNIVERSAL for r in self.results):
            return None
        listed = c.searcher in ("exhaustive", "fixed")
        if not listed and self.made >= c.n_workflows:
            return None
        while (found := self._choose()) is not None:
            which, shares = c.share
            self.members += 1
            if (self.made - 1) % shares == which:
                return found  # the others belong to other shards, under the same number
        return None

    def _choose(self) -> Member | None:
        """The searcher's next proposal, or None if the budget does not allow it."""
        c = self.config
        budget = c.total_episodes * c.task.horizon
        if self.used_steps + c.steps_per_order > budget:
            return None
        in_training = [slot.member for slot in self.executor.slots if slot.member.kind == ORDER]
        pending = [Proposal(m.order, rung=m.rung) for m in in_training if m.purpose == SEARCHING]
        proposal = propose(c, self.orders, self.results, pending, self.made)
        if proposal is None:
            return None
        factor = 3**proposal.rung  # from scratch on every rung, so that its scores are comparable
        steps = factor * c.steps_per_order
        if self.used_steps + steps > budget:
            return None
        self.used_steps += steps
        self.made += 1
        which, shares = c.share
        if (self.made - 1) % shares == which:
            self._log_decision(proposal, pending)
        own = self._newest(proposal.order) if resumes(c) else ""  # else every training is from scratch
        start = own or self._warm_start(proposal.order)
        beliefs = {"mean": proposal.mean, "deviation": proposal.deviation, "bound": proposal.bound}
        updates, seed = factor * c.updates_per_order, _SEEDS_PER_SEARCH * c.seed + self.members
        return Member(
            self.members, SEARCHING, ORDER, proposal.order, seed, updates, start=start, resume=bool(own),
            rung=proposal.rung, **beliefs,
        )  # fmt: skip

    def _log_decision(self, proposal: Proposal, pending: list[Proposal]) -> None:
        known = [r.member.number for r in self.results]
        training = [[p.order, p.rung] for p in pending]
        self.log_decisions([Decision(self.members, proposal.order, proposal.rung, self.made - 1, known, training)])

    def _warm_start(self, order: int) -> str:
        """Name of the stored policy that a new order begins with."""
        trained = [r.member.order for r in searched(self.results)]
        kind = self.config.warm_start
        if kind == "universal":
            return next(r.member.stored_as for r in self.results if r.member.kind == UNIVERSAL)
        if kind == "none" or not trained:
            return ""
        if kind == "last":
            return self._newest(trained[-1])
        return self._newest(min(trained, key=lambda other: kendall(self.orders[order], self.orders[other])))

    def _newest(self, order: int) -> str:
        """Name of the stored policy of an order's latest training in the search; empty if there is none."""
        mine = [r.member for r in searched(self.results) if r.member.order == order]
        return mine[-1].stored_as if mine else ""

    def _member(self, purpose: str, kind: str, order: int, updates: int, **more: Any) -> Member:
        number = self.members
        self.members += 1
        return Member(number, purpose, kind, order, _SEEDS_PER_SEARCH * self.config.seed + number, updates, **more)

    def _plan(self) -> list[Member]:
        """Trainings of the confirmation: the best order, rivals and controls, each several times from scratch."""
        c = self.config
        if not c.confirm or c.shard:
            return []
        chosen = to_confirm(self.ranked(), c.rivals)
        plan = [(CONFIRM, ORDER, order) for order in chosen]
        if c.controls:
            plan += [(CONTROL, kind, chosen[0] if kind == PLAIN else -1) for kind in CONTROLS]
        return self._batch(plan)

    def _plan_again(self) -> list[Member]:
        """Another batch of the same orders and controls."""
        said = [(m.purpose, m.kind, m.order) for m in (r.member for r in self.results) if m.purpose != SEARCHING]
        return self._batch(list(dict.fromkeys(said)))

    def _batch(self, plan: list[tuple[str, str, int]]) -> list[Member]:
        """Members of a plan, at the budget at which orders were compared."""
        c = self.config
        self.batches += 1
        rung = top_rung(searched(self.results)) if c.searcher == "halving" else 0
        updates = 3**rung * c.updates_per_order
        return [self._member(*what, updates, rung=rung) for _ in range(c.confirm) for what in plan]

    def _finish(self, done: Done) -> list[Result]:
        """Stores the policy of a finished member; returns its result, and with evaluate-only one per order."""
        slot, m = done.slot, done.slot.member
        self.scoring_seconds += done.seconds
        self._store(m.stored_as, done.policy)
        c, unused = self.config, m.updates - slot.updates
        if m.purpose == SEARCHING and not c.shard:  # all shards must stop at the same number
            self.used_steps -= unused * c.steps_per_update
        found = [self._result(done, m, slot.updates, done.found)]
        for order, score in enumerate(done.by_order):
            scored = self._member(SEARCHING, ORDER, order, 0, start=m.stored_as)
            found.append(self._result(done, scored, 0, score))
        return found

    def _result(self, done: Done, member: Member, updates: int, score: Score | None) -> Result:
        """Result of a member; without a score, from its training episodes."""
        c, latest = self.config, done.slot.latest
        steps = updates * c.steps_per_update
        means = score.means if score else latest
        mean, error = (score.mean, score.error) if score else (done.tail, done.tail_error)
        names = ("compliance", "counted", "true_compliance", "true_counted", "choice", "original", "chance", "binding")
        aligned = latest.get(COMPLIANCE[c.workflow.compliance], math.nan)
        passed = not c.compliance_threshold or aligned >= c.compliance_threshold
        return Result(
            member=member, stop=done.why, updates=updates, episodes=steps / c.task.horizon, steps=steps, used=self.used,
            score=mean, error=error, heldout=score.mean if score else math.nan, tail=done.tail,
            **{name: latest.get(name, math.nan) for name in ("task", "bonus", "total", "multiplier")},
            **{name: means.get(name, math.nan) for name in names},
            bound=[means.get(name, 0.0) for name in self.subtasks.pair_names()],
            training_compliance=aligned, passed=bool(passed), seconds=self.seconds,
        )  # fmt: skip

    def _store(self, name: str, policy: dict[str, Tensor]) -> None:
        folder = self.run.path / POLICIES
        try:
            make_folder(folder)
            with replacing(folder / f"{name}.safetensors") as aside:
                save_file(policy, aside)
        except (OSError, SafetensorError) as error:
            raise RunError(f"{folder} cannot be written: {error}; free disk space and resume") from None

    def _stored(self, name: str) -> dict[str, Tensor] | None:
        if not name:
            return None
        path = self.run.path / POLICIES / f"{name}.safetensors"
        try:
            return load_file(path)
        except (OSError, SafetensorError) as error:
            raise RunError(f"{path} cannot be read ({type(error).__name__}); restore it, or search again") from None


def compile_all(config: SearchConfig, orders: list[Order], gpu: bool) -> None:
    """Compiles everything that a search needs."""
    threads = all_threads()
    config = simulated(config)  # hosted games are not stepped before training; ours have the same interface
    num_envs = max(_PER_THREAD * config.ppo.num_envs, ENVIRONMENTS_PER_THREAD) * threads  # enough for all threads
    env = make_environment(config, num_envs, threads=threads)
    env.assign(slice(0, 1), order=None, seed=0)
    if not gpu:
        compiled_engine(env, config.ppo, [0])
    _, spec = network_for(env, config.ppo)
    if gpu or config.score == "tail":
        return
    scaling = np.zeros((1, spec.inputs))
    policies = Policies(spec, spec.initial_weights([0]), scaling, scaling + 1)
    CpuScorer(replace(config, score_episodes=2), orders, threads).score(
        policies, [Member(0, SEARCHING, ORDER, 0, 0, 1)]
    )


def results_of(info: Mapping[str, Any]) -> list[Result]:
    """The results in a checkpoint."""
    return [Result(**{**plain, "member": Member(**plain["member"])}) for plain in info.get("results", [])]
