"""A policy that looks ahead: it plays its best actions on from what it believes, and takes the one that ends best.

One step of policy improvement by rollouts (Bertsekas): from samples of the belief, each candidate is played and the
policy follows to the end of the game. Continuation i of every candidate begins in the same hidden state and has the
same draws (common random numbers), so that their differences are known far better than their means. Blue is not told
the horizon: continuations are scored as the nine cells of the protocol count them.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.errors import ConfigError, at_least
from cavalcade.envs.cage2 import cpu
from cavalcade.envs.cage2.belief import Belief
from cavalcade.envs.cage2.env import Cage2
from cavalcade.envs.cage2.reward import HORIZONS, OBJECTIVES, PROTOCOL
from cavalcade.envs.cage2.scenario import REVISIONS
from cavalcade.ppo.distinct_runner import DistinctRunner
from cavalcade.ppo.mlp_policy import MlpPolicy

CANDIDATES = 12
MARGIN = 2.0  # standard errors by which a candidate must be better than the policy's own choice
_FEW, _DROPPED = 32, 3.0  # continuations of a first look; standard errors within which a candidate is kept after it
LEAST_PARTICLES = 256
_GAMES = 1 << 17  # continuations played at once
_STREAM = np.uint64(5)  # of draws that no other stream has


class Planner:
    """Acts for a batch of games that begin together; reads what Blue sees of them and nothing else.

    Args:
        policy: a single feed-forward policy.
        continuations: games played per candidate action; 0 acts as the policy does.
        seed: of belief and continuations.

    Attributes:
        changed: share of decisions in which another action than the policy's was taken.
        lost: steps in which no particle explained what Blue saw.
    """

    def __init__(self, policy: MlpPolicy, continuations: int, *, seed: int = 0):
        if policy.policies != 1 or policy.recurrent or policy.mask:
            raise ConfigError(f"{policy.path} cannot look ahead; that needs one feed-forward policy without an order")
        if "belief" in policy.config.task.extras:
            raise ConfigError(f"{policy.path} observes a belief; only policies without that extra look ahead")
        self.continuations = at_least("continuations", continuations, 0)
        self._seed = seed
        self._policy, self._actor = policy, DistinctRunner(policy.runner(0))
        self._shown: dict[str, Any] = policy.config.task.shown
        self._belief: Belief | None = None
        self._decisions = self._changes = 0
        self.lost = 0

    @property
    def changed(self) -> float:
        return self._changes / max(1, self._decisions)

    def __call__(self, env: Cage2) -> NDArray[np.int32]:
        """Actions (N,) for the observations in the buffers of the batch."""
        tables, t = env.words[:, 0], int(env.state.step[0])
        if t == 0 or self._belief is None:
            self._belief = Belief(env, max(LEAST_PARTICLES, self.continuations), seed=self._seed)
        else:
            before = self._belief.lost
            self._belief.update(self._latest, tables)
            self.lost += self._belief.lost - before
        self._latest = self._actor(env).copy()
        if self.continuations:
            self._improve(env, t)
        return self._latest

    def _improve(self, env: Cage2, t: int) -> None:
        """Replaces actions where another candidate is better.

        A few continuations first drop candidates that are hardly better, and with them most games; then all are played.
        """
        others = self._others(env)
        n, k = others.shape
        few = min(_FEW, self.continuations)
        gain = self._gains(env, np.repeat(np.arange(n), k), others.ravel(), few, t).reshape(n, k, few)
        mean, error = gain.mean(axis=2), _error(gain)
        open_ = mean + _DROPPED * error > 0
        if few < self.continuations:
            games, which = np.nonzero(open_)
            gain = self._gains(env, games, others[games, which], self.continuations, t)
            mean[open_], error[open_] = gain.mean(axis=1), _error(gain)
        better = np.where(open_ & (mean > MARGIN * error), mean, 0)
        changed = better.any(axis=1)
        self._latest[changed] = others[changed, better[changed].argmax(axis=1)]
        self._decisions += n
        self._changes += int(changed.sum())

    def _others(self, env: Cage2) -> NDArray[np.int32]:
        """The policy's best actions beside its own, (N, CANDIDATES − 1)."""
        found = self._policy.evaluate(env.buffers.observation, env.buffers.action_mask).probabilities
        found[np.arange(len(found)), self._latest] = -1
        return np.argsort(-found, axis=1, kind="stable")[:, : CANDIDATES - 1].astype(np.int32)

    def _gains(
        self, env: Cage2, games: NDArray[np.int64], actions: NDArray[np.int32], continuations: int, t: int
    ) -> NDArray[np.float64]:
        """What actions in games gain over the policy's own, in each continuation, (actions, continuations)."""
        played = np.unique(games)
        own = self._returns(env, played, self._latest[played], continuations, t)
        found = self._returns(env, games, actions, continuations, t)
        return found - own[np.searchsorted(played, games)]

    def _returns(
        self, env: Cage2, games: NDArray[np.int64], actions: NDArray[np.int32], continuations: int, t: int
    ) -> NDArray[np.float64]:
        """Returns of continuations, (actions, continuations)."""
        found, at_once = np.zeros((len(games), continuations)), max(1, _GAMES // continuations)
        for start in range(0, len(games), at_once):
            part = slice(start, start + at_once)
            found[part] = self._continued(env, games[part], actions[part], continuations, t)
        return found

    def _continued(
        self, env: Cage2, games: NDArray[np.int64], actions: NDArray[np.int32], continuations: int, t: int
    ) -> NDArray[np.float64]:
        belief, m = self._belief, continuations
        assert belief is not None
        p = env.params
        shown = self._shown | {"revision": REVISIONS[p.revision], "green": bool(p.green)}
        rules: dict[str, Any] = {"horizon": HORIZONS[-1], "objective": OBJECTIVES[PROTOCOL], "autoreset": False}
        future = Cage2(len(games) * m, threads=env.threads, **shown, **rules)
        particles = (belief.particles * games[:, None] + np.arange(m)).ravel()
        saved = belief.save(particles)
        seeds = np.full(len(particles), self._seed, np.uint64)
        cpu.derive_keys(_STREAM, seeds, (particles * HORIZONS[-1] + t).astype(np.uint64), saved["key"])
        future.load_state(saved)
        future.step(np.repeat(actions, m))
        total = np.rint(10 * future.buffers.reward)
        while not future.buffers.truncated[0]:
            future.step(self._actor(future))
            total += np.rint(10 * future.buffers.reward)
        return total.reshape(-1, m) / 10


def _error(gain: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard errors of means over the last axis."""
    return gain.std(axis=-1, ddof=min(1, gain.shape[-1] - 1)) / gain.shape[-1] ** 0.5
