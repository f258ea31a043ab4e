"""Trains members of a search in Ray tasks, on one machine or many.

A task receives a shard (a few members with their state) and trains it for a number of updates. Tasks are stateless:
each returns the new state of its shard, so that a task whose node is lost is submitted again with the same result, and
nothing is counted twice. Shards run at their own pace; none waits for the slowest. Games in CybORG cannot be saved, so
that a training there is one task.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import Tensor

from cavalcade.config.io import as_dict, from_dict
from cavalcade.core.errors import ConfigError, WorkerError
from cavalcade.core.ray_session import connected, last_line, total
from cavalcade.core.threads import use_threads
from cavalcade.ppo.snapshot import Counters, Snapshot
from cavalcade.search.config import SearchConfig
from cavalcade.search.domains import domain_of
from cavalcade.search.executor import Done, done, make_scorer
from cavalcade.search.members import Member
from cavalcade.search.pool import Pool, SavedPool, Slot
from cavalcade.vector.hosted import default_workers

_LOOK = 10.0  # seconds without a result after which the cluster is checked
_START, _STATE = "start", "state"  # prefixes of the names of a shard's tensors in a checkpoint


@dataclass(frozen=True)
class TaskResult:
    """What a task returns: slots and state of its shard, finished members, and the number of updates."""

    slots: list[Slot]
    state: SavedPool | None
    done: list[Done]
    updates: int


@dataclass
class Shard:
    """Members that train in one task after the other."""

    slots: list[Slot]
    starts: Sequence[Mapping[str, Tensor] | None]  # initial policy of each
    state: SavedPool | None = None  # None before the first task
    losses: int = 0  # consecutive lost tasks


def train_shard(
    plain: dict[str, Any], slots: list[Slot], starts: list[Any], state: SavedPool | None, updates: int
) -> TaskResult:
    """The Ray task: trains members for a number of updates, and scores those that finish."""
    config = from_dict(SearchConfig, plain)
    domain, threads = domain_of(config), max(1, config.ray.task_cpus)
    domain.check(config)
    if domain.hosted and not config.host.workers:
        workers = default_workers(config.host, config.ppo.num_envs, threads)
        config = replace(config, host=replace(config.host, workers=workers))
    orders = domain.subtasks.orders()
    use_threads(threads)
    pool = Pool(config, orders, len(slots), threads)
    scorer = make_scorer(config, orders, threads)
    try:
        if state:
            pool.load(state)
        else:
            for i, (slot, stored) in enumerate(zip(slots, starts, strict=True)):
                pool.start(i, slot.member, stored)
        made, over = 0, list[Done]()
        for _ in range(updates):
            pool.update()
            made += len(pool.busy)
            over += done(pool, scorer)
            if not pool.busy:
                return TaskResult([], None, over, made)
        if len(pool.busy) < len(slots):
            pool = pool.resized(pool.busy, len(pool.busy))
        saved = pool.save()
        policy = {name: tensor.clone() for name, tensor in saved.snapshot.policy.items()}  # a view sends its base
        saved = saved._replace(snapshot=saved.snapshot._replace(policy=policy))
        return TaskResult([slot for slot in pool.slots if slot], saved, over, made)
    finally:
        pool.env.close()
        if scorer:
            scorer.close()


class RayExecutor:
    """Trains shards, each in one Ray task at a time."""

    def __init__(self, config: SearchConfig, saved: SavedPool | None = None):
        self._config, r = config, config.ray
        plain = as_dict(replace(config, device="cuda" if r.task_gpus else "cpu"))
        self._stack = ExitStack()
        self._ray = ray = self._stack.enter_context(connected(config.ray.ray_address))
        self._plain = ray.put(plain)
        self._task = ray.remote(num_cpus=r.task_cpus, num_gpus=r.task_gpus, max_retries=0)(train_shard)
        self._waiting: list[Shard] = []  # to be submitted
        self._running: dict[Any, Shard] = {}
        self._done: list[Done] = []
        cpus, gpus = total(ray, "CPU"), total(ray, "GPU")
        alive = sum(node["Alive"] for node in ray.nodes())
        nodes = f"{alive} node{'s' * (alive != 1)}"
        self.notes = [f"on Ray: {nodes}, {cpus} CPUs, {gpus} GPUs; a task takes {r.task_cpus} and {r.task_gpus:g}"]
        if domain_of(config).hosted:
            self.notes.append("a training in CybORG is one task; one that is lost or stopped starts again")
        self.network: dict[str, Any] = {}
        if not self._fits():
            self._stack.close()
            needs = f"task_cpus is {r.task_cpus} and task_gpus {r.task_gpus:g}"
            raise ConfigError(f"{needs}; no node of the cluster has as many")
        if saved:
            self._load(saved)

    @property
    def slots(self) -> list[Slot]:
        return [slot for s in (*self._running.values(), *self._waiting) for slot in s.slots]

    @property
    def room(self) -> int:
        """As many members as the CPUs or GPUs of living nodes allow."""
        r = self._config.ray
        tasks = total(self._ray, "GPU") / r.task_gpus if r.task_gpus else total(self._ray, "CPU") // r.task_cpus
        return self._config.parallel_orders or max(1, int(tasks)) * r.task_orders

    def start(self, member: Member, stored: Mapping[str, Tensor] | None) -> None:
        """Adds a member to a shard, whose task is submitted by the next `update`."""
        last = self._waiting[-1] if self._waiting else None
        if last is None or last.state or len(last.slots) >= self._config.ray.task_orders:
            self._waiting.append(Shard([], []))
        s = self._waiting[-1]
        s.slots, s.starts = [*s.slots, Slot(member)], [*s.starts, stored]

    def update(self) -> int:
        """Submits waiting shards and collects the first task that is done; returns 0 if none is for a while."""
        for s in self._waiting:
            self._submit(s)
        self._waiting.clear()
        found, _ = self._ray.wait(list(self._running), num_returns=1, timeout=_LOOK)
        if not found:
            self._look()
            return 0
        (ready,) = found
        s = self._running.pop(ready)
        lost = self._ray.exceptions
        try:
            step: TaskResult = self._ray.get(ready)
        except lost.RayTaskError as error:  # our own error, which would occur on any node
            self._waiting.append(s)
            raise WorkerError(f"a task of Ray failed: {last_line(error)}") from None
        except lost.RayError as error:  # the node, the worker or its result is lost
            s.losses += 1
            self._waiting.append(s)
            if s.losses > self._config.ray.max_losses:
                raise WorkerError(f"a task of Ray was lost {s.losses} times: {last_line(error)}") from None
            self.notes.append(f"lost: {type(error).__name__}; {len(s.slots)} orders continue from their last state")
            return 0
        self._done += step.done
        if step.slots:
            self._submit(Shard(step.slots, [None] * len(step.slots), step.state))
        return step.updates

    def _look(self) -> None:
        """Adds a note, once, if tasks wait because no living node is large enough."""
        note = "no living node has the CPUs or GPUs that a task takes; waiting for one"
        if note not in self.notes and not self._fits():
            self.notes.append(note)

    def _fits(self) -> bool:
        """Whether any living node can run a task."""
        r = self._config.ray
        nodes = (node["Resources"] for node in self._ray.nodes() if node["Alive"])
        return any(n.get("CPU", 0) >= r.task_cpus and n.get("GPU", 0) >= r.task_gpus for n in nodes)

    def finished(self) -> list[Done]:
        found, self._done = self._done, []
        return found

    def save(self) -> SavedPool:
        parts: tuple[dict[str, Any], ...] = ({}, {}, {})
        shards = []
        for i, s in enumerate((*self._running.values(), *self._waiting)):
            for j, stored in enumerate(s.starts):
                parts[0].update({f"{_START}/{i}/{j}/{name}": tensor for name, tensor in (stored or {}).items()})
            for kept, mine in zip(parts, s.state.snapshot[:3] if s.state else (), strict=False):
                kept.update({f"{_STATE}/{i}/{name}": value for name, value in mine.items()})
            shards.append({"slots": [asdict(slot) for slot in s.slots], "info": s.state.info if s.state else None})
        return SavedPool(Snapshot(*parts, Counters(0, 0)), {"shards": shards})

    def _load(self, saved: SavedPool) -> None:
        whole = saved.snapshot[:3]
        for i, plain in enumerate(saved.info["shards"]):
            starts = [_under(f"{_START}/{i}/{j}/", whole[0]) or None for j in range(len(plain["slots"]))]
            state = None
            if plain["info"]:
                policy, learner, games = (_under(f"{_STATE}/{i}/", part) for part in whole)
                state = SavedPool(Snapshot(policy, learner, games, Counters(0, 0)), plain["info"])
            self._waiting.append(Shard([Slot.from_plain(slot) for slot in plain["slots"]], starts, state))

    def close(self) -> None:
        """Cancels running tasks, and disconnects."""
        for task in self._running:
            self._ray.cancel(task, force=True)
        self._stack.close()

    def _submit(self, s: Shard) -> None:
        updates = self._config.ray.task_updates
        if domain_of(self._config).hosted:  # its games cannot be part of a state
            updates = max(slot.member.updates for slot in s.slots)
        self._running[self._task.remote(self._plain, s.slots, s.starts, s.state, updates)] = s


def _under(begins: str, named: Mapping[str, Any]) -> dict[str, Any]:
    """The entries whose names begin with a prefix, without the prefix."""
    return {name.removeprefix(begins): value for name, value in named.items() if name.startswith(begins)}
