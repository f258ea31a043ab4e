"""Actions by logits and masks, for one environment, by the lanes of a warp or by one thread.

Logits are laid out rows first: (rows, A or more). The mask of a game is two words, see `allowed`; a sample keeps its
mask as one bit per action, `WORD` of them in an integer.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from cavalcade.core.jit import rule
from cavalcade.core.rng import step_key, unit, word
from cavalcade.ppo.engines.cuda.lanes import Lanes

_GAME_WORD = 64  # bits
WORD, MOST_ACTIONS = 32, 160
_ONES = 0xFFFFFFFF
LEAST = np.float32(-3e38)  # below every logit; fastmath does not allow infinities


@rule
def allowed(bits, low, high, action):
    """Whether a mask of two words allows an action; bits: the bit of each action, −1 if it is always allowed."""
    bit = np.int64(bits[action])
    half = low if bit < _GAME_WORD else high
    return (bit < 0) | (half >> (bit & _GAME_WORD - 1) & 1 != 0)


class Choice(NamedTuple):
    """How environment i acts: `draw` by its probabilities, `greedy` by the largest logit."""

    draw: Any
    greedy: Any


def choice_of(lanes: Lanes, own: int) -> Choice:
    """The functions for a number of lanes with so many actions each."""
    width, total, largest, running, votes = lanes.count, lanes.total, lanes.largest, lanes.running, lanes.votes

    @rule
    def draw(
        i, lane, mine, bits, count, logits, values, row, masks, keys, clock, t, actions, store_action, store_log_prob,
        store_value, store_mask,
    ):  # fmt: skip
        """Draws the action of environment i, and records it as step t.

        mine: scratch (2, own); count: A; row: (P·N,), of logits and values (rows,); masks: (P·N, 2); clock:
        (P,); store_…: (P, T, N), store_mask: (P, T, N, ⌈A / WORD⌉).
        """
        n, r = store_action.shape[2], row[i]
        p = i // n if store_action.shape[0] > 1 else 0  # divisions of long integers are slow
        e = i - p * n
        real, low, high = logits.dtype.type, masks[i, 0], masks[i, 1]
        most, mass, held = real(LEAST), real(0), np.int64(0)
        for j in range(own):
            a = j * width + lane
            ok = a < count and allowed(bits, low, high, a)
            mine[0, j] = logits[r, a] if ok else real(LEAST)
            most = max(most, mine[0, j])
            held |= (np.int64(votes(ok)) & _ONES) << j * width % WORD
            if (j + 1) * width % WORD == 0 or j + 1 == own:
                if lane == 0 and j * width // WORD < store_mask.shape[3]:
                    store_mask[p, t, e, j * width // WORD] = held - (held >> WORD - 1 << WORD)  # as a signed integer
                held = np.int64(0)
        most = largest(most)
        for j in range(own):
            x = real(math.exp(mine[0, j] - most))
            mine[0, j] = x
            mine[1, j] = total(x)
            mass += mine[1, j]
        target = unit(word(step_key(keys[i], 0, clock[p] + t), 0)) * mass
        found, reached, base, x = -1, real(0), real(0), real(0)
        for j in range(own):  # which actions, in their order, reach the target
            after = reached + mine[1, j]
            if mine[1, j] > 0 and (found < 0 or base + x <= target):
                found, base, x = j, reached, mine[1, j]
            reached = after
        for j in range(own):
            x = mine[0, j] if j == found else x
        upto = base + running(x, lane)
        first = -largest(np.int32(-lane if x > 0 and upto > target else -width))
        if first == width:  # rounding left the target beyond the sum
            first = largest(np.int32(lane if x > 0 else -1))
        chosen = found * width + first
        if lane == 0:
            actions[i] = chosen
            store_action[p, t, e] = chosen
            store_log_prob[p, t, e] = logits[r, chosen] - most - real(math.log(mass))
            store_value[p, t, e] = values[r]

    @rule
    def greedy(i, lane, bits, count, logits, masks, actions):
        """The action with the largest logit among those that the mask allows, the first of equals."""
        low, high = masks[i, 0], masks[i, 1]
        most = logits.dtype.type(LEAST)
        for a in range(lane, count, width):
            most = max(most, logits[i, a]) if allowed(bits, low, high, a) else most
        most = largest(most)
        first = -count
        for a in range(lane, count, width):
            if allowed(bits, low, high, a) and logits[i, a] == most:
                first = max(first, -a)
        first = -largest(first)
        if lane == 0:
            actions[i] = first

    return Choice(draw, greedy)
