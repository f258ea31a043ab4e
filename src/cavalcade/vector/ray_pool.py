"""A worker pool of Ray actors with several environments each, on one machine or many."""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.errors import ConfigError, RestartError
from cavalcade.core.ray_session import connected, last_line, total
from cavalcade.core.threads import use_threads
from cavalcade.vector.buffers import SharedBuffers, buffers_over, layout
from cavalcade.vector.pool import WorkerPool, suitable
from cavalcade.vector.source import Source
from cavalcade.vector.supervisor import WatchClock
from cavalcade.vector.worker import RESET

IDENTITY = ("seed", "index", "episodes")  # the seed of an episode
_GIVEN = (*IDENTITY, "wanted")  # inputs of a reset
_SHOWN = ("observation", "action_mask", "episodes")  # outputs of a reset
# Outputs of a step.
_STEPPED = (*_SHOWN, "final_observation", "reward", "terminated", "truncated", "episode_stats", "true_state")
_LEARNER = 1  # CPUs left to training
LOOK = 1.0  # seconds between checks for actors that hang


MakeEnv = Callable[[Source, int], Any]  # makes environments in the process of an actor


class Host:
    """A Ray actor: some environments in their own process, and a memory for functions that `apply` runs there."""

    def __init__(self, source: Source, count: int, make_env: MakeEnv):
        use_threads(1)
        self.env = make_env(source, count)
        self.memory: dict[str, Any] = {}

    def reset(self, given: dict[str, NDArray]) -> dict[str, NDArray]:
        """Begins episodes in the rows marked `wanted`."""
        for name, array in given.items():
            getattr(self.env.shared, name)[:] = array
        self.env.begin_wanted()
        return self._fields(_SHOWN)

    def step(self, action: NDArray) -> dict[str, NDArray]:
        self.env.step(action)
        return self._fields(_STEPPED)

    def apply(self, work: Callable[..., Any], *args: Any) -> Any:
        """Calls work(host, *args) in the actor, e.g. to collect a whole rollout."""
        return work(self, *args)

    def _fields(self, names: tuple[str, ...]) -> dict[str, NDArray]:
        return {name: getattr(self.env.shared, name) for name in names}


class RayPool(WorkerPool):
    """A group of environments per actor; a lost actor is replaced, on any node with a free CPU.

    Its episodes are truncated at the last observations that were delivered; `broken` marks them.
    """

    def __init__(
        self,
        source: Source,
        num_envs: int,
        *,
        make_env: MakeEnv,
        address: str,
        actors: int,
        max_restarts: int,
        timeout: float = 60.0,
    ):
        self._stack = ExitStack()
        self.ray = ray = self._stack.enter_context(connected(address))
        count = actors or suitable(num_envs // source.agents, total(ray, "CPU") - _LEARNER)
        if num_envs % (count * source.agents):
            self._stack.close()
            fits = suitable(num_envs // source.agents, count)
            raise ConfigError(f"{num_envs} environments do not divide into {count} actors; take --workers {fits}")
        if (free := total(ray, "CPU")) < count:
            self._stack.close()
            raise ConfigError(f"{count} actors need a CPU each and Ray has {free}; give --workers")
        self._source, self._max_restarts, self.timeout = source, max_restarts, timeout
        each = num_envs // count
        self.groups = tuple(slice(i * each, (i + 1) * each) for i in range(count))
        places, size = layout(num_envs, source.shapes, 1, 1)
        self.shared: SharedBuffers = buffers_over(bytearray(size), places)
        self.broken: NDArray[np.bool_] = np.zeros(num_envs, np.bool_)
        self._kind = ray.remote(num_cpus=1, max_restarts=0, scheduling_strategy="SPREAD")(Host)
        self._make_env = make_env
        self.actors = [self._kind.remote(source, each, make_env) for _ in self.groups]
        self._asked: dict[Any, tuple[int, int]] = {}  # group and command by object reference
        self._watched = WatchClock()
        self._failures = 0  # of environments
        self._losses = [0] * count  # consecutive losses of each group's actor, with its node or alone

    def submit(self, group: int, command: int) -> None:
        """Sends a group's actions, or the seeds of its new episodes."""
        actor, rows = self.actors[group], self.groups[group]
        self.broken[rows] = False
        if command == RESET:
            ref = actor.reset.remote({name: getattr(self.shared, name)[rows].copy() for name in _GIVEN})
        else:
            ref = actor.step.remote(self.shared.action[rows].copy())
        self._asked[ref] = group, command

    def wait_any(self) -> int:
        """Waits for the first group that is done; after `timeout`, replaces the actor that was submitted to first."""
        since, ready = self._watched(), []
        while not ready and self._watched() - since <= self.timeout:
            ready, _ = self.ray.wait(list(self._asked), num_returns=1, timeout=min(LOOK, self.timeout))
        first = ready[0] if ready else next(iter(self._asked))
        group, command = self._asked.pop(first)
        try:
            found = self.ray.get(first, timeout=0 if not ready else None)
            self.delivered(group)
        except self.ray.exceptions.RayError as error:
            found = self._replace(group, error)
            if command != RESET:
                self._break_off(group)
        for name, array in found.items():
            getattr(self.shared, name)[self.groups[group]] = array
        return group

    def renew(self, group: int, error: Exception) -> None:
        """Starts another actor in place of a group's, which failed; raises `RestartError` after too many."""
        self.restarts += 1
        reason, rows, most = last_line(error), self.groups[group], self._max_restarts
        if isinstance(error, self.ray.exceptions.RayTaskError):  # the environment's fault, not the cluster's
            self._failures += 1
        else:
            self._losses[group] += 1
        if self._failures > most:
            raise RestartError(f"environments failed {self._failures} times; the last: {reason}", most) from None
        if self._losses[group] > most:
            said = f"an actor was lost {self._losses[group]} times in a row: {reason}"
            raise RestartError(said, most) from None
        words = f"actor {group} (environments {rows.start} to {rows.stop - 1}) was lost: {reason}; replacing it"
        print(words, file=sys.stderr)
        self.ray.kill(self.actors[group])
        self.actors[group] = self._kind.remote(self._source, rows.stop - rows.start, self._make_env)

    def _replace(self, group: int, error: Exception) -> dict[str, NDArray]:
        """Has another actor begin a group's next episodes; returns their first observations."""
        self.renew(group, error)
        rows = self.groups[group]
        given = {name: getattr(self.shared, name)[rows].copy() for name in _GIVEN}
        given["wanted"][:] = True
        try:
            return self.ray.get(self.actors[group].reset.remote(given), timeout=self.timeout)
        except self.ray.exceptions.RayError as again:
            return self._replace(group, again)

    def delivered(self, group: int) -> None:
        """Reports that a group's actor has answered: its losses in a row start again from 0."""
        self._losses[group] = 0

    def _break_off(self, group: int) -> None:
        """Truncates the episodes of a group at their last observations."""
        s, rows = self.shared, self.groups[group]
        s.final_observation[rows] = s.observation[rows]
        s.reward[rows], s.terminated[rows], s.truncated[rows] = 0, False, True
        s.episode_stats[rows] = np.nan
        self.broken[rows] = True

    def close(self) -> None:
        """Kills the actors, and shuts Ray down if it was started for them."""
        if self.ray.is_initialized():
            for actor in self.actors:
                self.ray.kill(actor)
        self._stack.close()
