"""A search run: proposes, trains, scores, confirms; resumable at any moment, its budget counted exactly.

First the search: a searcher proposes orders, q of them train side by side, each finished one is scored on fresh games
and makes room for the next. Then confirmation: the best order and some rivals, from the second best to the worst, train
from scratch on fresh seeds, and so do the controls, as further members of the same population. They are scored on games
that the search has not seen. While they leave the answer open, another batch of them is trained, up to a limit.
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

from cavalcade.config import HostConfig, SearchConfig
from cavalcade.envs.cage2.cpu import ENVIRONMENTS_PER_THREAD
from cavalcade.errors import ConfigError, RunError, WorkerError
from cavalcade.fleet import import_ray
from cavalcade.jit import all_threads
from cavalcade.plain import as_dict
from cavalcade.ppo.learner import network_for
from cavalcade.ppo.precompile import compiled_learner
from cavalcade.ppo.threads import choose_threads, use_threads
from cavalcade.runs.checkpoint import save_checkpoint
from cavalcade.runs.directory import METRICS, SEARCH, RunDirectory, provenance
from cavalcade.runs.logs import Log
from cavalcade.search.analysis import check, comparable, top_rung, verdict_of
from cavalcade.search.decisions import DECISIONS, Decision, observations, propose, resumes, searched, to_confirm
from cavalcade.search.domains import given_orders, make_environment, subtasks_of
from cavalcade.search.members import CONFIRM, CONTROL, CONTROLS, ORDER, PLAIN, UNIVERSAL, Member, Result
from cavalcade.search.members import SEARCH as SEARCHING
from cavalcade.search.policies import POLICIES
from cavalcade.search.pool import on_gpu
from cavalcade.search.records import COLUMNS, csv_row, metrics_row
from cavalcade.search.scoring import CpuScorer, Policies, Score
from cavalcade.search.searchers import GpSearcher, Proposal
from cavalcade.search.trainings import Done, LocalTrainings, Saved, Trainings
from cavalcade.workflow.orders import Order, kendall
from cavalcade.workflow.summary import COMPLIANCE

_OVERDUE = 10.0  # seconds
_SCORING = 4  # threads that play scores while a GPU trains
_SEARCHED_ON_GPU = 20  # orders in training together on a GPU, where scores decide on the next
_PER_GPU = 600  # orders in training together on a GPU, where all are known beforehand
_PER_THREAD = 4  # orders in training together; more only costs memory
_SEEDS_PER_SEARCH = 1_000_000


class Search:
    """A search in a locked directory, ready to go: new, or where its newest checkpoint left it."""

    def __init__(
        self, run: RunDirectory[SearchConfig], config: SearchConfig, *, resume: bool = False, threads: int = 0
    ):
        self.run, self.config, self.stopping = run, config, False
        if config.engine == "ray":
            import_ray(config.host.ray_address)  # or says that it is missing
        self.subtasks = subtasks_of(config)
        self.orders = self.subtasks.orders()
        given_orders(config)  # refuses what is none
        trainings = config.rounds * (len(config.orders) or len(self.orders))
        listed = config.searcher in ("exhaustive", "fixed")
        self._most = max(trainings, len(self.orders)) if listed else len(self.orders)  # members in training together
        if config.together > self._most:
            raise ConfigError(f"together is {config.together}; there are only {self._most} orders to train")
        if config.share[1] > trainings:
            raise ConfigError(f"shard is {config.shard}; there are only {trainings} trainings to share out")
        checkpoint = run.checkpoint_for(config) if resume else None
        if resume and config.device == "auto" and config.engine == "local":  # where it has run so far
            self.config = config = replace(config, device=run.meta().get("device", "cpu"))
        known = threads or (run.threads() if resume else 0)
        self.gpu = gpu = config.engine == "local" and on_gpu(config)
        if not config.host.ray_address:  # else others train
            compile_all(config, self.orders, gpu)
        self.threads = known or (_SCORING if gpu else choose_threads())
        use_threads(self.threads)
        info: dict[str, Any] = checkpoint.info if checkpoint else {}
        self.results = results_of(info)
        self.used_steps = int(info.get("used_steps", 0))  # of the search, by members that are done or in training
        self.made = int(info.get("made", 0))  # proposals
        self.members = int(info.get("members", 0))
        self.queue = [Member(**plain) for plain in info.get("queue", [])]  # to be trained after the search
        self.batches = int(info.get("batches", 0))  # of confirmation, planned so far
        self._judged = (-1, False)  # after how many results the answer was open
        self.searching = bool(info.get("searching", True))
        self.updates, self.steps = int(info.get("update", 0)), int(info.get("steps", 0))
        self.scoring_seconds = float(info.get("scoring_seconds", 0.0))
        self.seconds_before = float(info.get("seconds", 0.0))
        self._saved = (self.updates, self.searching) if checkpoint else None
        self._saved_at = time.monotonic()
        saved = Saved(checkpoint.policy, checkpoint.learner, checkpoint.environment, info) if checkpoint else None
        self.trainings = self._trainings(saved)
        if not resume:
            run.begin(config, provenance() | {"threads": self.threads, "device": "cuda" if gpu else "cpu"})
        offsets = info.get("logs", {})
        self._table = Log(run.path / SEARCH, ",".join(COLUMNS), offset=offsets.get(SEARCH))
        self._metrics = Log(run.path / METRICS, offset=offsets.get(METRICS))
        self._decisions = Log(run.path / DECISIONS, offset=offsets.get(DECISIONS))
        self._logs = (self._table, self._metrics, self._decisions)
        self._table.flush()
        self._start = time.monotonic()

    def _trainings(self, saved: Saved | None) -> Trainings:
        """Who trains: this process, or Ray."""
        if self.config.engine == "ray":
            from cavalcade.search.fleet import Fleet

            return Fleet(self.config, saved)
        together = self.config.together or self._suits_machine()
        return LocalTrainings(self.config, self.orders, self.threads, together, saved)

    def _suits_machine(self) -> int:
        """Orders in training together where the configuration leaves it open."""
        if self.config.target == "cyborg":
            return 1
        if on_gpu(self.config) and self.config.searcher in ("exhaustive", "fixed", "random"):
            return min(self._most, _PER_GPU)
        if on_gpu(self.config):
            return _SEARCHED_ON_GPU
        return _PER_THREAD * self.threads  # who learns from scores must not choose all at once

    @property
    def seconds(self) -> float:
        """Time spent on the run."""
        return self.seconds_before + time.monotonic() - self._start

    @property
    def used(self) -> float:
        """Episodes of full length that the search has used."""
        return self.used_steps / self.config.task.horizon

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        return not self.searching and not self.queue and not self.trainings.slots and not self._open()

    def advance(self) -> Iterator[Result]:
        """One update of everything in training, or with Ray what has arrived; yields what has finished."""
        self._fill()
        if not self.trainings.slots:
            return
        try:
            made = self.trainings.update()
        except WorkerError as error:
            self.checkpoint()
            raise WorkerError(f"{error}\ngo on with: cavalcade search --resume {self.run}") from None
        if made:
            self.updates += 1
            self.steps += made * self.config.steps_per_update
            self._metrics.write([metrics_row(self.updates, self.steps, self.trainings.slots, self.seconds)])
        for done in self.trainings.finished():
            for result in self._finish(done):
                self.book(result)
                yield result
        if self.updates % self.config.checkpoint_every == 0 or self._overdue():
            self._fill()
            self.checkpoint()

    def _overdue(self) -> bool:
        """With Ray, where what is counted are tasks: whether the last checkpoint is old by the clock."""
        return self.config.engine == "ray" and time.monotonic() - self._saved_at > _OVERDUE

    def book(self, result: Result) -> None:
        """Takes note of a result."""
        self.results.append(result)
        self._table.write([csv_row(result, self.subtasks, self.orders)])

    def log_decisions(self, decisions: Iterable[Decision]) -> None:
        """Writes what was decided."""
        self._decisions.write([decision.row() for decision in decisions])

    def checkpoint(self) -> None:
        """Writes a checkpoint of this moment, unless there is one."""
        if self._saved == (self.updates, self.searching):
            return
        self._saved, self._saved_at = (self.updates, self.searching), time.monotonic()
        saved = self.trainings.save()
        info = saved.info | {
            "config": as_dict(self.config),
            "network": self.trainings.network,
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
            "logs": {log.path.name: log.flush() for log in self._logs},
        }
        save_checkpoint(self.run.checkpoint_folder, self.updates, *saved[:3], info, self.config.keep)

    def close(self) -> None:
        """Writes what is held back, and ends the environments."""
        for log in self._logs:
            log.close()
        self.trainings.close()

    def ranked(self) -> list[int]:
        """The orders trained at comparable budgets, best first by posterior mean."""
        mean = self.belief().mean
        trained = {r.member.order for r in comparable(self.config, self.results, (SEARCHING, CONFIRM))}
        return sorted(trained, key=lambda order: (-mean[order], order))

    def belief(self) -> Any:
        """The posterior over all orders, confirmation included."""
        c = self.config
        searcher = GpSearcher(self.orders, c.kernel, seed=c.seed, resumed=resumes(c))
        return searcher.believe(observations(c, comparable(c, self.results, (SEARCHING, CONFIRM))), ())

    def _open(self) -> bool:
        """Whether the answer is open and another batch of trainings may decide it."""
        c = self.config
        if not c.confirm or c.shard or not 0 < self.batches < c.confirm_batches:
            return False
        if self._judged[0] != len(self.results):
            found = check(c, self.orders, self.results)
            verdict = verdict_of(c, found) if found.confirmed else None
            self._judged = len(self.results), verdict is not None and verdict.answer == "cannot tell"
        return self._judged[1]

    def _fill(self) -> None:
        """Lets up to q members train."""
        while len(self.trainings.slots) < self._room() and (member := self._next()):
            self.trainings.start(member, self._stored(member.start))

    def _room(self) -> int:
        """How many members may train now."""
        room = min(self.trainings.room, self._most)
        if isinstance(self.trainings, LocalTrainings) and self.gpu and self.queue:  # all that is left is known
            left = len(self.queue) + len(self.trainings.slots)
            self.trainings.room = room = max(room, min(left, _PER_GPU))
        return room

    def _next(self) -> Member | None:
        """The next member to train, if there is one now."""
        if self.searching:
            if member := self._propose():
                return member
            if self.trainings.slots:
                return None  # what is in training decides how to go on
            self.searching = False
            self.queue = self._plan()
        if not self.queue and not self.trainings.slots and self._open():
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
                return found  # others are somebody else's, under the same number
        return None

    def _choose(self) -> Member | None:
        """The searcher's next, if the budget allows it; nobody is asked when it cannot."""
        c = self.config
        budget = c.total_episodes * c.task.horizon
        if self.used_steps + c.steps_per_order > budget:
            return None
        in_training = [slot.member for slot in self.trainings.slots if slot.member.kind == ORDER]
        pending = [Proposal(m.order, rung=m.rung) for m in in_training if m.purpose == SEARCHING]
        proposal = propose(c, self.orders, self.results, pending, self.made)
        if proposal is None:
            return None
        factor = 3**proposal.rung  # from scratch on every rung, so that scores of a rung compare
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
        """The stored policy that a new order begins with."""
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
        """The stored policy of an order's latest training in the search, if there was one."""
        mine = [r.member for r in searched(self.results) if r.member.order == order]
        return mine[-1].stored_as if mine else ""

    def _member(self, purpose: str, kind: str, order: int, updates: int, **more: Any) -> Member:
        number = self.members
        self.members += 1
        return Member(number, purpose, kind, order, _SEEDS_PER_SEARCH * self.config.seed + number, updates, **more)

    def _plan(self) -> list[Member]:
        """What confirms the search: the best order, rivals and controls, each several times from scratch."""
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
        """Trainings of a plan, at the budget that orders were compared at."""
        c = self.config
        self.batches += 1
        rung = top_rung(searched(self.results)) if c.searcher == "halving" else 0
        updates = 3**rung * c.updates_per_order
        return [self._member(*what, updates, rung=rung) for _ in range(c.confirm) for what in plan]

    def _finish(self, done: Done) -> list[Result]:
        """Takes note of a member that is done, and keeps its policy; with evaluate-only, a result for every order."""
        slot, m = done.slot, done.slot.member
        self.scoring_seconds += done.seconds
        self._store(m.stored_as, done.policy)
        c, unused = self.config, m.updates - slot.updates
        if m.purpose == SEARCHING and not c.shard:  # shares must stop at the same number
            self.used_steps -= unused * c.steps_per_update
        found = [self._result(done, m, slot.updates, done.found)]
        for order, score in enumerate(done.by_order):
            scored = self._member(SEARCHING, ORDER, order, 0, start=m.stored_as)
            found.append(self._result(done, scored, 0, score))
        return found

    def _result(self, done: Done, member: Member, updates: int, score: Score | None) -> Result:
        """What came of a member; without a score, its training episodes say it all."""
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
        aside = folder / f".writing-{name}"
        try:
            folder.mkdir(exist_ok=True)
            save_file(policy, aside)
            aside.replace(folder / f"{name}.safetensors")
        except (OSError, SafetensorError) as error:
            raise RunError(f"{folder} cannot be written: {error}; make room and resume") from None

    def _stored(self, name: str) -> dict[str, Tensor] | None:
        """A policy that was kept, by name."""
        if not name:
            return None
        path = self.run.path / POLICIES / f"{name}.safetensors"
        try:
            return load_file(path)
        except (OSError, SafetensorError) as error:
            raise RunError(f"{path} cannot be read ({type(error).__name__}); restore it, or search anew") from None


def compile_all(config: SearchConfig, orders: list[Order], gpu: bool) -> None:
    """Compiles everything a search will need."""
    threads = all_threads()
    if config.target == "cyborg":  # hosted games are no place to try things out; those of ours look the same
        config = replace(config, target="cage2", cyborg="", host=HostConfig())
    num_envs = max(_PER_THREAD * config.ppo.num_envs, ENVIRONMENTS_PER_THREAD) * threads  # enough for all threads
    env = make_environment(config, num_envs, threads=threads)
    env.assign(slice(0, 1), order=None, seed=0)
    if not gpu:
        compiled_learner(env, config.ppo, [0])
    _, spec = network_for(env, config.ppo)
    if gpu or config.score == "tail":
        return
    scaling = np.zeros((1, spec.inputs))
    policies = Policies(spec, spec.initial_weights([0]), scaling, scaling + 1)
    CpuScorer(replace(config, score_episodes=2), orders, threads).score(
        policies, [Member(0, SEARCHING, ORDER, 0, 0, 1)]
    )


def results_of(info: Mapping[str, Any]) -> list[Result]:
    """The results that a checkpoint knows of."""
    return [Result(**{**plain, "member": Member(**plain["member"])}) for plain in info.get("results", [])]
