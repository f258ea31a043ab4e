"""Asynchronous collection: Ray actors play whole rollouts with a copy of the policy.

The weights of an update are put into Ray's object store once, and each actor gets a reference. It plays T steps of its
environments and sends one fragment back. An update learns from as many fragments as there are actors, in order of
arrival; a fast actor may have sent two of them. The other actors keep playing meanwhile, so experience may be some
updates old: at most `staleness`, since the engine waits for actors that would fall further behind. V-trace corrects
for it.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.config import PPOConfig
from cavalcade.ppo.engines.torch import Remembered, TorchEngine
from cavalcade.ppo.gae import discounted_moments
from cavalcade.ppo.keys import environment_keys
from cavalcade.ppo.loss import Minibatch
from cavalcade.ppo.rollout import Episodes
from cavalcade.vector.hosted import Hosted
from cavalcade.vector.ray_pool import Host, RayPool

_PLAYED = ("observation", "mask", "action", "log_prob", "reward", "ended")  # of a rollout, (1, T, n, …)
_CLOCKS = "actor_clocks"
_PATIENCE = 10  # times the slowest fragment so far, after which an actor counts as hanging
_SCALING = ("observation_count", "observation_mean", "observation_square")


class Policy(NamedTuple):
    """A copy of the policy for actors."""

    version: int  # number of updates behind it
    weights: NDArray
    scaling: tuple[NDArray, ...]


class Task(NamedTuple):
    """The settings of a fragment for one actor."""

    config: PPOConfig
    seed: int
    first: int  # index of its first environment
    clock: int  # steps of its environments so far


class Fragment(NamedTuple):
    """A rollout of one actor."""

    version: int
    played: dict[str, NDArray]  # (1, T, n, …)
    out_of_time: NDArray  # (1, T, n): where an episode was truncated …
    final: NDArray  # (k, O): … and the final observations there
    last: NDArray  # (1, n, O): observation after the last step
    ended: Episodes
    episodes: NDArray  # (n,): episodes begun so far
    anew: bool  # the first fragment of its actor


def play(host: Host, policy: Policy, task: Task) -> Fragment:
    """Plays a rollout in an actor."""
    learner: TorchEngine | None = host.memory.get("learner")
    anew = learner is None
    if learner is None:
        n = host.env.spec.num_envs
        config = replace(task.config, num_envs=n, minibatches=1, grad_accum=1, replay=1)
        learner = host.memory["learner"] = TorchEngine(host.env, config, [task.seed])
        learner.action_keys = environment_keys([task.seed], n, task.first)
    s = learner.state
    s.weights.copy_(torch.from_numpy(policy.weights.copy()))
    for name, array in zip(_SCALING, policy.scaling, strict=True):
        getattr(s, name).copy_(torch.from_numpy(array.copy()))
    learner.refresh()
    s.counters[:, 0] = task.clock
    ended = learner.collect()
    final, out_of_time = learner.late
    played = {name: getattr(learner.rollout, name).numpy() for name in _PLAYED}
    last = host.env.buffers.observation[None]
    episodes = host.env.shared.episodes
    late = final[out_of_time].numpy()
    return Fragment(policy.version, played, out_of_time.numpy(), late, last, ended, episodes, anew)


class RayCollectorEngine(TorchEngine):
    """The torch engine on fragments of Ray actors."""

    name = "torch on Ray"

    def __init__(self, env: Hosted, config: PPOConfig, seeds: list[int], *, staleness: int, vtrace: bool):
        super().__init__(env, config, seeds)
        assert isinstance(env.pool, RayPool)
        self._pool, self._ray = env.pool, env.pool.ray
        self._shared = env.shared
        self._staleness, self._vtrace = staleness, vtrace
        self._asked: dict[Any, tuple[int, int]] = {}  # actor and version of the policy, by object reference
        self._clocks = np.zeros(len(self._pool.actors), np.int64)  # steps of each actor's environments
        self._ready: list[tuple[int, Fragment]] = []
        self._began = [0.0] * len(self._clocks)  # start time of each actor's fragment
        self._slowest = 0.0  # seconds of the slowest fragment
        self._oldest = 0  # age of the oldest fragment, in updates
        self._policy: Any = None  # in the object store
        self._version = -1
        self._last = torch.zeros(1, config.num_envs, self.spec.inputs)

    def collect(self) -> Episodes:
        """Collects as many fragments as there are actors, the oldest first, and restarts idle actors."""
        self.timer.skip()
        self._put()
        self._ask_idle()
        count, r = len(self._clocks), self.rollout
        while len(self._ready) < count or self._somebody_is_late():
            self._receive()
        self._ready.sort(key=lambda one: one[1].version)
        taken, self._ready = self._ready[:count], self._ready[count:]
        if self._staleness < 2:  # one of each actor: results must not depend on the order of arrival
            taken.sort(key=lambda one: one[0])
        self._final, self._out_of_time = torch.zeros_like(r.observation), torch.zeros_like(r.ended)
        ended = [self._record_fragment(place, actor, fragment) for place, (actor, fragment) in enumerate(taken)]
        self._oldest = self._version - min(fragment.version for _, fragment in taken)
        if self._staleness:
            self._ask_idle()  # they play during the update
        self.state.counters[:, 0] += self.config.rollout_steps
        self.timer.lap("step")
        return Episodes(*(np.concatenate(column) for column in zip(*ended, strict=True)))

    def _somebody_is_late(self) -> bool:
        """Whether a pending fragment would be too old in the next update."""
        limit = max(self._staleness, 1)
        return any(self._version - version >= limit for _, version in self._asked.values())

    def _ask_idle(self) -> None:
        """Requests fragments from idle actors, as many as can be used before they are too old."""
        actors = len(self._clocks)
        idle = sorted(set(range(actors)) - {actor for actor, _ in self._asked.values()})
        room = actors * max(self._staleness, 1) - len(self._asked) - len(self._ready)
        for actor in idle[: max(room, 0)]:
            self._ask(actor)

    def _put(self) -> None:
        """Puts the newest policy into the object store, once."""
        s = self.state
        if self._version == s.updates:
            return
        self._version = s.updates
        scaling = tuple(getattr(s, name).numpy().copy() for name in _SCALING)
        self._policy = self._ray.put(Policy(self._version, s.weights.numpy().copy(), scaling))

    def _ask(self, actor: int) -> None:
        rows = self._pool.groups[actor]
        first = int(self._shared.index[rows.start])
        task = Task(self.config, self.seeds[0], first, int(self._clocks[actor]))
        self._asked[self._pool.actors[actor].apply.remote(play, self._policy, task)] = actor, self._version
        self._began[actor] = time.monotonic()

    def _receive(self) -> None:
        """Waits for one fragment; its actor continues at once if its next one can be used in time."""
        patience = max(self._pool.timeout, _PATIENCE * self._slowest or self._pool.timeout * self.config.rollout_steps)
        ready, _ = self._ray.wait(list(self._asked), num_returns=1, timeout=patience)
        first = ready[0] if ready else next(iter(self._asked))
        actor, _ = self._asked.pop(first)
        began, rows = self._began[actor], self._pool.groups[actor]
        try:
            fragment: Fragment = self._ray.get(first, timeout=0 if not ready else None)
        except self._ray.exceptions.RayError as error:
            self._pool.replace(actor, error)
            self._clocks[actor] += self.config.rollout_steps  # no random number is used twice
            self._ask(actor)
            return
        self._pool.delivered(actor)
        self._slowest = max(self._slowest, time.monotonic() - began)
        self._clocks[actor] += self.config.rollout_steps
        self._shared.episodes[rows] = fragment.episodes
        self._ready.append((actor, fragment))
        if self._staleness:
            self._ask_idle()

    def _record_fragment(self, place: int, actor: int, f: Fragment) -> Episodes:
        """Writes a fragment into the rollout at a group's place."""
        r, rows = self.rollout, self._pool.groups[place]
        for name, array in f.played.items():
            getattr(r, name)[:, :, rows] = torch.from_numpy(array.copy())
        out_of_time = torch.from_numpy(f.out_of_time.copy())
        self._out_of_time[:, :, rows] = out_of_time
        self._final[:, :, rows][out_of_time] = torch.from_numpy(f.final.copy())
        self._last[:, rows] = torch.from_numpy(f.last.copy())
        mine = self._pool.groups[actor]
        if self.config.normalise_returns:
            s = self.state
            running = s.return_sum[:, mine].numpy().copy() * (not f.anew)
            moments = (x.numpy() for x in (s.return_count, s.return_mean, s.return_square))
            discounted_moments(f.played["reward"], f.played["ended"], self.hyper.gamma, running, *moments)
            s.return_sum[:, mine] = torch.from_numpy(running)
        return f.ended._replace(environment=f.ended.environment + mine.start)

    def _samples(self) -> list[Minibatch]:
        r = self.rollout
        parts = (r.observation, r.mask, r.action, r.log_prob, r.reward, r.ended)
        whole = Remembered(*parts, self._final, self._out_of_time, self._last)
        return [self._replayed(whole) if self._vtrace else self._uncorrected(whole)]

    @torch.no_grad()
    def _uncorrected(self, old: Remembered) -> Minibatch:
        """Treats the experience as on-policy, to measure the effect of the correction."""
        found = self._replayed(replace(old, log_prob=self._log_prob(old)))
        return found._replace(log_prob=old.log_prob.flatten(1, 2))

    def _log_prob(self, old: Remembered) -> Tensor:
        logits, _ = self._forward(self.state.weights, old.observation.flatten(1, 2))
        found, _ = self.head.evaluate(logits, old.mask.flatten(1, 2), old.action.flatten(1, 2))
        return found.view(old.log_prob.shape)

    def memory(self) -> dict[str, Tensor]:
        """Steps of each actor's environments, so that no random number is used twice."""
        return {_CLOCKS: torch.from_numpy(self._clocks.copy())}

    def load_memory(self, saved: Mapping[str, Tensor]) -> None:
        """Continues after the steps of the furthest actor; the number of actors may have changed."""
        if _CLOCKS in saved:
            self._clocks[:] = max(int(saved[_CLOCKS].max()), self.state.clock)
        else:  # the checkpoint is from another backend
            self._clocks[:] = self.state.clock

    def finish(self) -> dict[str, NDArray]:
        """Also reports the age of the oldest fragment, in updates."""
        return super().finish() | {"staleness": np.array([float(self._oldest)])}
