"""A batch of single environments, hosted in this process or in workers."""

import contextlib
import os
from collections.abc import Iterable, Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cavalcade.config import HostConfig
from cavalcade.envs.contract import Buffers, Environment, EnvSpec, SavedState
from cavalcade.errors import ConfigError, StateError, at_least
from cavalcade.vector.crew import Crew, SerialCrew, WorkerCrew
from cavalcade.vector.source import Source
from cavalcade.vector.worker import RESET, STEP

_IDENTITY = ("seed", "index", "episodes")  # what an episode's randomness comes from
HELDOUT_SEEDS = 2**31  # hosted environments are scored on seeds from here on, which no training can have
BROKEN = "broken"  # label of episodes that ended because their worker failed


class Hosted(Environment):
    """Single environments behind the contract of a batch; equal seeds give equal episodes on any backend.

    Games in progress cannot be saved: after `load_state` new ones begin, behind those that were begun before.
    """

    continues = False
    label_names = ("", BROKEN)

    def __init__(
        self,
        source: Source,
        num_envs: int,
        config: HostConfig | None = None,
        *,
        seed: int | Sequence[int] = 0,
        first_index: int = 0,
    ):
        self.source, self.config, self._first_index = source, config or HostConfig(), first_index
        if at_least("num_envs", num_envs, 1) % source.agents:
            raise ConfigError(
                f"num_envs is {num_envs}; {source.name} has {source.agents} agents, take a multiple of that"
            )
        self.spec = EnvSpec(source.name, num_envs, source.shapes.observed, source.shapes.actions.learnt)
        self.crew = make_crew(source, num_envs, self.config)
        self.slab = s = self.crew.slab
        self._seed(seed)
        self.buffers = Buffers(s.observation, s.reward, s.terminated, s.truncated, s.final_observation, s.action_mask)
        self.elsewhere = self.config.backend != "serial"
        self.figure_names = source.shapes.figures
        self.figures = s.figures
        self.true_state = s.true_state if source.shapes.true_state else None
        self._begun, self._sent = False, set[int]()

    @property
    def groups(self) -> tuple[slice, ...]:
        """The environments that are driven together."""
        return self.crew.groups

    @property
    def labels(self):
        """Which of the episodes that ended were broken off."""
        return None if self.crew.broken is None else self.crew.broken.astype(np.int8)

    @property
    def restarts(self) -> int:
        """Workers that had to be replaced."""
        return self.crew.restarts

    def reset(self, *, seed: int | Sequence[int] | None = None, indices: ArrayLike | None = None) -> Buffers:
        """Begins the next episode everywhere or in the given environments; with a seed, that seed's first episode."""
        if self._sent:
            raise StateError("reset while actions are under way; take their results first")
        slab = self.slab
        slab.wanted[:] = indices is None
        if indices is not None:
            if not self._begun or seed is not None:
                raise StateError("reset was given indices; the first reset, or one with a seed, is for all of them")
            slab.wanted[np.asarray(indices)] = True
        if seed is not None:
            self._seed(seed)
        self.begin_wanted()
        return self.buffers

    def begin(self, rows: NDArray[np.int64], seed: int) -> None:
        """Begins the first episodes of a seed in some environments, numbered from 0 among themselves."""
        self.slab.seed[rows], self.slab.index[rows], self.slab.episodes[rows] = seed, np.arange(len(rows)), 0
        self.slab.wanted[:] = not self._begun
        self.slab.wanted[rows] = True
        self.begin_wanted()

    def _seed(self, seed: int | Sequence[int]) -> None:
        """Each seed takes an equal share of the environments."""
        seeds = np.atleast_1d(np.asarray(seed))
        n = self.spec.num_envs
        if seeds.ndim != 1 or seeds.dtype.kind not in "iu" or (seeds < 0).any() or n % len(seeds):
            raise ConfigError(f"seed is {seed!r}; it must be a whole number from 0 on, or several that divide {n}")
        self.slab.seed[:] = np.repeat(seeds, n // len(seeds))
        self.slab.index[:] = self._first_index + np.tile(np.arange(n // len(seeds)), len(seeds))
        self.slab.episodes[:] = 0

    def begin_wanted(self) -> None:
        """Begins the next episodes of the environments that the slab wants them in."""
        for group in range(len(self.groups)):
            self.crew.ask(group, RESET)
        for _ in self.groups:
            self.crew.take()
        self._begun = True

    def send(self, actions: ArrayLike) -> None:
        """Hands over one action per environment."""
        self._check_ready(range(len(self.groups)))
        self.slab.action[:] = self.source.shapes.actions.checked(actions, self.spec.num_envs)
        for group in range(len(self.groups)):
            self._ask(group)

    def recv(self) -> Buffers:
        """Waits for the results of all actions sent."""
        if not self._sent:
            raise StateError("recv without actions; call send(actions) first")
        while self._sent:
            self.take()
        return self.buffers

    def send_group(self, group: int, actions: ArrayLike) -> None:
        """Hands over one action per environment of a group."""
        self._check_ready([group])
        rows = self.groups[group]
        self.slab.action[rows] = self.source.shapes.actions.checked(actions, rows.stop - rows.start)
        self._ask(group)

    def take(self) -> int:
        """Waits for the results of some group that actions were sent to; returns which."""
        group = self.crew.take()
        self._sent.discard(group)
        return group

    def save_state(self, indices: ArrayLike | None = None) -> SavedState:
        """Whose episodes each environment plays, and how many it has begun."""
        rows = slice(None) if indices is None else np.asarray(indices)
        return {name: getattr(self.slab, name)[rows].copy() for name in _IDENTITY}

    def load_state(self, saved: SavedState, indices: ArrayLike | None = None) -> None:
        """Begins new episodes behind those that were begun before."""
        rows = slice(None) if indices is None else np.asarray(indices)
        for name in _IDENTITY:
            if name not in saved or saved[name].shape != self.slab.episodes[rows].shape:
                raise StateError(f"the saved state is not one of {self.spec.num_envs} hosted environments")
        for name in _IDENTITY:
            getattr(self.slab, name)[rows] = saved[name]
        self.reset(indices=indices)

    def clone(self, indices: ArrayLike | None = None) -> Self:
        """Another batch of as many environments as are named, in episodes of their own."""
        count = self.spec.num_envs if indices is None else len(np.atleast_1d(np.asarray(indices)))
        other = type(self)(self.source, count, HostConfig(backend="serial"), seed=self.slab.seed[:1].tolist())
        other.reset()
        return other

    def close(self) -> None:
        """Ends the environments and their workers."""
        self.crew.close()

    def __del__(self):
        with contextlib.suppress(Exception):
            self.close()

    def _check_ready(self, groups: Iterable[int]) -> None:
        if not self._begun:
            raise StateError("step before the first reset; call reset() once")
        if self._sent.intersection(groups):
            raise StateError("actions are under way already; take their results first")

    def _ask(self, group: int) -> None:
        self._sent.add(group)
        self.crew.ask(group, STEP)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def make_crew(source: Source, num_envs: int, config: HostConfig) -> Crew:
    """Who steps the environments, by configuration."""
    if config.backend == "serial":
        return SerialCrew(source, num_envs)
    if config.backend == "ray":
        from cavalcade.vector.ray_crew import RayCrew

        return RayCrew(
            source,
            num_envs,
            address=config.ray_address,
            actors=config.workers,
            max_restarts=config.max_restarts,
            timeout=config.worker_timeout,
        )
    factor = config.async_factor if config.backend == "async" else 1
    return WorkerCrew(
        source,
        num_envs,
        backend="pipe" if config.backend == "pipe" else "shared",
        workers=config.workers or max(1, min(cores(), num_envs // source.agents // factor)),
        async_factor=factor,
        timeout=config.worker_timeout,
        max_restarts=config.max_restarts,
        spin=config.spin * 1e-6,
    )
