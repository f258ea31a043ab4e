"""Environments in Ray actors, several in each, on one machine or many; behind the same contract as workers."""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.errors import ConfigError, WorkerError
from cavalcade.fleet import connected, last_line, total
from cavalcade.vector.crew import Crew
from cavalcade.vector.slab import Slab, layout, slab_over
from cavalcade.vector.source import Source
from cavalcade.vector.worker import RESET

_IDENTITY = ("seed", "index", "episodes", "wanted")  # what a reset is told
_SHOWN = ("observation", "action_mask", "episodes")  # what it returns …
_STEPPED = (*_SHOWN, "final_observation", "reward", "terminated", "truncated", "figures", "true_state")  # … and a step
_LEARNER = 1  # CPUs that are left to it


class Host:
    """What an actor is: a few environments in a process of their own, and room to remember things beside them."""

    def __init__(self, source: Source, count: int):
        from cavalcade.config import HostConfig
        from cavalcade.ppo.threads import use_threads
        from cavalcade.vector.hosted import Hosted

        use_threads(1)
        self.env = Hosted(source, count, HostConfig(backend="serial"))
        self.memory: dict[str, Any] = {}

    def reset(self, told: dict[str, NDArray]) -> dict[str, NDArray]:
        """Begins the episodes that are wanted."""
        for name, array in told.items():
            getattr(self.env.slab, name)[:] = array
        self.env.begin_wanted()
        return self._fields(_SHOWN)

    def step(self, action: NDArray) -> dict[str, NDArray]:
        """One step of every environment."""
        self.env.step(action)
        return self._fields(_STEPPED)

    def apply(self, work: Callable[..., Any], *args: Any) -> Any:
        """Does something with the environments here, e.g. plays a whole rollout: work(host, *args)."""
        return work(self, *args)

    def _fields(self, names: tuple[str, ...]) -> dict[str, NDArray]:
        return {name: getattr(self.env.slab, name) for name in names}


class RayCrew(Crew):
    """A group of environments per actor; an actor that is lost is replaced, on whatever node has room.

    Its episodes end as truncations at the last observations that were delivered; `broken` says which.
    """

    def __init__(
        self, source: Source, num_envs: int, *, address: str, actors: int, max_restarts: int, timeout: float = 60.0
    ):
        self._stack = ExitStack()
        self.ray = ray = self._stack.enter_context(connected(address))
        count = actors or _suitable(num_envs // source.agents, total(ray, "CPU") - _LEARNER)
        if num_envs % (count * source.agents):
            self._stack.close()
            raise ConfigError(f"{num_envs} environments do not divide into {count} actors; give --workers")
        if (free := total(ray, "CPU")) < count:
            self._stack.close()
            raise ConfigError(f"{count} actors need a CPU each and Ray has {free}; give --workers")
        self._source, self._max_restarts, self.timeout = source, max_restarts, timeout
        each = num_envs // count
        self.groups = tuple(slice(i * each, (i + 1) * each) for i in range(count))
        places, size = layout(num_envs, source.shapes, 1, 1)
        self.slab: Slab = slab_over(bytearray(size), places)
        self.broken: NDArray[np.bool_] = np.zeros(num_envs, np.bool_)
        self._kind = ray.remote(num_cpus=1, max_restarts=0, scheduling_strategy="SPREAD")(Host)
        self.actors = [self._kind.remote(source, each) for _ in self.groups]
        self._asked: dict[Any, tuple[int, int]] = {}  # group and command by what is awaited
        self._failures = 0  # of environments
        self._losses = [0] * count  # of each group's actor in a row, with its node or by itself

    def ask(self, group: int, command: int) -> None:
        """Sends a group's actions, or what its new episodes are seeded with."""
        actor, rows = self.actors[group], self.groups[group]
        self.broken[rows] = False
        if command == RESET:
            ref = actor.reset.remote({name: getattr(self.slab, name)[rows].copy() for name in _IDENTITY})
        else:
            ref = actor.step.remote(self.slab.action[rows].copy())
        self._asked[ref] = group, command

    def take(self) -> int:
        """Waits for whoever is done first; if nobody is for too long, whoever was asked first is replaced."""
        ready, _ = self.ray.wait(list(self._asked), num_returns=1, timeout=self.timeout)
        first = ready[0] if ready else next(iter(self._asked))
        group, command = self._asked.pop(first)
        try:
            found = self.ray.get(first, timeout=0 if not ready else None)
            self.delivered(group)
        except self.ray.exceptions.RayError as error:
            found = self.replace(group, error)
            if command != RESET:
                self._break_off(group)
        for name, array in found.items():
            getattr(self.slab, name)[self.groups[group]] = array
        return group

    def replace(self, group: int, error: Exception) -> dict[str, NDArray]:
        """A new actor for a group, in new episodes behind those that were begun before; what it shows."""
        self.restarts += 1
        reason, rows, most = last_line(error), self.groups[group], self._max_restarts
        if isinstance(error, self.ray.exceptions.RayTaskError):  # the environment's fault, not the cluster's
            self._failures += 1
        else:
            self._losses[group] += 1
        if self._failures > most:
            raise WorkerError(f"environments failed {self._failures} times; the last: {reason}") from None
        if self._losses[group] > most:
            raise WorkerError(f"an actor was lost {self._losses[group]} times in a row: {reason}") from None
        words = f"actor {group} (environments {rows.start} to {rows.stop - 1}) was lost: {reason}; replacing it"
        print(words, file=sys.stderr)
        self.ray.kill(self.actors[group])
        self.actors[group] = self._kind.remote(self._source, rows.stop - rows.start)
        told = {name: getattr(self.slab, name)[rows].copy() for name in _IDENTITY}
        told["wanted"][:] = True
        try:
            return self.ray.get(self.actors[group].reset.remote(told), timeout=self.timeout)
        except self.ray.exceptions.RayError as again:
            return self.replace(group, again)

    def delivered(self, group: int) -> None:
        """A group's actor has done what it was asked for."""
        self._losses[group] = 0

    def _break_off(self, group: int) -> None:
        """Ends the episodes of a group where they stood."""
        s, rows = self.slab, self.groups[group]
        s.final_observation[rows] = s.observation[rows]
        s.reward[rows], s.terminated[rows], s.truncated[rows] = 0, False, True
        s.figures[rows] = np.nan
        self.broken[rows] = True

    def close(self) -> None:
        """Ends actors, and Ray if it was started for them."""
        if self.ray.is_initialized():
            for actor in self.actors:
                self.ray.kill(actor)
        self._stack.close()


def _suitable(num_envs: int, cpus: int) -> int:
    """The largest number of actors that have a CPU each and equal shares of the environments."""
    return max((n for n in range(1, max(cpus, 1) + 1) if num_envs % n == 0), default=1)
