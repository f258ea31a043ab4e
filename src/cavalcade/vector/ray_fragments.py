"""Ray actors that play fragments by themselves.

The policy of an update is put into Ray's object store once, and each actor gets a reference. An actor plays T steps of
its environments and sends one fragment back. While a fragment takes long it gives signs of life, so that an actor that
hangs is noticed about as soon as a local worker.
"""

import time
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavalcade.vector.fragments import Fragment, FragmentPlan, fragment_shapes
from cavalcade.vector.player import Player
from cavalcade.vector.ray_pool import IDENTITY, LOOK, Host, RayPool
from cavalcade.vector.supervisor import STARTING, WatchClock
from cavalcade.vector.worker import load

_SHOWN = ("observation", "action_mask")
_SIGNS = 4  # signs of life of an actor within its timeout


class Past(NamedTuple):
    """What an actor continues whose predecessor was lost, (n, …)."""

    shown: dict[str, NDArray]  # the last observations and masks that were delivered; those episodes are truncated
    identity: dict[str, NDArray]  # seeds of the episodes after them


class Task(NamedTuple):
    """The settings of a fragment for one actor."""

    plan: FragmentPlan  # with the keys of its environments
    clock: int  # steps of its environments so far
    seconds: float  # after which it gives a sign of life
    past: Past | None = None  # for an actor that replaces another


class Played(NamedTuple):
    """What an actor sends back."""

    fields: dict[str, NDArray]  # final observations of truncated episodes only
    episodes: NDArray[np.int64]


class Unfinished(NamedTuple):
    """A fragment in the memory of an actor."""

    player: Player
    fields: dict[str, NDArray]
    steps: int  # played so far
    lost: bool  # the next step truncates the episodes of the predecessor


def play(host: Host, values: NDArray[np.float32], task: Task) -> Played | None:
    """Plays a fragment in an actor; returns None after some time, to be called again with the same arguments."""
    unfinished: Unfinished = host.memory.pop("fragment", None) or _begun(host, values, task)
    player, fields, steps, lost = unfinished
    until = time.monotonic() + task.seconds
    while steps < task.plan.steps:
        player.step(fields, steps, lost)
        steps, lost = steps + 1, False
        if time.monotonic() > until and steps < task.plan.steps:
            host.memory["fragment"] = Unfinished(player, fields, steps, lost)
            return None
    fields["final_observation"] = fields["final_observation"][fields["truncated"]]
    return Played(fields, host.env.shared.episodes.copy())


def _begun(host: Host, values: NDArray[np.float32], task: Task) -> Unfinished:
    """A fragment that is about to be played."""
    plan, player, n = task.plan, host.memory.get("player"), host.env.spec.num_envs
    fresh = player is None
    if player is None:
        kind = load(plan.player).Player if plan.player else Player
        fields = host.env.shared._asdict()
        player = host.memory["player"] = kind(host.env.pool.rows, fields, 0, n, plan.policy, plan.keys)
    shapes = fragment_shapes(plan, n, host.env.source.shapes)
    fragment = {name: np.zeros(shape, kind) for name, (shape, kind) in shapes.items()}
    player.draw(task.clock, plan.steps, values)
    lost = fresh and task.past is not None
    if lost and task.past:
        for name, array in task.past.identity.items():
            getattr(host.env.shared, name)[:] = array
        for name, array in task.past.shown.items():
            fragment[name][0] = array
    else:
        player.show(fragment, 0)
    return Unfinished(player, fragment, 0, lost)


class RayFragments:
    """The actors of a pool as a source of fragments; with `eager`, they play on while the learner learns."""

    def __init__(self, pool: RayPool, plan: FragmentPlan, *, eager: bool):
        self._pool, self._plan, self._eager, self.groups = pool, plan, eager, pool.groups
        self._ray = pool.ray
        self._asked: dict[Any, int] = {}  # actor by object reference
        self._tasks: dict[int, tuple[int, Any, Task]] = {}  # version, policy and settings of unfinished fragments
        self._steps = np.zeros(len(self.groups), np.int64)  # of each actor's environments
        self._taken = self._steps.copy()
        self._numbers = [0] * len(self.groups)
        self._lead = 1  # fragments of an actor that may wait to be taken
        self._ready: list[Fragment] = []
        self._past: dict[int, Past] = {}  # of actors that were replaced and have not answered yet
        self._latest = {name: getattr(pool.shared, name).copy() for name in (*_SHOWN, *IDENTITY)}  # delivered
        self._watched = WatchClock()
        self._heard = [0.0] * len(self.groups)  # of each actor, or when it was started
        self._policy: Any = None  # in the object store
        self._version = -1

    def publish(self, version: int, values: NDArray[np.float32]) -> None:
        """Puts a new policy into the object store, once, and has idle actors play with it."""
        if version != self._version:
            if self._version < 0:  # as after the reset
                for name, array in self._latest.items():
                    array[:] = getattr(self._pool.shared, name)
            self._version, self._policy = version, self._ray.put(values)
        self._ask_idle()

    def playing(self) -> list[int]:
        """Versions of the policies of unfinished fragments."""
        return [version for version, _, _ in self._tasks.values()]

    def finished(self) -> list[Fragment]:
        """Fragments that were received and not taken."""
        return self._ready

    def take(self, fragment: Fragment) -> None:
        """Drops a fragment; its actor may play another."""
        self._ready = [one for one in self._ready if one is not fragment]
        self._taken[fragment.worker] += self._plan.steps
        self._pool.shared.episodes[self.groups[fragment.worker]] = fragment.episodes
        if self._eager:
            self._ask_idle()

    @property
    def clocks(self) -> NDArray[np.int64]:
        """Steps that were taken from each actor."""
        return self._taken.copy()

    def set_clock(self, clock: int) -> None:
        """Continues after so many steps."""
        self._steps[:] = self._taken[:] = clock

    def allow(self, fragments: int) -> None:
        """Sets how many finished fragments of an actor may wait to be taken."""
        if fragments != self._lead:
            self._lead = fragments
            if self._eager:
                self._ask_idle()

    def wait(self, known: int) -> None:
        """Waits until more than `known` fragments are ready to be taken, or an actor is replaced."""
        restarts = self._pool.restarts
        while len(self._ready) <= known and self._pool.restarts == restarts:
            ready, _ = self._ray.wait(list(self._asked), num_returns=1, timeout=LOOK)
            if ready:
                self._received(ready[0])
            else:
                self._check_progress()

    def _received(self, ref: Any) -> None:
        """Stores what an actor has sent."""
        actor = self._asked.pop(ref)
        try:
            played: Played | None = self._ray.get(ref)
        except self._ray.exceptions.RayError as error:
            self._replace(actor, error)
            return
        self._heard[actor] = self._watched()
        if played is None:
            self._ask(actor)
            return
        self._pool.delivered(actor)
        self._past.pop(actor, None)
        version, _, _ = self._tasks.pop(actor)
        fields = {name: array.copy() for name, array in played.fields.items()}  # Ray's own cannot be written
        fields["final_observation"] = _spread(fields)
        rows = self.groups[actor]
        self._latest["episodes"][rows] = played.episodes
        for name in _SHOWN:
            self._latest[name][rows] = fields[name][-1]
        self._steps[actor] += self._plan.steps
        self._ready.append(Fragment(actor, self._numbers[actor], version, fields, played.episodes))
        self._numbers[actor] += 1
        if self._eager:
            self._ask_idle()

    def _check_progress(self) -> None:
        """Replaces actors that gave no sign of life for too long."""
        now, timeout = self._watched(), self._pool.timeout
        for ref, actor in list(self._asked.items()):
            starting = not self._numbers[actor] or actor in self._past
            limit = (max(timeout, STARTING) if starting else timeout) * (1 + 1 / _SIGNS)
            if now - self._heard[actor] > limit:
                del self._asked[ref]
                self._replace(actor, TimeoutError(f"it has not answered for {limit:g} s"))

    def _replace(self, actor: int, error: Exception) -> None:
        """Has another actor begin the fragment again; no random number is used twice."""
        self._pool.renew(actor, error)
        rows = self.groups[actor]
        past = {name: array[rows].copy() for name, array in self._latest.items()}
        self._past[actor] = Past({n: past[n] for n in _SHOWN}, {n: past[n] for n in IDENTITY})
        self._steps[actor] += self._plan.steps
        self._taken[actor] += self._plan.steps
        self._begin(actor)

    def _ask_idle(self) -> None:
        """Requests fragments from idle actors, as many as can be used before they are too old."""
        waiting = np.bincount([one.worker for one in self._ready], minlength=len(self.groups))
        for actor in range(len(self.groups)):
            if actor not in self._tasks and waiting[actor] < self._lead:
                self._begin(actor)

    def _begin(self, actor: int) -> None:
        """Requests a fragment that is played with the newest policy."""
        plan = replace(self._plan, keys=self._plan.keys[self.groups[actor]])
        task = Task(plan, int(self._steps[actor]), self._pool.timeout / _SIGNS, self._past.get(actor))
        self._tasks[actor] = self._version, self._policy, task
        self._heard[actor] = self._watched()
        self._ask(actor)

    def _ask(self, actor: int) -> None:
        _, policy, task = self._tasks[actor]
        self._asked[self._pool.actors[actor].apply.remote(play, policy, task)] = actor


def _spread(fields: dict[str, NDArray]) -> NDArray:
    """Final observations (T, n, O), from those of truncated episodes alone."""
    found = np.zeros_like(fields["observation"][1:])
    found[fields["truncated"]] = fields["final_observation"]
    return found
