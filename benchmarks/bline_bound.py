"""A certified bound: no Blue, whatever it observes, does better than this against B_line.

    python benchmarks/bline_bound.py [--revision head leaderboard-2022]

The exact optimum of a game that is easier for Blue in two ways, by dynamic programming over all its states:

- Blue sees the whole hidden state, and which user host B_line goes through before B_line draws it;
- decoys cost no action: whenever Red exploits a host, Blue chooses which decoys had answered Red's scan.

Each Blue of the real game can be copied there: decoys matter to Red only through the ports that a scan reports, and
what a Blue does by what it has seen, one that sees more can do too. States and outcomes come from the rules themselves
(`game.step` with scripted draws), not from a second description of them. Prints the best return of each cell, and of
the three cells as one sum, which no policy that is not told the horizon can exceed; and, to check the table of
outcomes, the return of a Blue that sleeps beside its mean in the simulator.
"""

import argparse
import time
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.jit import kernel
from cavalcade.envs.cage2 import Cage2, cpu, game
from cavalcade.envs.cage2.protocol import episode_returns
from cavalcade.envs.cage2.red import exploit_options
from cavalcade.envs.cage2.reward import HORIZONS
from cavalcade.envs.cage2.rng import DETECTION, LINE_TARGET, SCRIPT_SIZE, SCRIPT_WIDTH, SESSION
from cavalcade.envs.cage2.rng import TOP_EXPLOIT as TOP_EXPLOIT_DRAW
from cavalcade.envs.cage2.scenario import (
    B_LINE,
    DECOY_FITS,
    DECOY_PORT,
    DETECTION_CHANCE,
    ENT0,
    ENT1,
    ENT2,
    EXPLOIT,
    EXPLOIT_PORT,
    EXPLOIT_SERVICE,
    FIRST_BLOCK,
    FIRST_RESTORE_ACTION,
    HOSTS,
    HTTP_RFI,
    LISTENING,
    MAIL_SERVERS,
    NUM_ACTIONS,
    NUM_DECOYS,
    NUM_EXPLOITS,
    NUM_HOSTS,
    OP_SERVER,
    REMOVE,
    REVISIONS,
    SLEEP,
    SQL_INJECTION,
    TOP_EXPLOIT,
    TOP_EXPLOIT_CHANCE,
    USER1,
    USER2,
    USER3,
    USER4,
)
from cavalcade.envs.cage2.state import State, allocate

# What decides the future: B_line's plan, Red's sessions, what it has scanned, the operational service. Remembered ports
# are Blue's choice here; B_line does not look at addresses, names and subnets; malware and tables are what Blue sees.
FIELDS = (
    "user", "flagged", "privileged", "mail_fixed", "ot_running", "ot_stoppable", "red_success", "scanned", "ot_known",
    "line_state", "line_at_server", "scan_empty",
)  # fmt: skip
CHUNK = 1 << 19  # rows played at once


class Outcomes(NamedTuple):
    """Every outcome of every action in every state: one entry per (state, action, exploit)."""

    state: NDArray[np.int64]
    action: NDArray[np.int64]
    exploit: NDArray[np.int64]  # an exploit with a service of its own, or NUM_EXPLOITS: none of them
    reward: NDArray[np.float64]  # (R, 4): by detection and by the session that is escalated, in points
    then: NDArray[np.int64]  # (R, 4): the next state


@kernel(cached=False)
def play(s, p, actions, rewards):
    """One step of every row."""
    for e in range(actions.size):
        hosts, impact, restore = game.step(s, p, e, np.int64(actions[e]))
        rewards[e] = (hosts + impact + restore) / 10


def path_of(target: int) -> tuple[int, ...]:
    """The hosts that B_line touches on its way through a user host."""
    return target, ENT1 if target in (USER1, USER2) else ENT0, ENT2, OP_SERVER


def beginning(target: int) -> State:
    """A game that B_line begins, with the user host that it will draw."""
    s = allocate(1)
    s.red_setting[0] = B_LINE
    cpu.begin(s, np.zeros(1, np.int64))
    s.line_target[0] = target
    return s


def packed(s: State, rows: slice) -> NDArray[np.int16]:
    return np.stack([getattr(s, name)[rows].astype(np.int16) for name in FIELDS], axis=1)


def exploits_of(host: int) -> list[int]:
    """The exploits that find a service of the host's own; all others fail."""
    return [x for x in range(NUM_EXPLOITS) if EXPLOIT_SERVICE[x] >> host & 1]


def all_outcomes(params: game.Params, target: int) -> tuple[NDArray[np.int16], NDArray[np.int64], Outcomes]:
    """All states that can be reached from state 0, the host that Red exploits next in each (−1: none), and outcomes."""
    path = path_of(target)
    first = beginning(target)
    known = {packed(first, slice(None))[0].tobytes(): 0}
    states, attacked, parts = [packed(first, slice(None))[0]], [], []
    done = 0
    while done < len(states):
        new = np.array(states[done:])
        hosts = next_attacks(params, target, new)
        attacked.append(hosts)
        rows = [
            (done + i, a, x)
            for i, host in enumerate(hosts)
            for a in useful_actions(new[i], path)
            for x in ((*exploits_of(host), NUM_EXPLOITS) if host >= 0 else (NUM_EXPLOITS,))
        ]
        done += len(new)
        state, action, exploit = np.array(rows).T
        for at in range(0, len(rows), CHUNK // 4):
            part = slice(at, at + CHUNK // 4)
            here = np.array([states[i] for i in state[part]])
            rewards, then = played(params, target, here, action[part], exploit[part])
            numbers = np.empty(then.shape[:2], np.int64)
            keys, inverse = np.unique(then.reshape(-1, len(FIELDS)), axis=0, return_inverse=True)
            index = np.empty(len(keys), np.int64)
            for i, key in enumerate(keys):
                name = key.tobytes()
                if name not in known:
                    known[name] = len(states)
                    states.append(key)
                index[i] = known[name]
            numbers[:] = index[inverse.reshape(-1)].reshape(numbers.shape)
            parts.append(Outcomes(state[part], action[part], exploit[part], rewards, numbers))
    together = Outcomes(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    return np.array(states), np.concatenate(attacked), together


def useful_actions(state: NDArray[np.int16], path: tuple[int, ...]) -> list[int]:
    """Sleep, and repairs that change something; all others are worth no more than Sleep."""
    held = dict(zip(FIELDS, state.tolist(), strict=True))
    sessions = held["user"] | held["flagged"] | held["privileged"]
    removes = [FIRST_BLOCK + NUM_HOSTS * REMOVE + h for h in path if held["flagged"] >> h & 1]
    restored = [
        h for h in path if sessions >> h & 1 or h == OP_SERVER or MAIL_SERVERS >> h & ~held["mail_fixed"] >> h & 1
    ]
    return [SLEEP, *removes, *(FIRST_RESTORE_ACTION + h for h in restored)]


def prepared(target: int, here: NDArray[np.int16], copies: int) -> State:
    """A scripted batch with so many copies of each state."""
    s, n = allocate(copies * len(here), scripted=True), copies * len(here)
    for i, name in enumerate(FIELDS):
        getattr(s, name)[:] = np.repeat(here[:, i], copies)
    s.red[:], s.red_setting[:], s.line_target[:], s.step[:] = B_LINE, B_LINE, target, 1
    s.script[:] = -1
    s.script.reshape(n, SCRIPT_SIZE)[:, SCRIPT_WIDTH * LINE_TARGET] = target
    return s


def next_attacks(params: game.Params, target: int, here: NDArray[np.int16]) -> NDArray[np.int64]:
    """The host that Red exploits next, whatever Blue does; −1 if it does something else."""
    s = prepared(target, here, 1)
    for purpose in (DETECTION, SESSION):
        s.script.reshape(len(here), SCRIPT_SIZE)[:, SCRIPT_WIDTH * purpose] = 0
    play(s, params, np.zeros(len(here), np.int64), np.zeros(len(here)))
    return np.where(s.red_action == EXPLOIT, s.red_target, -1).astype(np.int64)


def played(
    params: game.Params, target: int, here: NDArray[np.int16], action: NDArray[np.int64], exploit: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int16]]:
    """Rewards (R, 4) and next states (R, 4, fields) by detection and session; an exploit is forced by its one port."""
    n = 4 * len(here)
    s = prepared(target, here, 4)
    script = s.script.reshape(n, SCRIPT_SIZE)
    script[:, SCRIPT_WIDTH * DETECTION] = np.tile([0, 1, 0, 1], len(here))
    script[:, SCRIPT_WIDTH * SESSION] = np.tile([0, 0, 1, 1], len(here))
    script[:, SCRIPT_WIDTH * SESSION + 1] = np.tile([1, 1, 0, 0], len(here))  # where there is only the other one
    script[:, SCRIPT_WIDTH * TOP_EXPLOIT_DRAW] = 1
    ports = np.append(EXPLOIT_PORT, 0)
    ports[SQL_INJECTION] |= EXPLOIT_PORT[HTTP_RFI]  # which it needs; it is the heavier of the two
    s.ports.reshape(n, NUM_HOSTS)[:] = np.repeat(ports[exploit], 4)[:, None]
    rewards = np.zeros(n)
    play(s, params, np.repeat(action, 4), rewards)
    forced = (np.repeat(exploit, 4) < NUM_EXPLOITS) & (s.red_action == EXPLOIT)
    assert (s.red_exploit[forced] == np.repeat(exploit, 4)[forced]).all()
    return rewards.reshape(-1, 4), packed(s, slice(None)).reshape(-1, 4, len(FIELDS))


def choices(host: int, decoys: bool) -> NDArray[np.float64]:
    """Probabilities of each exploit (and of none with a service) for every set of decoys, (sets, NUM_EXPLOITS + 1)."""
    fitting, found = [k for k in range(NUM_DECOYS) if decoys and DECOY_FITS[k] >> host & 1], set()
    for size in range(len(fitting) + 1):
        for placed in combinations(fitting, size):
            seen = int(LISTENING[host])
            for kind in placed:
                seen |= int(DECOY_PORT[kind])
            options, chance = exploit_options.py_func(seen), np.zeros(NUM_EXPLOITS + 1)
            members = [x for x in range(NUM_EXPLOITS) if options >> x & 1]
            top = int(TOP_EXPLOIT[options])
            for x in members:
                others = len(members) - 1
                share = 1.0 if not others else TOP_EXPLOIT_CHANCE if x == top else (1 - TOP_EXPLOIT_CHANCE) / others
                chance[x if EXPLOIT_SERVICE[x] >> host & 1 else NUM_EXPLOITS] += share
            found.add(tuple(chance))
    return np.array(sorted(found))


def best_return(
    states: int, attacked: NDArray[np.int64], o: Outcomes, weights: NDArray[np.float64], *, decoys: bool = True
) -> float:
    """The most that Blue can have on average from state 0, each step counted with its weight."""
    detected, second = DETECTION_CHANCE, 0.5
    chance = np.array([(1 - detected) * second, detected * second, (1 - detected) * second, detected * second])
    pairs, rank = np.unique(o.state * NUM_ACTIONS + o.action, return_inverse=True)
    starts = np.searchsorted(pairs // NUM_ACTIONS, np.arange(states))
    host_of = attacked[pairs // NUM_ACTIONS]
    value = np.zeros(states)
    nothing = np.eye(NUM_EXPLOITS + 1)[-1:]
    by_host = {host: choices(host, decoys) if host >= 0 else nothing for host in np.unique(attacked)}
    for weight in weights[::-1]:
        q, worth = np.zeros((len(pairs), NUM_EXPLOITS + 1)), np.empty(len(pairs))
        q[rank, o.exploit] = (weight * o.reward + value[o.then]) @ chance
        for host, sets in by_host.items():
            worth[host_of == host] = (q[host_of == host] @ sets.T).max(axis=1)
        value = np.maximum.reduceat(worth, starts)
    return float(value[0])


def weights_of(horizons: tuple[int, ...]) -> NDArray[np.float64]:
    return np.array([sum(t <= horizon for horizon in horizons) for t in range(1, max(horizons) + 1)], np.float64)


def asleep(attacked: NDArray[np.int64], o: Outcomes) -> float:
    """Mean return over 100 steps of a Blue that does nothing, by the same table of outcomes."""
    only = Outcomes(*(column[o.action == SLEEP] for column in o))
    return best_return(len(attacked), attacked, only, weights_of((HORIZONS[-1],)), decoys=False)


def asleep_in_games(revision: str) -> tuple[float, float]:
    """The same in the simulator: mean and its standard error."""
    env = Cage2(20_000, red="bline", revision=revision, threads=1)
    returns = episode_returns(lambda env: np.zeros(env.spec.num_envs, np.int32), env)
    return float(returns.mean()), float(returns.std(ddof=1) / len(returns) ** 0.5)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--revision", nargs="+", choices=REVISIONS, default=list(REVISIONS))
    for revision in parser.parse_args().revision:
        began, params = time.perf_counter(), Cage2(1, revision=revision).params
        wanted = {str(h): weights_of((h,)) for h in HORIZONS} | {"sum": weights_of(HORIZONS)}
        found, checked = {name: [] for name in wanted}, []
        for target in (USER1, USER2, USER3, USER4):
            states, attacked, outcomes = all_outcomes(params, target)
            for name, weights in wanted.items():
                found[name].append(best_return(len(states), attacked, outcomes, weights))
            checked.append(asleep(attacked, outcomes))
            text = ", ".join(f"{name} {values[-1]:.3f}" for name, values in found.items())
            print(f"{revision}, through {HOSTS[target]}: {len(states):,} states; {text}", flush=True)
        mean, error = asleep_in_games(revision)
        print(f"{revision}, a Blue that sleeps: {np.mean(checked):.2f}; in 20,000 games {mean:.2f} ± {error:.2f}")
        text = ", ".join(f"{name} {np.mean(values):.3f}" for name, values in found.items())
        print(f"{revision}: no Blue does better than {text} ({time.perf_counter() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
