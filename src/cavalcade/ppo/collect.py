"""Experience: act, step, store, T times. The same loop for every learner and every environment."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cavalcade.envs.contract import Environment
from cavalcade.jit import kernel
from cavalcade.ppo.population import LearnerState
from cavalcade.ppo.rollout import Ended, EpisodeLog, Rollout
from cavalcade.ppo.timer import Timer


class Actor(Protocol):
    """What collecting needs of a learner."""

    def act(self, t: int) -> NDArray:
        """Actions (P·N,) for the observations in the environment's buffers, booked as step t of the rollout."""
        ...

    def values(self, final: bool, wanted: NDArray[np.bool_]) -> NDArray:
        """Values (P, N) of the current or the final observations of the environments wanted."""
        ...


@kernel
def book(reward, terminated, truncated, t, rewards, ended, total, length):
    """Books the results of step t; returns whether an episode ended. (P·N,) into (P, T, N) and (P, N)."""
    some = False
    n = total.shape[1]
    for e in range(reward.size):
        p, i = e // n, e % n
        over = terminated[e] or truncated[e]
        rewards[p, t, i] = reward[e]
        ended[p, t, i] = over
        total[p, i] += reward[e]
        length[p, i] += 1
        some = some or over
    return some


def collect(
    env: Environment,
    actor: Actor,
    rollout: Rollout,
    state: LearnerState,
    episodes: EpisodeLog,
    horizon_ends: bool,
    timer: Timer,
) -> None:
    """Fills a rollout, and the log of episodes that ended in it."""
    policies, steps, n = rollout.reward.shape
    reward, ended, bootstrap = rollout.reward.numpy(), rollout.ended.numpy(), rollout.bootstrap.numpy()
    total, length, counters = state.episode_return.numpy(), state.episode_length.numpy(), state.counters.numpy()
    timer.skip()
    for t in range(steps):
        actions = actor.act(t)
        timer.lap("act")
        buffers = env.step(actions)
        timer.lap("step")
        counters[0] += 1
        if book(buffers.reward, buffers.terminated, buffers.truncated, t, reward, ended, total, length):
            over, out_of_time = buffers.terminated | buffers.truncated, buffers.truncated & ~buffers.terminated
            if horizon_ends or not out_of_time.any():
                bootstrap[:, t] = 0
            else:
                bootstrap[:, t] = np.where(out_of_time.reshape(policies, n), actor.values(True, out_of_time), 0)
            policy, environment = ended[:, t].nonzero()
            labels = np.zeros(len(policy), np.int64) if env.labels is None else env.labels[over].astype(np.int64)
            figures = np.zeros((len(policy), 0)) if env.figures is None else env.figures[over]
            at = policy, environment
            episodes.parts.append(Ended(policy, environment, labels, total[at], length[at], figures))
            total[at] = 0
            length[at] = 0
        timer.lap("store")
    going_on = ~ended[:, -1].reshape(-1)
    rollout.last_value.numpy()[:] = actor.values(False, going_on) if going_on.any() else 0
    timer.lap("act")
