"""The PPO loss of a minibatch whose samples are sorted by row, i.e. by distinct observation.

The network runs once per row. A chunk is some consecutive samples; its lanes go through them one by one, each with its
share of the actions, and sum the gradient with respect to the logits while the row stays the same:

    dL/dl_k = w_k (Σ m_k level + l_k Σ m_k slope) + Σ push,   w_k = exp(l_k − top)

m: the mask of a sample; level and slope follow from its masked softmax; push: what its own action gets. A row within
one chunk is written at once. Those that span several chunks leave a part in each, and `join` sums the parts in order:
no atomics, so results do not depend on the order in which chunks are computed.

Where nothing repeats, each sample is a row, and this is ordinary PPO.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from cavalcade.core.jit import rule
from cavalcade.ppo.engines.cuda.choice import LEAST, WORD
from cavalcade.ppo.engines.cuda.lanes import Lanes


class Terms(NamedTuple):
    """Rows of the loss terms per chunk."""

    policy: int = 0
    value: int = 1
    entropy: int = 2
    kl: int = 3
    clipped: int = 4


class Scratch(NamedTuple):
    """Rows of the numbers that a lane keeps per action."""

    logit: int = 0
    weight: int = 1
    level: int = 2
    slope: int = 3
    push: int = 4
    allowed: int = 5  # 1 if the sample's mask allows it, 0 if not


class Sorted(NamedTuple):
    """The samples of all minibatches of an epoch, (P·b) per minibatch, policy by policy, sorted by row."""

    sample: np.ndarray  # int32: index of the sample in the rollout
    row: np.ndarray  # int32: row in the minibatch and policy, from 0, never decreasing


class Experience(NamedTuple):
    """The rollout, flat: (P·T·N, …)."""

    masks: np.ndarray  # (…, ⌈A / WORD⌉): a bit per action
    action: np.ndarray
    log_prob: np.ndarray
    value: np.ndarray
    advantage: np.ndarray
    returns: np.ndarray


TERMS, SCRATCH = Terms(), Scratch()
_LEAST_TOTAL = np.float32(1e-25)
_TURNS = 4  # that the lanes load a sample each: larger chunks have fewer parts to join


class RowLoss(NamedTuple):
    """`chunk` for every chunk of samples, then `join` for every chunk and column of the logits."""

    size: int  # samples of a chunk
    chunk: Any
    join: Any


def row_loss_of(lanes: Lanes) -> RowLoss:
    """The functions for a number of lanes."""
    width, total, largest, take = lanes.count, lanes.total, lanes.largest, lanes.take
    size = _TURNS * width

    @rule
    def load_row(lane, mine, count, logits, p, row):
        """Loads a row of logits and clears the sums; returns the largest logit."""
        real = logits.dtype.type
        top = real(LEAST)
        for j in range(mine.shape[1]):
            a = j * width + lane
            inside = a < count
            mine[SCRATCH.logit, j] = logits[p, row, a] if inside else real(0)
            top = max(top, mine[SCRATCH.logit, j]) if inside else top
        top = largest(top)
        for j in range(mine.shape[1]):
            mine[SCRATCH.weight, j] = real(math.exp(mine[SCRATCH.logit, j] - top))
            mine[SCRATCH.level, j] = real(0)
            mine[SCRATCH.slope, j] = real(0)
            mine[SCRATCH.push, j] = real(0)
        return top

    @rule
    def store_row(lane, mine, count, share, d_value, p, row, i, slot, d_logits, d_values, parts):
        """Writes the sums of a row: the gradient itself, or a part of it if slot ≥ 0."""
        for j in range(mine.shape[1]):
            a = j * width + lane
            level = mine[SCRATCH.level, j] + mine[SCRATCH.logit, j] * mine[SCRATCH.slope, j]
            found = share * (mine[SCRATCH.weight, j] * level + mine[SCRATCH.push, j])
            if a < count and slot < 0:
                d_logits[p, row, a] = found
            elif a < count:
                parts[i, slot, a] = found
        if lane == 0 and slot < 0:
            d_values[p, 0, row] = share * d_value
        elif lane == 0:
            parts[i, slot, count] = share * d_value

    @rule
    def load_mask(lane, mine, count, mask, q):
        """Loads the mask of the sample that lane q has."""
        real = mine.dtype.type
        for j in range(mine.shape[1]):
            a = j * width + lane
            bit = take(mask[a // WORD], q) >> a % WORD & 1
            mine[SCRATCH.allowed, j] = real(bit) if a < count else real(0)

    @rule
    def masked_sums(mine):
        """Σ w and Σ w l over what the mask allows; w: weights."""
        mass, moment = mine.dtype.type(0), mine.dtype.type(0)
        for j in range(mine.shape[1]):
            m = mine[SCRATCH.weight, j] * mine[SCRATCH.allowed, j]
            mass += m
            moment += m * mine[SCRATCH.logit, j]
        return total(mass), total(moment)

    @rule
    def largest_allowed(mine):
        """The largest logit that the mask allows."""
        top = mine.dtype.type(LEAST)
        for j in range(mine.shape[1]):
            top = max(top, mine[SCRATCH.logit, j]) if mine[SCRATCH.allowed, j] > 0 else top
        return largest(top)

    @rule
    def sums_below(mine, top):
        """As `masked_sums`, with weights relative to another logit."""
        real = mine.dtype.type
        mass, moment = real(0), real(0)
        for j in range(mine.shape[1]):
            m = real(math.exp(mine[SCRATCH.logit, j] - top)) if mine[SCRATCH.allowed, j] > 0 else real(0)
            mass += m
            moment += m * mine[SCRATCH.logit, j]
        return total(mass), total(moment)

    @rule
    def add(lane, mine, level, slope, push, chosen):
        """Adds a sample to the sums of its row."""
        for j in range(mine.shape[1]):
            mine[SCRATCH.level, j] += mine[SCRATCH.allowed, j] * level
            mine[SCRATCH.slope, j] += mine[SCRATCH.allowed, j] * slope
            mine[SCRATCH.push, j] += push if j * width + lane == chosen else mine.dtype.type(0)

    @rule
    def add_below(lane, mine, level, slope, push, chosen, top):
        """As `add`, where weights are relative to another logit."""
        real = mine.dtype.type
        for j in range(mine.shape[1]):
            m = real(math.exp(mine[SCRATCH.logit, j] - top)) if mine[SCRATCH.allowed, j] > 0 else real(0)
            mine[SCRATCH.push, j] += m * (level + slope * mine[SCRATCH.logit, j])
            mine[SCRATCH.push, j] += push if j * width + lane == chosen else real(0)

    @rule
    def chunk(i, lane, mine, mask, count, b, c, first, s, x, logits, values, d_logits, d_values, parts, terms):
        """Sums the loss of chunk i, and its gradient.

        mine: scratch (6, ⌈A / lanes⌉); mask: scratch (⌈A / WORD⌉,); count: A; b: samples per policy; c: coefficients
        (P,) each; first: position of the minibatch in s; x: experience; logits, d_logits: (P, rows, A or more); values,
        d_values: (P, 1, rows); parts: (chunks, 2, A + 1 or more), of rows that began in an earlier chunk and of those
        that go on in the next; terms: (5, chunks).
        """
        real = logits.dtype.type
        chunks = (b + size - 1) // size
        p, start = i // chunks, i % chunks * size
        n, at = min(size, b - start), first + p * b + start
        begun = start > 0 and s.row[at - 1] == s.row[at]
        goes_on = start + n < b and s.row[at + n] == s.row[at + n - 1]
        one, share, clip, bonus, near = real(1), real(1) / real(b), c.clip[p], c.entropy[p], c.value_clip[p]
        policy_term, value_term, entropy_term, kl_term, clipped_term = real(0), real(0), real(0), real(0), real(0)
        row, slot, top, v, d_value = np.int64(-1), -1, real(0), real(0), real(0)
        sample = s.sample[at]
        my_row, my_action, my_log_prob = s.row[at], x.action[sample], x.log_prob[sample]
        my_gain, my_target, my_old = real(0), real(0), real(0)
        for turn in range(n):
            q = turn % width
            if q == 0:  # every lane loads a sample
                position = at + min(turn + lane, n - 1)
                sample = s.sample[position]
                my_row, my_action, my_log_prob = s.row[position], x.action[sample], x.log_prob[sample]
                my_gain, my_target, my_old = x.advantage[sample], x.returns[sample], x.value[sample]
                for k in range(mask.size):
                    mask[k] = x.masks[sample, k] if k < x.masks.shape[1] else 0
            r = np.int64(take(my_row, q))
            if r != row:
                if row >= 0:
                    store_row(lane, mine, count, share, d_value, p, row, i, slot, d_logits, d_values, parts)
                slot = 0 if turn == 0 and begun else -1
                row, d_value, v = r, real(0), values[p, 0, r]
                top = load_row(lane, mine, count, logits, p, row)
            load_mask(lane, mine, count, mask, q)
            gain, target, chosen = take(my_gain, q), take(my_target, q), np.int64(take(my_action, q))
            held_top = top
            mass, moment = masked_sums(mine)
            tiny = mass < _LEAST_TOTAL  # all that the mask allows is far below the largest logit
            if tiny:
                held_top = largest_allowed(mine)
                mass, moment = sums_below(mine, held_top)
            log_total = held_top + real(math.log(mass))
            entropy = log_total - moment / mass
            log_ratio = logits[p, row, chosen] - log_total - take(my_log_prob, q)
            ratio = real(math.exp(log_ratio))
            held = min(max(ratio, one - clip), one + clip)
            free = ratio * gain <= held * gain  # the unclipped term is the smaller one; the clipped one has no gradient
            push = -gain * ratio if free else real(0)
            level, slope = (bonus * (entropy - log_total) - push) / mass, bonus / mass
            if tiny:
                add_below(lane, mine, level, slope, push, chosen, held_top)
            else:
                add(lane, mine, level, slope, push, chosen)
            square, d = (v - target) * (v - target), v - target
            if near > 0:
                old = take(my_old, q)
                bound = old + min(max(v - old, -near), near)
                if (bound - target) * (bound - target) > square:
                    square = (bound - target) * (bound - target)
                    d = bound - target if abs(v - old) < near else real(0)
            d_value += real(2) * c.value[p] * d
            policy_term -= min(ratio * gain, held * gain)
            value_term += square
            entropy_term += entropy
            kl_term += ratio - one - log_ratio
            clipped_term += one if ratio > one + clip or ratio < one - clip else real(0)
        slot = 1 if slot < 0 and goes_on else slot
        store_row(lane, mine, count, share, d_value, p, row, i, slot, d_logits, d_values, parts)
        if lane == 0:
            terms[TERMS.policy, i] = share * policy_term
            terms[TERMS.value, i] = share * value_term
            terms[TERMS.entropy, i] = share * entropy_term
            terms[TERMS.kl, i] = share * kl_term
            terms[TERMS.clipped, i] = share * clipped_term

    @rule
    def join(i, lane, count, b, first, s, parts, d_logits, d_values):
        """Sums the parts of the row that begins in a chunk and goes on in the next, if there is one.

        i: chunk and column of the logits; the column after the last is that of the values.
        """
        i, a = i // (count + 1), i % (count + 1)
        chunks = (b + size - 1) // size
        p, k = i // chunks, i % chunks
        start, stop = first + p * b, first + (p + 1) * b
        at, end = start + k * size, min(start + (k + 1) * size, stop)
        row = s.row[end - 1]
        begins = at == start or s.row[at] != row or s.row[at - 1] != row
        if end < stop and begins and s.row[end] == row:
            below, above = end, stop - 1  # the last sample of the row is between them
            while below < above:
                middle = (below + above + 1) // 2
                if s.row[middle] == row:
                    below = middle
                else:
                    above = middle - 1
            last = i - k + (below - start) // size
            found = parts[i, 1, a] if lane == 0 else 0 * parts[i, 1, a]
            for j in range(i + 1 + lane, last + 1, width):
                found += parts[j, 0, a]
            found = total(found)
            if lane == 0 and a < count:
                d_logits[p, row, a] = found
            elif lane == 0:
                d_values[p, 0, row] = found

    return RowLoss(size, chunk, join)
