"""How well an order is kept, counted inside the step of an environment on its true state.

Before a step some subtasks are open (their demand exists: a kind of host is compromised, a checkpoint not visited), and
the action may attempt one. An attempt keeps the order if it goes to the open subtask that comes first in it. Two
definitions:

* `choice` (default): only attempts made while at least two subtasks are open count; with one there is nothing to
  choose. Compliance is kept / counted, undefined (not a number) if nothing counted. Beside it the chance level: the
  mean of 1 / (open subtasks) over what counted, what one gets by going to any open subtask.
* `original`: as the latest of the CAGE-2 workflow-search scripts. Every attempt counts; one made while nothing is open
  is kept; an episode without attempts has compliance 0.5. What is open includes demands that never go away (User0 of
  CAGE-2, where Red always is), so a single useless attempt there can give full compliance.

Alignment rewards pay for compliance c, with a weight λ: `delta` λ × change of the running c; `final` λ × c at the end;
`alpha-beta` +α for an attempt that keeps the order and −β for one that does not; `potential` γΦ' − Φ with Φ = λ c and
Φ = 0 at the end of the game (Ng et al. 1999), which leaves the best policy as it is; `none`. Running out of time is
such an end only for a learner that treats it as one; where it bootstraps, what would have come includes the potential.
"""

from typing import NamedTuple

import numpy as np

from cavalcade.jit import rule
from cavalcade.rng import index_below, word

DEFINITIONS = ("choice", "original")
CHOICE, ORIGINAL = range(2)
ALIGNMENTS = ("none", "delta", "final", "alpha-beta", "potential")
NONE, DELTA, FINAL, ALPHA_BETA, POTENTIAL = range(5)
NOTHING = -1  # no subtask attempted
FIGURES = ("task", "bonus", "compliance", "chance", "counted", "attempts")
_UNDEFINED_ORIGINAL = 0.5
_SHUFFLE = 1 << 20  # purposes of draws that no game has


class Settings(NamedTuple):
    """What all environments of a batch share."""

    definition: int
    alpha: float
    beta: float
    gamma: float
    horizon_ends: int  # running out of time is the end of the game for the learner: no potential is left then


class Track(NamedTuple):
    """What is counted, entry by environment: N environments, S subtasks."""

    rank: np.ndarray  # (N, S) int8: place of each subtask in the order of this episode
    shuffled: np.ndarray  # (N,) bool: a new random order in each episode
    shown: np.ndarray  # (N,) bool: the agent sees the order
    alignment: np.ndarray  # (N,) int8
    weight: np.ndarray  # (N,) float32: λ
    attempts: np.ndarray  # (N,) int32: in this episode …
    counted: np.ndarray  # (N,) int32
    kept: np.ndarray  # (N,) int32
    chance: np.ndarray  # (N,) float32: sum of chance levels
    task: np.ndarray  # (N,) float64: reward of the task …
    bonus: np.ndarray  # (N,) float64: … and of alignment


def allocate(num_envs: int, subtasks: int) -> Track:
    """Nothing counted yet; the order of the names, shown, without alignment reward."""

    def zeros(dtype: type) -> np.ndarray:
        return np.zeros(num_envs, dtype)

    return Track(
        rank=np.tile(np.arange(subtasks, dtype=np.int8), (num_envs, 1)),
        shuffled=zeros(np.bool_),
        shown=np.ones(num_envs, np.bool_),
        alignment=zeros(np.int8),
        weight=zeros(np.float32),
        attempts=zeros(np.int32),
        counted=zeros(np.int32),
        kept=zeros(np.int32),
        chance=zeros(np.float32),
        task=zeros(np.float64),
        bonus=zeros(np.float64),
    )


@rule
def begin(t, e, key):
    """A new episode; draws its order where orders are shuffled."""
    t.attempts[e] = 0
    t.counted[e] = 0
    t.kept[e] = 0
    t.chance[e] = 0
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
def compliance(t, c, e):
    """Compliance so far in this episode; not a number if it is undefined."""
    if t.counted[e]:
        return t.kept[e] / t.counted[e]
    return _UNDEFINED_ORIGINAL if c.definition == ORIGINAL else np.nan


@rule
def _potential(t, e):
    """λ c, and 0 as long as nothing has counted."""
    return t.weight[e] * t.kept[e] / t.counted[e] if t.counted[e] else 0.0


@rule
def track(t, c, e, open_, attempt, reward, over, late):
    """Counts a step: what was open before it, what it attempted, the task's reward, its end; returns the bonus."""
    before = _potential(t, e)
    bonus = 0.0
    if attempt != NOTHING:
        t.attempts[e] += 1
        demands = 0
        for i in range(t.rank.shape[1]):
            demands += open_ >> i & 1
        if c.definition == ORIGINAL or demands >= 2:
            t.counted[e] += 1
            kept = demands == 0 or first_open(t, e, open_) == attempt
            t.kept[e] += kept
            t.chance[e] += 1 / max(demands, 1)
            if t.alignment[e] == ALPHA_BETA:
                bonus = c.alpha if kept else -c.beta
    after = _potential(t, e)
    if t.alignment[e] == DELTA:
        bonus = after - before
    elif t.alignment[e] == FINAL:
        bonus = after if over or late else 0.0
    elif t.alignment[e] == POTENTIAL:
        nothing_left = over or (late and c.horizon_ends)
        bonus = (0.0 if nothing_left else c.gamma * after) - before
    t.task[e] += reward
    t.bonus[e] += bonus
    return bonus


@rule
def write_figures(t, c, e, figures):
    """The figures of an episode that ends."""
    figures[e, 0] = t.task[e]
    figures[e, 1] = t.bonus[e]
    figures[e, 2] = compliance(t, c, e)
    figures[e, 3] = t.chance[e] / t.counted[e] if t.counted[e] else np.nan
    figures[e, 4] = t.counted[e]
    figures[e, 5] = t.attempts[e]


@rule
def order_bits(t, e):
    """The order as bits, S·place + subtask; none where it is not shown."""
    bits = 0
    if t.shown[e]:
        size = t.rank.shape[1]
        for i in range(size):
            bits |= 1 << size * np.int64(t.rank[e, i]) + i
    return bits
