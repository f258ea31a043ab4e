"""The functions of this folder for all environments, samples or weights, on the CPU."""

import numpy as np

from cavalcade.core.jit import kernel
from cavalcade.ppo.engines.cuda import rows, sample
from cavalcade.ppo.engines.cuda.choice import choice_of
from cavalcade.ppo.engines.cuda.lanes import ONE
from cavalcade.ppo.engines.cuda.row_loss import SCRATCH, row_loss_of
from cavalcade.ppo.gae import gae_environment

LANES = ONE
_choice, _row_loss = choice_of(ONE), row_loss_of(ONE)
_draw, _greedy, _chunk, _join = _choice.draw, _choice.greedy, _row_loss.chunk, _row_loss.join


@kernel
def draw(count, *args):
    for i in range(count):
        _draw(i, 0, *args)


@kernel
def greedy(count, *args):
    for i in range(count):
        _greedy(i, 0, *args)


@kernel
def record_step(count, *args):
    for i in range(count):
        sample.record_step(i, *args)


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
def chunk(count, bits, actions, b, c, first, s, x, logits, values, d_logits, d_values, parts, terms):
    mine = np.zeros((len(SCRATCH), actions), logits.dtype)
    for i in range(count):
        _chunk(i, 0, mine, bits, actions, b, c, first, s, x, logits, values, d_logits, d_values, parts, terms)


@kernel
def join(count, actions, *args):
    for i in range(count):
        _join(i // (actions + 1), i % (actions + 1), actions, *args)


@kernel
def adam(count, *args):
    for i in range(count):
        sample.adam(i, *args)
