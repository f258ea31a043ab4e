"""Experience: act, step, store, T times. The same loop for every learner and every environment."""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cavalcade.envs.contract import Environment
from cavalcade.jit import kernel
from cavalcade.ppo.population import LearnerState
from cavalcade.ppo.rollout import Ended, EpisodeLog, Rollout
from cavalcade.ppo.timer import Timer


class Actor(Protocol):
    """What collecting needs of a learner."""

    def act(self, t: int, group: slice) -> NDArray:
        """Actions for the observations of some environments, booked as step t of the rollout."""
        ...

    def values(self, wanted: NDArray[np.bool_], ended_at: int | None = None) -> NDArray:
        """Values (P, N) of wanted environments: of current observations, or of those that ended episodes in a step."""
        ...


class Books(NamedTuple):
    """Where results of steps are written: (P, T, N), and (P, N) for episodes in progress."""

    reward: NDArray
    ended: NDArray
    bootstrap: NDArray
    total: NDArray
    length: NDArray


@kernel
def book(reward, terminated, truncated, start, stop, t, rewards, ended, total, length):
    """Books step t of environments start … stop − 1, (P·N,) into (P, T, N); returns whether an episode ended."""
    some = False
    n = total.shape[1]
    for e in range(start, stop):
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
    """Fills a rollout, and the log of episodes that ended in it.

    Each group of environments goes its own pace: it gets actions as soon as its results are there, whichever comes
    first. What is collected does not depend on that, since the policy stays the same and every draw is counted.
    """
    steps, groups = rollout.reward.shape[1], env.groups
    done = [0] * len(groups)
    tensors = (rollout.reward, rollout.ended, rollout.bootstrap, state.episode_return, state.episode_length)
    books = Books(*(tensor.numpy() for tensor in tensors))
    timer.skip()
    for g, group in enumerate(groups):
        env.send_group(g, actor.act(0, group))
    timer.lap("act")
    for _ in range(steps * len(groups)):
        g = env.take()
        timer.lap("step")
        store(env, actor, books, episodes, horizon_ends, done[g], groups[g])
        timer.lap("store")
        done[g] += 1
        if done[g] < steps:
            env.send_group(g, actor.act(done[g], groups[g]))
            timer.lap("act")
    state.counters[:, 0] += steps
    going_on = ~books.ended[:, -1].reshape(-1)
    rollout.last_value.numpy()[:] = actor.values(going_on) if going_on.any() else 0
    timer.lap("act")


def store(
    env: Environment, actor: Actor, books: Books, episodes: EpisodeLog, horizon_ends: bool, t: int, group: slice
) -> None:
    """Books the results of step t of a group: rewards, ends, and what is known of episodes that ended."""
    reward, ended, bootstrap, total, length = books
    b, start, stop = env.buffers, group.start, group.stop
    if not book(b.reward, b.terminated, b.truncated, start, stop, t, reward, ended, total, length):
        return
    policies, n = total.shape
    here = np.zeros(policies * n, np.bool_)
    here[group] = True
    over, out_of_time = here & (b.terminated | b.truncated), here & b.truncated & ~b.terminated
    at = policy, environment = over.reshape(policies, n).nonzero()
    values = np.zeros((policies, n)) if horizon_ends or not out_of_time.any() else actor.values(out_of_time, t)
    bootstrap[:, t][at] = np.where(out_of_time.reshape(policies, n), values, 0)[at]
    labels = np.zeros(len(policy), np.int64) if env.labels is None else env.labels[over].astype(np.int64)
    figures = np.zeros((len(policy), 0)) if env.figures is None else env.figures[over]
    episodes.add(t, start, Ended(policy, environment, labels, total[at], length[at], figures))
    total[at] = 0
    length[at] = 0
