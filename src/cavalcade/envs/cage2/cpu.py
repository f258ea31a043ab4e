"""The loops over environments that Python calls, on CPU threads. Games do not depend on how a batch is split."""

import numba
import numpy as np

from cavalcade.core.jit import kernel
from cavalcade.core.rng import environment_key, step_key
from cavalcade.envs.cage2 import game, observe
from cavalcade.envs.cage2.own_red import allowed
from cavalcade.envs.cage2.scenario import NUM_ACTIONS

# Below this many environments per thread, waking a thread costs more than it saves.
ENVIRONMENTS_PER_THREAD = 256


@kernel
def take_actions(actions, target):
    """Checks and copies actions; returns the first environment whose action is out of range, or −1."""
    for e in range(actions.size):
        action = np.int64(actions[e])
        if action < 0 or action >= NUM_ACTIONS:
            return e
        target[e] = action
    return -1


@kernel
def derive_keys(stream, seeds, indices, keys):
    """The random key of each environment from its stream, seed and index."""
    for e in range(keys.size):
        keys[e] = environment_key(stream, seeds[e], indices[e])


@kernel
def step_keys(s, keys):
    """The random key of each environment's next step."""
    for e in range(keys.size):
        keys[e] = step_key(s.key[e], s.episode[e], s.step[e])


@kernel
def give_red_actions(k, environments, actions, targets):
    """Makes given actions the next ones of Red in the given environments; impossible ones become InvalidAction."""
    for i in range(environments.size):
        e = environments[i]
        k.red_action[e], k.red_target[e] = allowed(k, e, np.int64(actions[i]), np.int64(targets[i]))


@kernel
def begin(s, environments):
    """Begins games in the given environments."""
    for e in environments:
        game.begin(s, e)


@kernel
def show(s, p, out, environments):
    """Writes outputs of the given environments as after a reset: observations, zero rewards, no end flags."""
    for e in environments:
        game.show(s, p, e, out)
        out.reward[e] = 0
        for part in range(out.parts.shape[1]):
            out.parts[e, part] = 0
        out.terminated[e] = False
        out.truncated[e] = False


@kernel
def show_tables(s, p, out, environments, tables):
    """Replaces Blue's tables in the given environments and writes their observations."""
    for i in range(environments.size):
        e = environments[i]
        s.table[e] = tables[i]
        observe.remember_scans(s, e, tables[i])
        game.show(s, p, e, out)


@kernel
def step_range(s, p, actions, out, start, stop):
    """Steps environments start … stop − 1."""
    for e in range(start, stop):
        game.advance(s, p, e, np.int64(actions[e]), out)


@kernel(parallel=True)
def step_threads(s, p, actions, out, threads):
    """Steps all environments, in one range per thread."""
    n = actions.size
    for i in numba.prange(threads):
        step_range(s, p, actions, out, i * n // threads, (i + 1) * n // threads)


def step(s, p, actions, out, threads: int) -> None:
    """Steps all environments, on as many threads as pay off."""
    n = actions.size
    threads = min(threads, n // ENVIRONMENTS_PER_THREAD)
    if threads > 1:
        step_threads(s, p, actions, out, threads)
    else:
        step_range(s, p, actions, out, 0, n)
