"""The PPO loss of a minibatch whose samples are sorted by row, i.e. by distinct observation.

The network runs once per row. A chunk is some consecutive samples. Its lanes sum the gradient with respect to the
logits over the samples of a row, each lane for its share of the actions:

    dL/dl_k = w_k (Σ m_k level + l_k Σ m_k slope) + Σ push,   w_k = exp(l_k − top)

m: the mask of a sample; level and slope follow from its masked softmax; push: what its own action gets. For as many
samples as there are lanes, they first sum each sample's softmax, then compute one sample each, then add all of them to
their rows. A row within one chunk is written at once. Those that span several chunks leave a part in each, and `join`
sums the parts in order: no atomics, so results do not depend on the order in which chunks are computed.

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
    """The samples of all minibatches of an epoch, (P·b) per minibatch, policy by policy, sorted by row.

    Arrays or tensors, as in `Experience`.
    """

    sample: Any  # int32: index of the sample in the rollout
    row: Any  # int32: row in the minibatch and policy, from 0, never decreasing


class Experience(NamedTuple):
    """The rollout, flat: (P·T·N, …)."""

    masks: Any  # (…, ⌈A / WORD⌉): a bit per action
    action: Any
    log_prob: Any
    value: Any
    advantage: Any
    returns: Any


TERMS, SCRATCH = Terms(), Scratch()
_LEAST_TOTAL = np.float32(1e-25)
GROUP = 32  # chunks whose parts are summed together


class RowLoss(NamedTuple):
    """`chunk` for every chunk of samples, `gather` for every `GROUP` of them, then `join` for every chunk.

    The last two are called for each so many columns of the logits as there are lanes; the column after the last is that
    of the values.
    """

    chunk: Any
    gather: Any
    join: Any


@rule
def sum_of(parts, a, start, stop, step):
    """The sum of column a of the rows start, start + step … before stop: several at once, so that a GPU loads ahead."""
    zero = parts.dtype.type(0)
    s0, s1, s2, s3, j = zero, zero, zero, zero, start
    while j + 3 * step < stop:
        s0 += parts[j, a]
        s1 += parts[j + step, a]
        s2 += parts[j + 2 * step, a]
        s3 += parts[j + 3 * step, a]
        j += 4 * step
    while j < stop:
        s0 += parts[j, a]
        j += step
    return (s0 + s1) + (s2 + s3)


def row_loss_of(lanes: Lanes, own: int) -> RowLoss:
    """The functions for a number of lanes with so many actions each."""
    width, total, largest, take = lanes.count, lanes.total, lanes.largest, lanes.take

    @rule
    def load_row(lane, mine, count, logits, p, row):
        """Loads a row of logits; returns the largest of them."""
        real = logits.dtype.type
        top = real(LEAST)
        for j in range(own):
            inside = j * width + lane < count
            mine[SCRATCH.logit, j] = logits[p, row, j * width + lane] if inside else real(0)
            top = max(top, mine[SCRATCH.logit, j]) if inside else top
        top = largest(top)
        for j in range(own):
            mine[SCRATCH.weight, j] = real(math.exp(mine[SCRATCH.logit, j] - top))
        return top

    @rule
    def load_mask(lane, mine, count, mask, q):
        """Loads the mask of the sample that lane q has."""
        real = mine.dtype.type
        for j in range(own):
            bit = take(mask[j * width // WORD], q) >> j * width % WORD + lane & 1
            mine[SCRATCH.allowed, j] = real(bit) if j * width + lane < count else real(0)

    @rule
    def masked_sums(mine):
        """Σ w and Σ w l over what the mask allows; w: weights."""
        mass, moment = mine.dtype.type(0), mine.dtype.type(0)
        for j in range(own):
            m = mine[SCRATCH.weight, j] * mine[SCRATCH.allowed, j]
            mass += m
            moment += m * mine[SCRATCH.logit, j]
        return total(mass), total(moment)

    @rule
    def largest_allowed(mine):
        """The largest logit that the mask allows."""
        top = mine.dtype.type(LEAST)
        for j in range(own):
            top = max(top, mine[SCRATCH.logit, j]) if mine[SCRATCH.allowed, j] > 0 else top
        return largest(top)

    @rule
    def sums_below(mine, top):
        """As `masked_sums`, with weights relative to another logit."""
        real = mine.dtype.type
        mass, moment = real(0), real(0)
        for j in range(own):
            m = real(math.exp(mine[SCRATCH.logit, j] - top)) if mine[SCRATCH.allowed, j] > 0 else real(0)
            mass += m
            moment += m * mine[SCRATCH.logit, j]
        return total(mass), total(moment)

    @rule
    def add(mine, level, slope):
        """Adds a sample to the sums of its row."""
        for j in range(own):
            mine[SCRATCH.level, j] += mine[SCRATCH.allowed, j] * level
            mine[SCRATCH.slope, j] += mine[SCRATCH.allowed, j] * slope

    @rule
    def add_below(mine, level, slope, top):
        """As `add`, where weights are relative to another logit."""
        real = mine.dtype.type
        for j in range(own):
            m = real(math.exp(mine[SCRATCH.logit, j] - top)) if mine[SCRATCH.allowed, j] > 0 else real(0)
            mine[SCRATCH.push, j] += m * (level + slope * mine[SCRATCH.logit, j])

    @rule
    def add_push(lane, mine, push, chosen):
        """Adds what a sample's own action gets."""
        for j in range(own):
            mine[SCRATCH.push, j] += push if j * width + lane == chosen else mine.dtype.type(0)

    @rule
    def fold(mine):
        """Adds levels and slopes, weighted by the loaded row, to the gradient, and clears them."""
        for j in range(own):
            level = mine[SCRATCH.level, j] + mine[SCRATCH.logit, j] * mine[SCRATCH.slope, j]
            mine[SCRATCH.push, j] += mine[SCRATCH.weight, j] * level
            mine[SCRATCH.level, j] = 0
            mine[SCRATCH.slope, j] = 0

    @rule
    def store_row(lane, mine, count, share, d_value, p, row, i, slot, d_logits, d_values, parts):
        """Writes the gradient of a row, or a part of it if slot ≥ 0, and clears it."""
        for j in range(own):
            a = j * width + lane
            if a < count and slot < 0:
                d_logits[p, row, a] = share * mine[SCRATCH.push, j]
            elif a < count:
                parts[2 * i + slot, a] = share * mine[SCRATCH.push, j]
            mine[SCRATCH.push, j] = 0
        if lane == 0 and slot < 0:
            d_values[p, 0, row] = share * d_value
        elif lane == 0:
            parts[2 * i + slot, count] = share * d_value

    @rule
    def chunk(i, lane, mine, mask, count, b, size, c, first, s, x, logits, values, d_logits, d_values, parts, terms):
        """Sums the loss of chunk i, and its gradient.

        mine: scratch (6, own); mask: scratch (⌈A / WORD⌉,); count: A; b: samples per policy; size: of a chunk;
        c: coefficients (P,) each; first: position of the minibatch in s; x: experience; logits, d_logits: (P, rows, A
        or more); values, d_values: (P, 1, rows); parts: (2 · chunks, A + 1), of rows that began in an earlier chunk and
        of those that go on in the next; terms: (5, chunks).
        """
        real = logits.dtype.type
        chunks = (b + size - 1) // size
        p, start = i // chunks, i % chunks * size
        n, at = min(size, b - start), first + p * b + start
        begun = start > 0 and s.row[at - 1] == s.row[at]
        goes_on = start + n < b and s.row[at + n] == s.row[at + n - 1]
        one, share, clip, bonus, near = real(1), real(1) / real(b), c.clip[p], c.entropy[p], c.value_clip[p]
        policy_term, value_term, entropy_term, kl_term, clipped_term = real(0), real(0), real(0), real(0), real(0)
        row, loaded, slot, top, d_value = np.int64(s.row[at]), np.int64(-1), 0 if begun else -1, real(0), real(0)
        for j in range(own):
            mine[SCRATCH.level, j] = 0
            mine[SCRATCH.slope, j] = 0
            mine[SCRATCH.push, j] = 0
        for turn in range(0, n, width):
            m = min(width, n - turn)
            position = at + turn + min(lane, m - 1)  # of the sample that this lane has
            sample, my_row = s.sample[position], np.int64(s.row[position])
            my_action = np.int64(x.action[sample])
            for k in range(mask.size):
                mask[k] = x.masks[sample, k] if k < x.masks.shape[1] else 0
            my_mass, my_moment, my_top, my_tiny = one, real(0), real(0), 0
            for q in range(m):
                r = take(my_row, q)
                if r != loaded:
                    loaded, top = r, load_row(lane, mine, count, logits, p, r)
                load_mask(lane, mine, count, mask, q)
                mass, moment = masked_sums(mine)
                held_top, tiny = top, 0
                if mass < _LEAST_TOTAL:  # all that the mask allows is far below the largest logit
                    held_top, tiny = largest_allowed(mine), 1
                    mass, moment = sums_below(mine, held_top)
                if q == min(lane, m - 1):
                    my_mass, my_moment, my_top, my_tiny = mass, moment, held_top, tiny
            log_total = my_top + real(math.log(my_mass))
            entropy = log_total - my_moment / my_mass
            log_ratio = logits[p, my_row, my_action] - log_total - x.log_prob[sample]
            ratio, gain = real(math.exp(log_ratio)), x.advantage[sample]
            held = min(max(ratio, one - clip), one + clip)
            free = ratio * gain <= held * gain  # the unclipped term is the smaller one; the clipped one has no gradient
            my_push = -gain * ratio if free else real(0)
            my_level, my_slope = (bonus * (entropy - log_total) - my_push) / my_mass, bonus / my_mass
            v, target, old = values[p, 0, my_row], x.returns[sample], x.value[sample]
            square, d = (v - target) * (v - target), v - target
            if near > 0:
                bound = old + min(max(v - old, -near), near)
                if (bound - target) * (bound - target) > square:
                    square = (bound - target) * (bound - target)
                    d = bound - target if abs(v - old) < near else real(0)
            my_d = real(2) * c.value[p] * d
            if lane < m:
                policy_term -= min(ratio * gain, held * gain)
                value_term += square
                entropy_term += entropy
                kl_term += ratio - one - log_ratio
                clipped_term += one if ratio > one + clip or ratio < one - clip else real(0)
            for q in range(m):
                r = take(my_row, q)
                if r != row:
                    fold(mine)
                    store_row(lane, mine, count, share, d_value, p, row, i, slot, d_logits, d_values, parts)
                    row, slot, d_value = r, -1, real(0)
                if r != loaded:
                    loaded, top = r, load_row(lane, mine, count, logits, p, r)
                load_mask(lane, mine, count, mask, q)
                level, slope, tiny = take(my_level, q), take(my_slope, q), take(my_tiny, q)
                if tiny:
                    add_below(mine, level, slope, take(my_top, q))
                else:
                    add(mine, level, slope)
                add_push(lane, mine, take(my_push, q), take(my_action, q))
                d_value += take(my_d, q)
            fold(mine)
        slot = 1 if slot < 0 and goes_on else slot
        store_row(lane, mine, count, share, d_value, p, row, i, slot, d_logits, d_values, parts)
        policy_term, value_term, entropy_term = total(policy_term), total(value_term), total(entropy_term)
        kl_term, clipped_term = total(kl_term), total(clipped_term)
        if lane == 0:
            terms[TERMS.policy, i] = share * policy_term
            terms[TERMS.value, i] = share * value_term
            terms[TERMS.entropy, i] = share * entropy_term
            terms[TERMS.kl, i] = share * kl_term
            terms[TERMS.clipped, i] = share * clipped_term

    @rule
    def gather(i, lane, count, b, size, first, s, parts, sums):
        """Sums the parts of a group of chunks, if all of them begin within the same row; sums: (groups, A + 1)."""
        columns = (count + width) // width
        i, a = i // columns, i % columns * width + lane
        chunks = (b + size - 1) // size
        groups = (chunks + GROUP - 1) // GROUP
        p, k = i // groups, i % groups * GROUP
        at, last = first + p * b + k * size, first + p * b + (k + GROUP - 1) * size
        if a <= count and k > 0 and k + GROUP <= chunks and s.row[at - 1] == s.row[last]:
            start = 2 * (p * chunks + k)
            sums[i, a] = sum_of(parts, a, start, start + 2 * GROUP, 2)

    @rule
    def join(i, lane, count, b, size, first, s, parts, sums, d_logits, d_values):
        """Sums the parts of the row that begins in a chunk and goes on in the next, if there is one."""
        columns = (count + width) // width
        i, a = i // columns, i % columns * width + lane
        chunks = (b + size - 1) // size
        p, k = i // chunks, i % chunks
        start, stop = first + p * b, first + (p + 1) * b
        at, end = start + k * size, min(start + (k + 1) * size, stop)
        row = s.row[end - 1]
        begins = at == start or s.row[at] != row or s.row[at - 1] != row
        if a <= count and end < stop and begins and s.row[end] == row:
            below, above = end, stop - 1  # the last sample of the row is between them
            while below < above:
                middle = (below + above + 1) // 2
                if s.row[middle] == row:
                    below = middle
                else:
                    above = middle - 1
            after = (below - start) // size + 1  # the chunk after the last
            whole, groups = (k + GROUP) // GROUP, (chunks + GROUP - 1) // GROUP
            until = max(after // GROUP, whole)  # groups from `whole` on, before this one, lie within the row
            here = 2 * (i - k)
            found = parts[2 * i + 1, a] + sum_of(parts, a, here + 2 * k + 2, here + 2 * min(whole * GROUP, after), 2)
            found += sum_of(sums, a, p * groups + whole, p * groups + until, 1)
            found += sum_of(parts, a, here + 2 * until * GROUP, here + 2 * after, 2)
            if a < count:
                d_logits[p, row, a] = found
            else:
                d_values[p, 0, row] = found

    return RowLoss(chunk, gather, join)
