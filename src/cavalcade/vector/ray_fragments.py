"""Ray actors that play fragments by themselves.

The policy of an update is put into Ray's object store once, and each actor gets a reference. An actor plays T steps of
its environments and sends one fragment back.
"""

import time
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavalcade.vector.fragments import Fragment, FragmentPlan, fragment_shapes
from cavalcade.vector.player import Player
from cavalcade.vector.ray_pool import Host, RayPool
from cavalcade.vector.worker import load

_PATIENCE = 10  # times the slowest fragment so far, after which an actor counts as hanging


class Task(NamedTuple):
    """The settings of a fragment for one actor."""

    plan: FragmentPlan  # with the keys of its environments
    clock: int  # steps of its environments so far


class Played(NamedTuple):
    """What an actor sends back."""

    fields: dict[str, NDArray]  # final observations of truncated episodes only
    episodes: NDArray[np.int64]
    anew: bool  # the first fragment of its actor


def play(host: Host, values: NDArray[np.float32], task: Task) -> Played:
    """Plays a fragment in an actor."""
    plan, player = task.plan, host.memory.get("player")
    anew, n = player is None, host.env.spec.num_envs
    if player is None:
        kind = load(plan.player).Player if plan.player else Player
        fields = host.env.shared._asdict()
        player = host.memory["player"] = kind(host.env.pool.rows, fields, 0, n, plan.policy, plan.keys)
    shapes = fragment_shapes(plan, n, host.env.source.shapes)
    fragment = {name: np.zeros(shape, kind) for name, (shape, kind) in shapes.items()}
    player.draw(task.clock, plan.steps, values)
    player.show(fragment, 0)
    for t in range(plan.steps):
        player.step(fragment, t)
    fragment["final_observation"] = fragment["final_observation"][fragment["truncated"]]
    return Played(fragment, host.env.shared.episodes.copy(), anew)


class RayFragments:
    """The actors of a pool as a source of fragments; with `eager`, they play on while the learner learns."""

    def __init__(self, pool: RayPool, plan: FragmentPlan, *, eager: bool):
        self._pool, self._plan, self._eager, self.groups = pool, plan, eager, pool.groups
        self._ray = pool.ray
        self._asked: dict[Any, tuple[int, int]] = {}  # actor and version of the policy, by object reference
        self._steps = np.zeros(len(self.groups), np.int64)  # of each actor's environments
        self._taken = self._steps.copy()
        self._numbers = [0] * len(self.groups)
        self._ready: list[Fragment] = []
        self._began = [0.0] * len(self.groups)  # start time of each actor's fragment
        self._slowest = 0.0  # seconds of the slowest fragment
        self._policy: Any = None  # in the object store
        self._version = -1

    def publish(self, version: int, values: NDArray[np.float32]) -> None:
        """Puts a new policy into the object store, once, and has idle actors play with it."""
        if version != self._version:
            self._version, self._policy = version, self._ray.put(values)
        self._ask_idle()

    def playing(self) -> list[int]:
        """Versions of the policies of unfinished fragments."""
        return [version for _, version in self._asked.values()]

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

    def wait(self) -> None:
        """Waits for one fragment; its actor continues at once if its next one can be used in time."""
        patience = max(self._pool.timeout, _PATIENCE * self._slowest or self._pool.timeout * self._plan.steps)
        ready, _ = self._ray.wait(list(self._asked), num_returns=1, timeout=patience)
        first = ready[0] if ready else next(iter(self._asked))
        actor, version = self._asked.pop(first)
        steps = self._plan.steps
        try:
            played: Played = self._ray.get(first, timeout=0 if not ready else None)
        except self._ray.exceptions.RayError as error:
            self._pool.replace(actor, error)
            self._steps[actor] += steps  # no random number is used twice
            self._taken[actor] += steps
            self._ask(actor)
            return
        self._pool.delivered(actor)
        self._slowest = max(self._slowest, time.monotonic() - self._began[actor])
        self._steps[actor] += steps
        anew = played.anew and self._numbers[actor] > 0
        fields = {name: array.copy() for name, array in played.fields.items()}  # Ray's own cannot be written
        fields["final_observation"] = _spread(fields)
        self._ready.append(Fragment(actor, self._numbers[actor], version, fields, played.episodes, anew))
        self._numbers[actor] += 1
        if self._eager:
            self._ask_idle()

    def _ask_idle(self) -> None:
        """Requests fragments from idle actors, as many as can be used before they are too old."""
        waiting = np.bincount([one.worker for one in self._ready], minlength=len(self.groups))
        busy = {actor for actor, _ in self._asked.values()}
        for actor in range(len(self.groups)):
            if actor not in busy and waiting[actor] < self._plan.limit:
                self._ask(actor)

    def _ask(self, actor: int) -> None:
        task = Task(replace(self._plan, keys=self._plan.keys[self.groups[actor]]), int(self._steps[actor]))
        self._asked[self._pool.actors[actor].apply.remote(play, self._policy, task)] = actor, self._version
        self._began[actor] = time.monotonic()


def _spread(fields: dict[str, NDArray]) -> NDArray:
    """Final observations (T, n, O), from those of truncated episodes alone."""
    found = np.zeros_like(fields["observation"][1:])
    found[fields["truncated"]] = fields["final_observation"]
    return found
