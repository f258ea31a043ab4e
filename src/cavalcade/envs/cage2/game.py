"""One game: its beginning, and one step in the order of the original. The page to read first."""

from typing import NamedTuple

import numpy as np

from cavalcade.core.jit import rule
from cavalcade.core.rng import step_key
from cavalcade.envs.cage2 import agents, blue, observe, red, reward
from cavalcade.envs.cage2.rng import AGENT, choose
from cavalcade.envs.cage2.scenario import MIXED, NUM_DECOYS, NUM_HOSTS, RED_SLEEP, UNKNOWN, USER, USER0

_ANY_AGENT = (1 << MIXED) - 1


class Params(NamedTuple):
    """Settings shared by all games of a batch."""

    revision: int
    variant: int
    green: int
    horizon: int  # 0: no end
    autoreset: int
    extras: int
    objective: int
    detection: int  # threshold of the draw
    red_delay: int  # steps before Red may act
    weighted: int  # whether the four costs of hosts are not those of the challenge
    cost_user: int  # in tenths, as all costs
    cost_enterprise: int
    cost_op_host: int
    cost_op_server: int
    cost_impact: int
    cost_restore: int


class Outputs(NamedTuple):
    """Output arrays of a step, one row per environment."""

    words: np.ndarray  # (N, W) int64: observation, packed
    values: np.ndarray  # (N, O): observation, a value per bit
    final_words: np.ndarray  # (N, W) int64: last observation of the episode that just ended
    final_values: np.ndarray  # (N, O)
    mask: np.ndarray  # (N, 145) bool
    mask_words: np.ndarray  # (N, 2) int64: the part of the mask that can change, packed
    reward: np.ndarray  # (N,) float32
    parts: np.ndarray  # (N, 3) int16: hosts, impact, restore, in tenths
    terminated: np.ndarray  # (N,) bool
    truncated: np.ndarray  # (N,) bool
    final_total: np.ndarray  # (N,) int32: return of the episode that just ended, in tenths …
    final_red: np.ndarray  # (N,) int8: … and the agent that played it


@rule
def begin(s, e):
    """A new game: Red holds User0 and knows only that, Blue has seen nothing, everything runs."""
    s.step[e] = 0
    s.total[e] = 0
    s.red[e] = s.red_setting[e]
    if s.red[e] == MIXED:
        s.red[e] = choose(s, e, step_key(s.key[e], s.episode[e], 0), AGENT, _ANY_AGENT)
    s.user[e] = 0
    s.flagged[e] = 0
    s.privileged[e] = 1 << USER0
    s.malware[e] = 0
    s.mail_fixed[e] = 0
    for kind in range(NUM_DECOYS):
        s.decoys[NUM_DECOYS * e + kind] = 0
    s.ot_running[e] = 1
    s.ot_stoppable[e] = 1
    s.red_success[e] = UNKNOWN
    s.addresses[e] = 1 << USER0
    s.hostnames[e] = 1 << USER0
    s.subnets[e] = 1 << USER
    s.scanned[e] = 0
    for host in range(NUM_HOSTS):
        s.ports[NUM_HOSTS * e + host] = 0
    s.ot_known[e] = 0
    s.line_state[e] = 0
    s.line_target[e] = agents.NOBODY
    s.line_at_server[e] = 0
    s.scan_empty[e] = 0
    s.meander_swept[e] = 0
    s.meander_scanned[e] = 0
    s.meander_exploited[e] = 0
    s.meander_escalated[e] = 0
    s.meander_owned[e] = 0
    s.meander_last_exploit[e] = agents.NOBODY
    s.meander_last_host[e] = agents.NOBODY
    s.table[e] = 0
    s.seen_scanned[e] = 0
    s.seen_latest[e] = 0
    s.blue_action[e] = -1
    s.blue_success[e] = UNKNOWN
    s.green_target[e] = agents.NOBODY
    s.red_action[e] = RED_SLEEP
    s.red_target[e] = agents.NOBODY
    s.red_exploit[e] = -1


@rule
def step(s, p, e, action):
    """One step: Blue, then Green, then Red, then the reward, then what Blue sees of it.

    Red chooses from the outcome of its own previous action and plays on the network as Blue left it. The parts of the
    reward are returned, in tenths.
    """
    key = step_key(s.key[e], s.episode[e], s.step[e])
    s.step[e] += 1
    s.blue_action[e] = action
    s.blue_success[e] = blue.act(s, p, e, action)
    malware = np.int64(s.malware[e])
    s.green_target[e] = agents.choose_green_target(s, p, e, key)
    red_action, target = agents.choose_red_action(s, p, e, key)
    success, events = red.act(s, p, e, key, red_action, target)
    s.red_action[e] = red_action
    s.red_target[e] = target
    s.red_success[e] = success
    hosts, impact, restore = reward.hosts_part(s, p, e), reward.impact_part(s, p, e), reward.restore_part(p, action)
    s.total[e] += hosts + impact + restore
    observe.update_table(s, p, e, action, malware, target, events)
    return hosts, impact, restore


@rule
def settle(s, p, e, action, out):
    """One step of environment e: reward and end; where a game ends, its last observation, and the next game begins.

    The end of the horizon is a truncation; the game never terminates. Returns whether a new game has begun.
    """
    hosts, impact, restore = step(s, p, e, action)
    out.reward[e] = (hosts + impact + restore) * reward.step_weight(p, np.int64(s.step[e])) / 10
    out.parts[e, 0] = hosts
    out.parts[e, 1] = impact
    out.parts[e, 2] = restore
    ended = p.horizon > 0 and s.step[e] >= p.horizon
    out.truncated[e] = ended
    again = ended and p.autoreset
    if again:
        observe.write_words(s, p, e, out.final_words)
        out.final_total[e] = s.total[e]
        out.final_red[e] = s.red[e]
        s.episode[e] += 1
        begin(s, e)
    return again


@rule
def advance(s, p, e, action, out):
    """One step of environment e with all its outputs."""
    if settle(s, p, e, action, out):
        observe.write_values(p, e, out.final_words, out.final_values)
    show(s, p, e, out)


@rule
def advance_packed(s, p, e, action, out):
    """One step of environment e with observation and mask as integers only."""
    settle(s, p, e, action, out)
    observe.write_words(s, p, e, out.words)
    observe.write_mask_words(s, e, out.mask_words)


@rule
def show(s, p, e, out):
    """Writes the observation and the mask."""
    observe.write_words(s, p, e, out.words)
    observe.write_values(p, e, out.words, out.values)
    observe.write_mask(s, e, out.mask_words, out.mask)
