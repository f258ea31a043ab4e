"""The functions of this folder for all environments, samples or weights, on the CPU."""

import numpy as np

from cavalcade.core.jit import kernel, rule
from cavalcade.ppo.engines.cuda import rows, sample
from cavalcade.ppo.engines.cuda.choice import MOST_ACTIONS, WORD, choice_of
from cavalcade.ppo.engines.cuda.evaluate import AHEAD, NONE, ROOM, TILE, evaluate_of, find_of
from cavalcade.ppo.engines.cuda.lanes import ONE
from cavalcade.ppo.engines.cuda.row_loss import SCRATCH, row_loss_of
from cavalcade.ppo.gae import gae_environment

LANES = ONE
_choice, _row_loss = choice_of(ONE, MOST_ACTIONS), row_loss_of(ONE, MOST_ACTIONS)
_draw, _greedy = _choice.draw, _choice.greedy
_chunk, _gather, _join = _row_loss.chunk, _row_loss.gather, _row_loss.join


@rule
def _claim(slots, p, slot, sample):
    there = slots[p, slot]
    if there == NONE:
        slots[p, slot] = sample
    return there


@rule
def _count(numbers, p):
    numbers[p] += 1
    return numbers[p] - 1


@rule
def _wait():
    pass


_find, _evaluate = find_of(_claim, _count), evaluate_of(1, ONE.total, _wait, prefetch=False)


@kernel
def find(count, *args):
    for i in range(count):
        _find(i, *args)


@kernel(numerics=True)
def evaluate(count, layers, weights, words, places, *args):
    tiles, sums, ahead = np.zeros(ROOM, weights.dtype), np.zeros(TILE, weights.dtype), np.zeros(AHEAD, weights.dtype)
    for block in range(count):
        _evaluate(0, 1, block, count, tiles, sums, ahead, layers, weights, words, places, *args)


@kernel(numerics=True)
def draw(count, bits, actions, logits, *args):
    mine = np.zeros((2, MOST_ACTIONS), logits.dtype)
    for i in range(count):
        _draw(i, 0, mine, bits, actions, logits, *args)


@kernel
def greedy(count, *args):
    for i in range(count):
        _greedy(i, 0, *args)


@kernel
def keep(count, *args):
    for i in range(count):
        sample.keep(i, *args)


@kernel
def unpack(count, *args):
    for i in range(count):
        sample.unpack(i, *args)


@kernel
def discount(count, *args):
    for i in range(count):
        sample.discount(i, *args)


@kernel
def shuffle_key(count, *args):
    for i in range(count):
        sample.shuffle_key(i, *args)


@kernel
def gae(count, *args):
    n = args[0].shape[2]
    for i in range(count):
        gae_environment(*args, i // n, i % n)


@kernel
def row_key(count, *args):
    for i in range(count):
        rows.row_key(i, *args)


@kernel
def begins(count, *args):
    for i in range(count):
        rows.begins(i, *args)


@kernel
def minibatch_of(count, *args):
    for i in range(count):
        rows.minibatch_of(i, *args)


@kernel
def begins_again(count, *args):
    for i in range(count):
        rows.begins_again(i, *args)


@kernel
def row_number(count, *args):
    for i in range(count):
        rows.row_number(i, *args)


@kernel
def take_row(count, *args):
    for i in range(count):
        rows.take_row(i, *args)


@kernel(numerics=True)
def chunk(count, actions, b, size, c, first, s, x, logits, *args):
    mine, mask = np.zeros((len(SCRATCH), MOST_ACTIONS), logits.dtype), np.zeros(MOST_ACTIONS // WORD, np.int32)
    for i in range(count):
        _chunk(i, 0, mine, mask, actions, b, size, c, first, s, x, logits, *args)


@kernel
def gather(count, *args):
    for i in range(count):
        _gather(i, 0, *args)


@kernel
def join(count, *args):
    for i in range(count):
        _join(i, 0, *args)


@kernel
def adam(count, *args):
    for i in range(count):
        sample.adam(i, *args)
