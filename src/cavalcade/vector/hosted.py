"""A batch of single environments, hosted in this process or in workers."""

import contextlib
from collections.abc import Iterable, Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cavalcade.config.hosting import HostConfig, WorkerConfig
from cavalcade.core.contract import BROKEN, Buffers, Environment, EnvSpec, SavedState
from cavalcade.core.errors import ConfigError, StateError, at_least
from cavalcade.core.threads import cores
from cavalcade.vector.fragment_pool import FragmentPool
from cavalcade.vector.pool import ProcessPool, SerialPool, WorkerPool, suitable
from cavalcade.vector.source import Source
from cavalcade.vector.worker import RESET, STEP

_IDENTITY = ("seed", "index", "episodes")  # the seed of an episode
HELDOUT_SEEDS = 2**31  # hosted environments are evaluated on seeds from here on, which training cannot use


class Hosted(Environment):
    """Single environments as a batch; equal seeds give equal episodes on any backend.

    Episodes in progress cannot be saved: after `load_state`, each environment begins its next episode.

    Args:
        source: of the environments.
        num_envs: rows, a multiple of `source.agents`.
        config: backend and workers; by default that of `WorkerConfig`.
        seed: of the episodes; several take equal shares of the environments.
        first_index: index of the first environment, for a batch that is part of a larger one.
    """

    resumable = False
    episode_kind_names = ("", BROKEN)

    def __init__(
        self,
        source: Source,
        num_envs: int,
        config: WorkerConfig | None = None,
        *,
        seed: int | Sequence[int] = 0,
        first_index: int = 0,
    ):
        self.source, self.config, self._first_index = source, config or WorkerConfig(), first_index
        if at_least("num_envs", num_envs, 1) % source.agents:
            raise ConfigError(
                f"num_envs is {num_envs}; {source.name} has {source.agents} agents, take a multiple of that"
            )
        self.spec = EnvSpec(source.name, num_envs, source.shapes.observed, source.shapes.actions.learnt)
        self.pool = make_pool(source, num_envs, self.config)
        self.shared = s = self.pool.shared
        self._seed(seed)
        self.buffers = Buffers(s.observation, s.reward, s.terminated, s.truncated, s.final_observation, s.action_mask)
        self.out_of_process = self.config.backend != "serial"
        self.episode_stat_names = source.shapes.episode_stats
        self.episode_stats = s.episode_stats
        self.true_state = s.true_state if source.shapes.true_state else None
        self.critic_values = source.shapes.critic_values
        self._begun, self._sent = False, set[int]()

    @property
    def groups(self) -> tuple[slice, ...]:
        """The rows of each group of environments that are stepped together."""
        return self.pool.groups

    @property
    def episode_kinds(self):
        """1 where the episode that ended was broken off by a failed worker, else 0; (N,)."""
        return None if self.pool.broken is None else self.pool.broken.astype(np.int8)

    def kinds_of(self, lost: NDArray[np.bool_], stats: NDArray) -> NDArray[np.int64]:
        """Indices into `episode_kind_names` of episodes; lost: with a worker, stats: their statistics."""
        return lost.astype(np.int64)

    @property
    def restarts(self) -> int:
        """Number of workers that were replaced."""
        return self.pool.restarts

    def reset(self, *, seed: int | Sequence[int] | None = None, indices: ArrayLike | None = None) -> Buffers:
        """Begins the next episode in all or the given environments; with a seed, the first episode of that seed."""
        if self._sent:
            raise StateError("reset while actions are pending; receive their results first")
        shared = self.shared
        shared.wanted[:] = indices is None
        if indices is not None:
            if not self._begun or seed is not None:
                raise StateError("reset was given indices; the first reset, or one with a seed, is for all of them")
            shared.wanted[np.asarray(indices)] = True
        if seed is not None:
            self._seed(seed)
        self.begin_wanted()
        return self.buffers

    def begin(self, rows: NDArray[np.int64], seed: int) -> None:
        """Begins the first episodes of a seed in the given environments, indexed from 0 in that order."""
        self.shared.seed[rows], self.shared.index[rows], self.shared.episodes[rows] = seed, np.arange(len(rows)), 0
        self.shared.wanted[:] = not self._begun
        self.shared.wanted[rows] = True
        self.begin_wanted()

    def _seed(self, seed: int | Sequence[int]) -> None:
        """Sets the seeds; each takes an equal share of the environments."""
        seeds = np.atleast_1d(np.asarray(seed))
        n = self.spec.num_envs
        if seeds.ndim != 1 or seeds.dtype.kind not in "iu" or (seeds < 0).any() or n % len(seeds):
            raise ConfigError(f"seed is {seed!r}; it must be a whole number from 0 on, or several that divide {n}")
        self.shared.seed[:] = np.repeat(seeds, n // len(seeds))
        self.shared.index[:] = self._first_index + np.tile(np.arange(n // len(seeds)), len(seeds))
        self.shared.episodes[:] = 0

    def begin_wanted(self) -> None:
        """Begins the next episode in the rows marked `wanted` in the shared buffers."""
        for group in range(len(self.groups)):
            self.pool.submit(group, RESET)
        for _ in self.groups:
            self.pool.wait_any()
        self._begun = True

    def send(self, actions: ArrayLike) -> None:
        """Sends one action per environment."""
        self._check_ready(range(len(self.groups)))
        self.shared.action[:] = self.source.shapes.actions.checked(actions, self.spec.num_envs)
        for group in range(len(self.groups)):
            self._submit(group)

    def recv(self) -> Buffers:
        """Waits for the results of all actions sent."""
        if not self._sent:
            raise StateError("recv without actions; call send(actions) first")
        while self._sent:
            self.wait_any()
        return self.buffers

    def send_group(self, group: int, actions: ArrayLike) -> None:
        """Sends one action per environment of a group."""
        self._check_ready([group])
        rows = self.groups[group]
        self.shared.action[rows] = self.source.shapes.actions.checked(actions, rows.stop - rows.start)
        self._submit(group)

    def wait_any(self) -> int:
        """Waits until any group that was sent actions has results; returns its number."""
        group = self.pool.wait_any()
        self._sent.discard(group)
        return group

    def ready(self) -> bool:
        """Whether the next `wait_any` returns at once."""
        return self.pool.ready()

    def save_state(self, indices: ArrayLike | None = None) -> SavedState:
        """Seed, index and number of episodes begun of each environment; not the episodes in progress."""
        rows = slice(None) if indices is None else np.asarray(indices)
        return {name: getattr(self.shared, name)[rows].copy() for name in _IDENTITY}

    def load_state(self, saved: SavedState, indices: ArrayLike | None = None) -> None:
        """Begins the next episode after those counted in the saved state."""
        rows = slice(None) if indices is None else np.asarray(indices)
        for name in _IDENTITY:
            if name not in saved or saved[name].shape != self.shared.episodes[rows].shape:
                raise StateError(f"the saved state is not one of {self.spec.num_envs} hosted environments")
        for name in _IDENTITY:
            getattr(self.shared, name)[rows] = saved[name]
        self.reset(indices=indices)

    def clone(self, indices: ArrayLike | None = None) -> Self:
        """A new batch of as many environments, in this process; it begins its own episodes."""
        count = self.spec.num_envs if indices is None else len(np.atleast_1d(np.asarray(indices)))
        other = type(self)(self.source, count, WorkerConfig(backend="serial"), seed=self.shared.seed[:1].tolist())
        other.reset()
        return other

    def close(self) -> None:
        """Closes the environments and ends their workers."""
        self.pool.close()

    def __del__(self):
        with contextlib.suppress(Exception):
            self.close()

    def _check_ready(self, groups: Iterable[int]) -> None:
        if not self._begun:
            raise StateError("step before the first reset; call reset() once")
        if self._sent.intersection(groups):
            raise StateError("actions are already pending; receive their results first")

    def _submit(self, group: int) -> None:
        self._sent.add(group)
        self.pool.submit(group, STEP)


def hosted_here(source: Source, count: int) -> Hosted:
    """A batch of `count` environments in this process."""
    return Hosted(source, count, WorkerConfig(backend="serial"))


def default_workers(config: WorkerConfig, num_envs: int, cpus: int) -> int:
    """Worker processes if no number is given: one per CPU, as far as each has an environment of every group."""
    return max(1, min(cpus, num_envs // _groups(config)))


def _groups(config: WorkerConfig) -> int:
    return config.async_factor if config.backend == "async" else 1


def make_pool(source: Source, num_envs: int, config: WorkerConfig) -> WorkerPool:
    """The worker pool of a configuration."""
    if config.backend == "serial":
        return SerialPool(source, num_envs)
    if isinstance(config, HostConfig) and config.backend == "ray":
        from cavalcade.vector.ray_pool import RayPool

        return RayPool(
            source,
            num_envs,
            make_env=hosted_here,
            address=config.ray_address,
            actors=config.workers,
            max_restarts=config.max_restarts,
            timeout=config.worker_timeout,
        )
    if config.lag:
        return FragmentPool(
            source,
            num_envs,
            workers=config.workers or suitable(num_envs // source.agents, cores()),
            timeout=config.worker_timeout,
            max_restarts=config.max_restarts,
        )
    return ProcessPool(
        source,
        num_envs,
        backend="pipe" if config.backend == "pipe" else "shared",
        workers=config.workers or default_workers(config, num_envs // source.agents, cores()),
        async_factor=_groups(config),
        timeout=config.worker_timeout,
        max_restarts=config.max_restarts,
        spin=config.spin * 1e-6,
    )
