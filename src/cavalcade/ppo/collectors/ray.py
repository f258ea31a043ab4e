"""Learning from whole rollouts that Ray actors play by themselves, with a copy of the policy.

The weights of an update are put into Ray's object store once, and each actor gets a reference. It plays T steps of its
environments and sends one fragment back. An update learns from as many fragments as there are actors, whichever came
first; a fast actor may have sent two of them. Meanwhile the others go on, so that experience may be some updates old
when it is learnt from: never more than `staleness`, since the learner waits for whoever would fall behind. V-trace
corrects for it.
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
from cavalcade.ppo.fused.gae import discounted_moments
from cavalcade.ppo.keys import environment_keys
from cavalcade.ppo.loss import Minibatch
from cavalcade.ppo.rollout import Ended
from cavalcade.ppo.torch_learner import Remembered, TorchLearner
from cavalcade.vector.hosted import Hosted
from cavalcade.vector.ray_crew import Host, RayCrew

_PLAYED = ("observation", "mask", "action", "log_prob", "reward", "ended")  # of a rollout, (1, T, n, …)
_CLOCKS = "actor_clocks"
_PATIENCE = 10  # times the slowest fragment so far, then an actor counts as hanging
_SCALING = ("observation_count", "observation_mean", "observation_square")


class Policy(NamedTuple):
    """What an actor needs to act as the learner would."""

    version: int  # updates that made it
    weights: NDArray
    scaling: tuple[NDArray, ...]


class Task(NamedTuple):
    """What an actor is asked for."""

    config: PPOConfig
    seed: int
    first: int  # index of its first environment
    clock: int  # steps that its environments have taken


class Fragment(NamedTuple):
    """A rollout of one actor."""

    version: int
    played: dict[str, NDArray]  # (1, T, n, …)
    out_of_time: NDArray  # (1, T, n): episodes that ran out of time …
    final: NDArray  # (k, O): … and their last observations
    last: NDArray  # (1, n, O): observation after the last step
    ended: Ended
    episodes: NDArray  # (n,): begun so far
    anew: bool  # whether it is the first of its actor


def play(host: Host, policy: Policy, task: Task) -> Fragment:
    """Plays a rollout: runs in an actor."""
    learner: TorchLearner | None = host.memory.get("learner")
    anew = learner is None
    if learner is None:
        n = host.env.spec.num_envs
        config = replace(task.config, num_envs=n, minibatches=1, accumulate=1, replay=1)
        learner = host.memory["learner"] = TorchLearner(host.env, config, [task.seed])
        learner.action_keys = environment_keys([task.seed], n, task.first)
    s = learner.state
    s.weights.copy_(torch.from_numpy(policy.weights.copy()))
    for name, array in zip(_SCALING, policy.scaling, strict=True):
        getattr(s, name).copy_(torch.from_numpy(array.copy()))
    learner.restore()
    s.counters[:, 0] = task.clock
    ended = learner.collect()
    final, out_of_time = learner.late
    played = {name: getattr(learner.rollout, name).numpy() for name in _PLAYED}
    last = host.env.buffers.observation[None]
    episodes = host.env.slab.episodes
    late = final[out_of_time].numpy()
    return Fragment(policy.version, played, out_of_time.numpy(), late, last, ended, episodes, anew)


class FragmentLearner(TorchLearner):
    """Learns from fragments of actors."""

    name = "fragments"

    def __init__(self, env: Hosted, config: PPOConfig, seeds: list[int], *, staleness: int, vtrace: bool):
        super().__init__(env, config, seeds)
        assert isinstance(env.crew, RayCrew)
        self._crew, self._ray = env.crew, env.crew.ray
        self._slab = env.slab
        self._staleness, self._vtrace = staleness, vtrace
        self._asked: dict[Any, tuple[int, int]] = {}  # actor and version of the policy, by what is awaited
        self._clocks = np.zeros(len(self._crew.actors), np.int64)  # steps of each actor's environments
        self._ready: list[tuple[int, Fragment]] = []
        self._began = [0.0] * len(self._clocks)  # when each actor was asked
        self._slowest = 0.0  # seconds that a fragment took
        self._oldest = 0  # updates that the oldest experience was old
        self._policy: Any = None  # in the object store
        self._version = -1
        self._last = torch.zeros(1, config.num_envs, self.spec.inputs)

    def collect(self) -> Ended:
        """Gathers as many fragments as there are actors, the oldest first, and lets idle actors go on."""
        self.timer.skip()
        self._put()
        self._ask_idle()
        count, r = len(self._clocks), self.rollout
        while len(self._ready) < count or self._somebody_is_late():
            self._receive()
        self._ready.sort(key=lambda one: one[1].version)
        taken, self._ready = self._ready[:count], self._ready[count:]
        if self._staleness < 2:  # one of each actor: then results do not depend on who was first
            taken.sort(key=lambda one: one[0])
        self._final, self._out_of_time = torch.zeros_like(r.observation), torch.zeros_like(r.ended)
        ended = [self._book(place, actor, fragment) for place, (actor, fragment) in enumerate(taken)]
        self._oldest = self._version - min(fragment.version for _, fragment in taken)
        if self._staleness:
            self._ask_idle()  # they play while we learn
        self.state.counters[:, 0] += self.config.update_steps
        self.timer.lap("step")
        return Ended(*(np.concatenate(column) for column in zip(*ended, strict=True)))

    def _somebody_is_late(self) -> bool:
        """Whether a fragment that is not here yet would be too old in the next update."""
        limit = max(self._staleness, 1)
        return any(self._version - version >= limit for _, version in self._asked.values())

    def _ask_idle(self) -> None:
        """Asks idle actors for fragments, as many as can be learnt from before they are too old."""
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
        rows = self._crew.groups[actor]
        first = int(self._slab.index[rows.start])
        task = Task(self.config, self.seeds[0], first, int(self._clocks[actor]))
        self._asked[self._crew.actors[actor].apply.remote(play, self._policy, task)] = actor, self._version
        self._began[actor] = time.monotonic()

    def _receive(self) -> None:
        """Waits for one fragment; its actor goes on at once if what it plays can be learnt from in time."""
        patience = max(self._crew.timeout, _PATIENCE * self._slowest or self._crew.timeout * self.config.update_steps)
        ready, _ = self._ray.wait(list(self._asked), num_returns=1, timeout=patience)
        first = ready[0] if ready else next(iter(self._asked))
        actor, _ = self._asked.pop(first)
        began, rows = self._began[actor], self._crew.groups[actor]
        try:
            fragment: Fragment = self._ray.get(first, timeout=0 if not ready else None)
        except self._ray.exceptions.RayError as error:
            self._crew.replace(actor, error)
            self._clocks[actor] += self.config.update_steps  # no draw is used twice
            self._ask(actor)
            return
        self._crew.delivered(actor)
        self._slowest = max(self._slowest, time.monotonic() - began)
        self._clocks[actor] += self.config.update_steps
        self._slab.episodes[rows] = fragment.episodes
        self._ready.append((actor, fragment))
        if self._staleness:
            self._ask_idle()

    def _book(self, place: int, actor: int, f: Fragment) -> Ended:
        """Writes a fragment into its place in the rollout."""
        r, rows = self.rollout, self._crew.groups[place]
        for name, array in f.played.items():
            getattr(r, name)[:, :, rows] = torch.from_numpy(array.copy())
        out_of_time = torch.from_numpy(f.out_of_time.copy())
        self._out_of_time[:, :, rows] = out_of_time
        self._final[:, :, rows][out_of_time] = torch.from_numpy(f.final.copy())
        self._last[:, rows] = torch.from_numpy(f.last.copy())
        mine = self._crew.groups[actor]
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
        """As if the experience were fresh: to see what the correction is worth."""
        found = self._replayed(replace(old, log_prob=self._log_prob(old)))
        return found._replace(log_prob=old.log_prob.flatten(1, 2))

    def _log_prob(self, old: Remembered) -> Tensor:
        logits, _ = self._forward(self.state.weights, old.observation.flatten(1, 2))
        found, _ = self.head.evaluate(logits, old.mask.flatten(1, 2), old.action.flatten(1, 2))
        return found.view(old.log_prob.shape)

    def memory(self) -> dict[str, Tensor]:
        """How far actors are: no draw is used twice."""
        return {_CLOCKS: torch.from_numpy(self._clocks.copy())}

    def load_memory(self, saved: Mapping[str, Tensor]) -> None:
        """Goes on behind what any actor has played; there may be another number of them now."""
        if _CLOCKS in saved:
            self._clocks[:] = max(int(saved[_CLOCKS].max()), self.state.clock)
        else:  # played by another backend until now
            self._clocks[:] = self.state.clock

    def update(self, progress: float | NDArray) -> dict[str, NDArray]:
        """Learns; also says how old the oldest experience was."""
        return super().update(progress) | {"staleness": np.array([float(self._oldest)])}
