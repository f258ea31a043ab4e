"""The collection loop: act, step, store, T times. The same for every engine and every environment."""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from cavalcade.core.contract import Environment
from cavalcade.core.jit import kernel
from cavalcade.core.timer import Timer
from cavalcade.ppo.rollout import EpisodeLog, Episodes
from cavalcade.ppo.state import SavedTensors


class Actor(Protocol):
    """The interface of an engine that the loop uses."""

    def act(self, t: int, group: slice) -> ArrayLike:
        """Actions for the current observations of a group, recorded as step t of the rollout.

        An array, or what becomes one: a device may still compute it.
        """
        ...

    def values(self, wanted: NDArray[np.bool_], ended_at: int | None = None) -> NDArray:
        """Values (P, N) of the wanted environments: of current observations, or of final ones of step `ended_at`."""
        ...


class StepBuffers(Protocol):
    """The part of a rollout that the loop writes: (P, T, N), and `last_value` (P, N) after the last step."""

    reward: Tensor
    ended: Tensor
    bootstrap: Tensor
    last_value: Tensor


class StepRecord(NamedTuple):
    """Arrays that receive the results of steps: (P, T, N), and (P, N) for episodes in progress."""

    reward: NDArray
    ended: NDArray
    bootstrap: NDArray
    total: NDArray
    length: NDArray


@kernel
def record_step(reward, terminated, truncated, start, stop, t, rewards, ended, total, length):
    """Records step t of environments start … stop − 1, (P·N,) into (P, T, N); returns whether an episode ended."""
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
    rollout: StepBuffers,
    state: SavedTensors,
    episodes: EpisodeLog,
    terminal: bool,
    timer: Timer,
) -> None:
    """Fills a rollout, and the log of episodes that ended in it.

    Each group of environments runs at its own pace: it gets new actions as soon as its results arrive. The samples do
    not depend on the order of arrival, since the policy is fixed and random numbers are counter-based. While a device
    computes the actions of a group, another group whose results have arrived is taken first.
    """
    steps, groups = rollout.reward.shape[1], env.groups
    done = [0] * len(groups)
    tensors = (rollout.reward, rollout.ended, rollout.bootstrap, state.episode_return, state.episode_length)
    records = StepRecord(*(tensor.numpy() for tensor in tensors))
    timer.skip()
    for g, group in enumerate(groups):
        env.send_group(g, actor.act(0, group))
    timer.lap("act")
    held: list[tuple[int, ArrayLike]] = []  # a group whose actions a device computes
    for _ in range(steps * len(groups)):
        g = env.wait_any()
        timer.lap("step")
        store(env, actor, records, episodes, terminal, done[g], groups[g])
        timer.lap("store")
        done[g] += 1
        hold = False
        if done[g] < steps:
            actions = actor.act(done[g], groups[g])
            held.append((g, actions))
            hold = not isinstance(actions, np.ndarray) and env.ready()
        while len(held) > hold:
            env.send_group(*held.pop(0))
        timer.lap("act")
    state.counters[:, 0] += steps
    going_on = ~records.ended[:, -1].reshape(-1)
    rollout.last_value.numpy()[:] = actor.values(going_on) if going_on.any() else 0
    timer.lap("act")


def store(
    env: Environment, actor: Actor, records: StepRecord, episodes: EpisodeLog, terminal: bool, t: int, group: slice
) -> None:
    """Records the results of step t of a group: rewards, ends, bootstrap values, and episodes that ended."""
    reward, ended, bootstrap, total, length = records
    b, start, stop = env.buffers, group.start, group.stop
    if not record_step(b.reward, b.terminated, b.truncated, start, stop, t, reward, ended, total, length):
        return
    policies, n = total.shape
    here = np.zeros(policies * n, np.bool_)
    here[group] = True
    over, out_of_time = here & (b.terminated | b.truncated), here & b.truncated & ~b.terminated
    at = policy, environment = over.reshape(policies, n).nonzero()
    values = np.zeros((policies, n)) if terminal or not out_of_time.any() else actor.values(out_of_time, t)
    bootstrap[:, t][at] = np.where(out_of_time.reshape(policies, n), values, 0)[at]
    kinds = np.zeros(len(policy), np.int64) if env.episode_kinds is None else env.episode_kinds[over].astype(np.int64)
    episode_stats = np.zeros((len(policy), 0)) if env.episode_stats is None else env.episode_stats[over]
    episodes.add(t, start, Episodes(policy, environment, kinds, total[at], length[at], episode_stats))
    total[at] = 0
    length[at] = 0
