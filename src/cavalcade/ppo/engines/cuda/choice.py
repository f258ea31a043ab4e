"""Actions by logits and masks, for one environment, by the lanes of a warp or by one thread.

Logits are laid out rows first: (P, N, A or more). Masks are two words per environment, see `allowed`.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from cavalcade.core.jit import rule
from cavalcade.core.rng import step_key, unit, word
from cavalcade.ppo.engines.cuda.lanes import Lanes

_WORD = 64  # bits
LEAST = np.float32(-3e38)  # below every logit; fastmath does not allow infinities


@rule
def allowed(bits, low, high, action):
    """Whether a mask of two words allows an action; bits: the bit of each action, −1 if it is always allowed."""
    bit = np.int64(bits[action])
    half = low if bit < _WORD else high
    return (bit < 0) | (half >> (bit & _WORD - 1) & 1 != 0)


class Choice(NamedTuple):
    """How environment i acts: `draw` by its probabilities, `greedy` by the largest logit."""

    draw: Any
    greedy: Any


def choice_of(lanes: Lanes) -> Choice:
    """The functions for a number of lanes."""
    width, total, largest, running = lanes.count, lanes.total, lanes.largest, lanes.running

    @rule
    def draw(
        i, lane, bits, count, logits, values, masks, keys, clock, t, actions, store_action, store_log_prob, store_value
    ):
        """Draws the action of environment i, and records it as step t.

        count: A; values: (P, 1, N); masks: (P·N, 2); clock: (P,); store_…: (P, T, N).
        """
        n = logits.shape[1]
        p, e = i // n, i % n
        real, low, high = logits.dtype.type, masks[i, 0], masks[i, 1]
        most = real(LEAST)
        for a in range(lane, count, width):
            most = max(most, logits[p, e, a]) if allowed(bits, low, high, a) else most
        most = largest(most)
        mass = real(0)
        for a in range(lane, count, width):
            mass += real(math.exp(logits[p, e, a] - most)) if allowed(bits, low, high, a) else real(0)
        mass = total(mass)
        target = unit(word(step_key(keys[i], 0, clock[p] + t), 0)) * mass
        chosen, last, reached = -1, -1, real(0)
        for first in range(0, count, width):  # in the order of actions; all lanes take the same path
            a = first + lane
            here = a < count and allowed(bits, low, high, a)
            x = real(math.exp(logits[p, e, a] - most)) if here else real(0)
            upto = reached + running(x, lane)
            if chosen < 0:
                chosen = -1 - largest(-1 - a if here and upto > target else -1 - count)
                chosen = chosen if chosen < count else -1
                last = max(last, largest(a if here else -1))
                reached += total(x)
        chosen = chosen if chosen >= 0 else last  # rounding left the target beyond the sum
        if lane == 0:
            actions[i] = chosen
            store_action[p, t, e] = chosen
            store_log_prob[p, t, e] = logits[p, e, chosen] - most - real(math.log(mass))
            store_value[p, t, e] = values[p, 0, e]

    @rule
    def greedy(i, lane, bits, count, logits, masks, actions):
        """The action with the largest logit among those that the mask allows, the first of equals."""
        n = logits.shape[1]
        p, e = i // n, i % n
        real, low, high = logits.dtype.type, masks[i, 0], masks[i, 1]
        most = real(LEAST)
        for a in range(lane, count, width):
            most = max(most, logits[p, e, a]) if allowed(bits, low, high, a) else most
        most = largest(most)
        first = -count
        for a in range(lane, count, width):
            if allowed(bits, low, high, a) and logits[p, e, a] == most:
                first = max(first, -a)
        first = -largest(first)
        if lane == 0:
            actions[i] = first

    return Choice(draw, greedy)
