"""Compliance with an order, counted inside the step of an environment.

Before a step some subtasks are open (their demand exists: a kind of host is compromised, a goal not visited), and the
action may attempt one. An attempt keeps the order if it goes to the open subtask that comes first in it. Subtasks can
be open in the agent's view or in the true state. Four measures are counted side by side:

* `table` (default): attempts aimed at something that the agent sees open, while it sees at least two subtasks open.
  Attempts aimed at anything else never count, so they cannot raise compliance. The chance level is the mean of
  1 / (open subtasks) over counted attempts: the compliance of an agent that goes to any open subtask at random.
* `true`: the same on the true state.
* `choice`: attempts made while at least two subtasks are truly open, wherever they are aimed. Useless attempts at a
  kind that comes first raise it.
* `original`: as in the latest of the CAGE-2 workflow-search scripts. Every attempt counts; one made while nothing is
  open is kept; an episode without attempts has compliance 0.5. Open subtasks include demands that never go away (User0
  of CAGE-2, where Red always is), so a single useless attempt there can give full compliance.

Compliance is kept / counted, NaN if nothing counted. A decision *binds* when at least two subtasks are seen open: the
order then forbids all of them but one. Binding decisions are also counted by pair of subtasks, the first and each other
one: a precedence that never binds has no effect.

Alignment rewards pay for compliance c by the configured measure, with a weight λ: `delta` λ × change of the running c;
`final` λ × c at the end; `alpha-beta` +α for an attempt that keeps the order and −β for one that does not; `potential`
γΦ' − Φ with Φ = λ c and Φ = 0 at the end of the game (Ng et al. 1999), which preserves the optimal policy; `cost` −λ
for an attempt that breaks the order by `table`; `none`. A time limit is such an end only with `timeout_is_terminal`;
otherwise PPO bootstraps from the final observation, and the bootstrapped value includes the potential.
"""

from typing import NamedTuple

import numpy as np

from cavalcade.core.jit import rule
from cavalcade.core.rng import index_below, word
from cavalcade.workflow.orders import Subtasks

MEASURES = ("table", "true", "choice", "original")
TABLE, TRUE, CHOICE, ORIGINAL = range(4)
ALIGNMENTS = ("none", "delta", "final", "alpha-beta", "potential", "cost")
NONE, DELTA, FINAL, ALPHA_BETA, POTENTIAL, COST = range(6)
NOTHING = -1  # no subtask attempted
AT_SEEN, AT_OPEN = 1, 2  # the aim of an attempt, as bits: something seen open, something truly open
EPISODE_STATS = (
    "task", "bonus", "compliance", "counted", "true_compliance", "true_counted", "choice", "choice_counted",
    "original", "original_counted", "chance", "attempts", "binding",
)  # fmt: skip
_FIRST_MEASURE = EPISODE_STATS.index("compliance")
_CHANCE = EPISODE_STATS.index("chance")
_UNDEFINED_ORIGINAL = 0.5
_SHUFFLE = 1 << 20  # purposes of draws from here on are not used by games


class Settings(NamedTuple):
    """Settings shared by all environments of a batch."""

    measure: int  # the measure that alignment rewards pay for
    alpha: float
    beta: float
    gamma: float
    timeout_is_terminal: int  # a time limit counts as the end of the game: Φ = 0 there
    until: int  # when an attempted subtask stops counting as open: a code of the environment
    show_order: int  # the order is part of the observation


class Track(NamedTuple):
    """Orders and counts, one row per environment: N environments, S subtasks."""

    rank: np.ndarray  # (N, S) int8: place of each subtask in the order of this episode
    shuffled: np.ndarray  # (N,) bool: a new random order in each episode
    shown: np.ndarray  # (N,) bool: the agent sees the order
    mask: np.ndarray  # (N,) int8: how the order restricts actions, see `enforcement`
    alignment: np.ndarray  # (N,) int8
    weight: np.ndarray  # (N,) float32: λ
    attempts: np.ndarray  # (N,) int32; this and all counts below are of the current episode
    counted: np.ndarray  # (N, 4) int32: by measure
    kept: np.ndarray  # (N, 4) int32
    chance: np.ndarray  # (N,) float32: sum of chance levels
    binding: np.ndarray  # (N,) int32: binding decisions …
    bound: np.ndarray  # (N, S(S − 1)/2) int32: … by pair of subtasks
    task: np.ndarray  # (N,) float64: reward of the task …
    bonus: np.ndarray  # (N,) float64: … and of alignment


def allocate(num_envs: int, subtasks: int) -> Track:
    """Zero counts; the order of the names, shown, neither enforced nor rewarded."""

    def zeros(dtype: type, *width: int) -> np.ndarray:
        return np.zeros((num_envs, *width), dtype)

    return Track(
        rank=np.tile(np.arange(subtasks, dtype=np.int8), (num_envs, 1)),
        shuffled=zeros(np.bool_),
        shown=np.ones(num_envs, np.bool_),
        mask=zeros(np.int8),
        alignment=zeros(np.int8),
        weight=zeros(np.float32),
        attempts=zeros(np.int32),
        counted=zeros(np.int32, len(MEASURES)),
        kept=zeros(np.int32, len(MEASURES)),
        chance=zeros(np.float32),
        binding=zeros(np.int32),
        bound=zeros(np.int32, subtasks * (subtasks - 1) // 2),
        task=zeros(np.float64),
        bonus=zeros(np.float64),
    )


def episode_stat_names(subtasks: Subtasks) -> tuple[str, ...]:
    """Names of the episode statistics: `EPISODE_STATS`, then binding decisions by pair of subtasks."""
    return (*EPISODE_STATS, *subtasks.pair_names())


@rule
def begin(t, e, key):
    """Begins an episode; draws its order where orders are shuffled."""
    t.attempts[e] = 0
    for measure in range(t.counted.shape[1]):
        t.counted[e, measure] = 0
        t.kept[e, measure] = 0
    for pair in range(t.bound.shape[1]):
        t.bound[e, pair] = 0
    t.chance[e] = 0
    t.binding[e] = 0
    t.task[e] = 0
    t.bonus[e] = 0
    if t.shuffled[e]:
        size = t.rank.shape[1]
        for i in range(size):
            t.rank[e, i] = i
        for i in range(size - 1, 0, -1):
            j = index_below(word(key, _SHUFFLE + i), i + 1)
            held = t.rank[e, i]
            t.rank[e, i] = t.rank[e, j]
            t.rank[e, j] = held


@rule
def first_open(t, e, open_):
    """The open subtask that comes first in the order; subtask 0 if none is open."""
    best = 0
    for i in range(t.rank.shape[1]):
        closed_best = not (open_ >> best & 1)
        if open_ >> i & 1 and (closed_best or t.rank[e, i] < t.rank[e, best]):
            best = i
    return best


@rule
def several(open_):
    """Whether at least two subtasks are open."""
    return open_ & open_ - 1 != 0


@rule
def _judge(t, e, measure, open_, attempt):
    """Counts an attempt by a measure."""
    t.counted[e, measure] += 1
    t.kept[e, measure] += open_ == 0 or first_open(t, e, open_) == attempt


@rule
def _bind(t, e, seen):
    """Counts a decision that binds, for the first subtask against each other one that is seen open."""
    t.binding[e] += 1
    size, first, pair = t.rank.shape[1], first_open(t, e, seen), 0
    for i in range(size):
        for j in range(i + 1, size):
            if i == first:
                t.bound[e, pair] += seen >> j & 1
            elif j == first:
                t.bound[e, pair] += seen >> i & 1
            pair += 1


@rule
def _count(t, e, seen, open_, ever, attempt, aim):
    """Counts an attempt by every measure."""
    t.attempts[e] += 1
    if several(seen) and aim & AT_SEEN:
        demands = 0
        for i in range(t.rank.shape[1]):
            demands += seen >> i & 1
        t.chance[e] += 1 / demands
        _judge(t, e, TABLE, seen, attempt)
    if several(open_):
        if aim & AT_OPEN:
            _judge(t, e, TRUE, open_, attempt)
        _judge(t, e, CHOICE, open_, attempt)
    _judge(t, e, ORIGINAL, ever, attempt)


@rule
def _potential(t, c, e):
    """Φ = λ c, or 0 while nothing has counted."""
    counted = t.counted[e, c.measure]
    return t.weight[e] * t.kept[e, c.measure] / counted if counted else 0.0


@rule
def track(t, c, e, seen, open_, ever, attempt, aim, reward, over, late):
    """Counts a step; returns the alignment bonus.

    seen, open_, ever: bits of the subtasks that, before the step, the agent sees open, are truly open, and are open if
    demands that never go away count; attempt: the attempted subtask; aim: bits of what it is aimed at; reward: of the
    task; over, late: the step terminates or truncates the episode.
    """
    before, measure = _potential(t, c, e), c.measure
    counted, kept = t.counted[e, measure], t.kept[e, measure]
    broken = t.counted[e, TABLE] - t.kept[e, TABLE]
    if several(seen):
        _bind(t, e, seen)
    if attempt != NOTHING:
        _count(t, e, seen, open_, ever, attempt, aim)
    after, bonus = _potential(t, c, e), 0.0
    if t.alignment[e] == ALPHA_BETA:
        if t.counted[e, measure] > counted:
            bonus = c.alpha if t.kept[e, measure] > kept else -c.beta
    elif t.alignment[e] == COST:
        bonus = -t.weight[e] * (t.counted[e, TABLE] - t.kept[e, TABLE] - broken)
    elif t.alignment[e] == DELTA:
        bonus = after - before
    elif t.alignment[e] == FINAL:
        bonus = after if over or late else 0.0
    elif t.alignment[e] == POTENTIAL:
        nothing_left = over or (late and c.timeout_is_terminal)
        bonus = (0.0 if nothing_left else c.gamma * after) - before
    t.task[e] += reward
    t.bonus[e] += bonus
    return bonus


@rule
def write_statistics(t, e, episode_stats):
    """Writes the statistics of an episode that ends, in the order of `episode_stat_names`."""
    episode_stats[e, 0] = t.task[e]
    episode_stats[e, 1] = t.bonus[e]
    for measure in range(t.counted.shape[1]):
        counted = t.counted[e, measure]
        undefined = _UNDEFINED_ORIGINAL if measure == ORIGINAL else np.nan
        episode_stats[e, _FIRST_MEASURE + 2 * measure] = t.kept[e, measure] / counted if counted else undefined
        episode_stats[e, _FIRST_MEASURE + 2 * measure + 1] = counted
    counted = t.counted[e, TABLE]
    episode_stats[e, _CHANCE] = t.chance[e] / counted if counted else np.nan
    episode_stats[e, _CHANCE + 1] = t.attempts[e]
    episode_stats[e, _CHANCE + 2] = t.binding[e]
    for pair in range(t.bound.shape[1]):
        episode_stats[e, _CHANCE + 3 + pair] = t.bound[e, pair]


@rule
def order_bits(t, e):
    """The order as bits, S·place + subtask; 0 if it is not shown."""
    bits = 0
    if t.shown[e]:
        size = t.rank.shape[1]
        for i in range(size):
            bits |= 1 << size * np.int64(t.rank[e, i]) + i
    return bits
