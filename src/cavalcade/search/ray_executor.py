"""Members of a search trained as tasks of Ray, on one machine or many.

A task takes a slice: a few members, where they stand, and how many updates to go on for. It keeps nothing. What it
returns is where they stand now, so that a task whose node is lost is given out again and comes to the same result, and
nothing is counted twice. Slices go their own pace; nobody waits for the slowest.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import Tensor

from cavalcade.config import SearchConfig
from cavalcade.errors import ConfigError, WorkerError
from cavalcade.fleet import connected, last_line, total
from cavalcade.plain import as_dict, from_dict
from cavalcade.ppo.threads import use_threads
from cavalcade.search.domains import subtasks_of
from cavalcade.search.members import Member
from cavalcade.search.pool import Pool, Slot
from cavalcade.search.trainings import Done, Saved, done, make_scorer

_LOOK = 10.0  # seconds between looks at a cluster on which nothing happens
_START, _STATE = "start", "state"  # begin the names of what a checkpoint holds of slices


@dataclass(frozen=True)
class Step:
    """What a task returns: where its slice stands, who is done, and how many updates were made."""

    slots: list[Slot]
    state: Saved | None
    done: list[Done]
    updates: int


@dataclass
class Slice:
    """Members that train in one task after the other."""

    slots: list[Slot]
    starts: Sequence[Mapping[str, Tensor] | None]  # what each begins with
    state: Saved | None = None  # where they stand, nothing before the first task
    losses: int = 0  # tasks that were lost in a row


def train_slice(plain: dict[str, Any], slots: list[Slot], starts: list[Any], state: Saved | None, updates: int) -> Step:
    """Trains members for so many updates, and scores those that are done: the task itself."""
    config = from_dict(SearchConfig, plain)
    orders, threads = subtasks_of(config).orders(), max(1, config.ray.task_cpus)
    use_threads(threads)
    pool = Pool(config, orders, len(slots), threads)
    scorer = make_scorer(config, orders, threads)
    try:
        if state:
            pool.load(*state[:3], state.info["slots"])
        else:
            for i, (slot, stored) in enumerate(zip(slots, starts, strict=True)):
                pool.start(i, slot.member, stored)
        made, over = 0, list[Done]()
        for _ in range(updates):
            pool.update()
            made += len(pool.busy)
            over += done(pool, scorer)
            if not pool.busy:
                return Step([], None, over, made)
        if len(pool.busy) < len(slots):
            pool = pool.resized(pool.busy, len(pool.busy))
        policy, rest, games, info = pool.save()
        policy = {name: tensor.clone() for name, tensor in policy.items()}  # views would each take all weights along
        return Step([slot for slot in pool.slots if slot], Saved(policy, rest, games, info), over, made)
    finally:
        pool.env.close()
        if scorer:
            scorer.close()


class Fleet:
    """Slices in training, each a task of Ray at any time."""

    def __init__(self, config: SearchConfig, saved: Saved | None = None):
        self._config, r = config, config.ray
        plain = as_dict(replace(config, device="cuda" if r.task_gpus else "cpu"))
        self._stack = ExitStack()
        self._ray = ray = self._stack.enter_context(connected(config.host.ray_address))
        self._plain = ray.put(plain)
        self._task = ray.remote(num_cpus=r.task_cpus, num_gpus=r.task_gpus, max_retries=0)(train_slice)
        self._waiting: list[Slice] = []  # for their first task
        self._running: dict[Any, Slice] = {}
        self._done: list[Done] = []
        cpus, gpus = total(ray, "CPU"), total(ray, "GPU")
        nodes = sum(node["Alive"] for node in ray.nodes())
        self.notes = [
            f"on Ray: {nodes} nodes, {cpus} CPUs, {gpus} GPUs; a task takes {r.task_cpus} and {r.task_gpus:g}"
        ]
        self.network: dict[str, Any] = {}
        if not self._fits():
            self._stack.close()
            needs = f"task_cpus is {r.task_cpus} and task_gpus {r.task_gpus:g}"
            raise ConfigError(f"{needs}; no node of the cluster has as many")
        if saved:
            self._load(saved)

    @property
    def slots(self) -> list[Slot]:
        """Who is in training."""
        return [slot for s in (*self._running.values(), *self._waiting) for slot in s.slots]

    @property
    def room(self) -> int:
        """As many as living nodes have CPUs or GPUs for."""
        r = self._config.ray
        tasks = total(self._ray, "GPU") / r.task_gpus if r.task_gpus else total(self._ray, "CPU") // r.task_cpus
        return self._config.together or max(1, int(tasks)) * r.task_orders

    def start(self, member: Member, stored: Mapping[str, Tensor] | None) -> None:
        """Puts a member into a slice; its task begins with the next `update`."""
        last = self._waiting[-1] if self._waiting else None
        if last is None or last.state or len(last.slots) >= self._config.ray.task_orders:
            self._waiting.append(Slice([], []))
        s = self._waiting[-1]
        s.slots, s.starts = [*s.slots, Slot(member)], [*s.starts, stored]

    def update(self) -> int:
        """Gives out what is waiting, then takes the first task that is done, whichever it is; 0 if none is for long."""
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
            step: Step = self._ray.get(ready)
        except lost.RayTaskError as error:  # an error of ours, the same anywhere
            self._waiting.append(s)
            raise WorkerError(f"a task of Ray failed: {last_line(error)}") from None
        except lost.RayError as error:  # the node, the worker or what it returned is gone
            s.losses += 1
            self._waiting.append(s)
            if s.losses > self._config.ray.max_losses:
                raise WorkerError(f"a task of Ray was lost {s.losses} times: {last_line(error)}") from None
            self.notes.append(f"lost: {type(error).__name__}; {len(s.slots)} orders go on from where they stood")
            return 0
        self._done += step.done
        if step.slots:
            self._submit(Slice(step.slots, [None] * len(step.slots), step.state))
        return step.updates

    def _look(self) -> None:
        """Says so, once, if tasks wait because no living node is large enough."""
        note = "no living node has the CPUs or GPUs that a task takes; waiting for one"
        if note not in self.notes and not self._fits():
            self.notes.append(note)

    def _fits(self) -> bool:
        """Whether some living node can run a task."""
        r = self._config.ray
        nodes = (node["Resources"] for node in self._ray.nodes() if node["Alive"])
        return any(n.get("CPU", 0) >= r.task_cpus and n.get("GPU", 0) >= r.task_gpus for n in nodes)

    def finished(self) -> list[Done]:
        """Those that are done since the last time."""
        found, self._done = self._done, []
        return found

    def save(self) -> Saved:
        """Where every slice stands."""
        parts: tuple[dict[str, Any], ...] = ({}, {}, {})
        slices = []
        for i, s in enumerate((*self._running.values(), *self._waiting)):
            for j, stored in enumerate(s.starts):
                parts[0].update({f"{_START}/{i}/{j}/{name}": tensor for name, tensor in (stored or {}).items()})
            for kept, mine in zip(parts, s.state[:3] if s.state else (), strict=False):
                kept.update({f"{_STATE}/{i}/{name}": value for name, value in mine.items()})
            slices.append({"slots": [asdict(slot) for slot in s.slots], "info": s.state.info if s.state else None})
        return Saved(*parts, {"slices": slices})

    def _load(self, saved: Saved) -> None:
        for i, plain in enumerate(saved.info["slices"]):
            starts = [_under(f"{_START}/{i}/{j}/", saved.policy) or None for j in range(len(plain["slots"]))]
            state = None
            if plain["info"]:
                policy, learner, games = (_under(f"{_STATE}/{i}/", part) for part in saved[:3])
                state = Saved(policy, learner, games, plain["info"])
            self._waiting.append(Slice([Slot.from_plain(slot) for slot in plain["slots"]], starts, state))

    def close(self) -> None:
        """Ends tasks under way, and the connection."""
        for task in self._running:
            self._ray.cancel(task, force=True)
        self._stack.close()

    def _submit(self, s: Slice) -> None:
        updates = self._config.ray.task_updates
        self._running[self._task.remote(self._plain, s.slots, s.starts, s.state, updates)] = s


def _under(begins: str, named: Mapping[str, Any]) -> dict[str, Any]:
    """What has names that begin so, without that."""
    return {name.removeprefix(begins): value for name, value in named.items() if name.startswith(begins)}
