"""The functions of this folder on a GPU: a thread per environment, sample or weight, or a warp that shares a row.

In Numba's CUDA simulator, which has no warps, a single thread takes the place of one.
"""

from functools import partial

import numpy as np

from cavalcade.core.cuda import cuda, gpu_kernel, simulated
from cavalcade.ppo.engines.cuda import rows, sample
from cavalcade.ppo.engines.cuda.choice import MOST_ACTIONS, WORD, choice_of
from cavalcade.ppo.engines.cuda.evaluate import AHEAD, NONE, ROOM, TILE, WARP, evaluate_of, find_of
from cavalcade.ppo.engines.cuda.lanes import ONE, Lanes
from cavalcade.ppo.engines.cuda.row_loss import SCRATCH, row_loss_of
from cavalcade.ppo.gae import gae_environment

# fmt: off

_REGISTERS = 128  # per thread: what blocks of `evaluate` have; `chunk` would take more, but then fewer warps fit
_ALL = 0xFFFFFFFF  # lanes of a warp


@cuda.jit(device=True)
def _total(x):
    x += cuda.shfl_xor_sync(_ALL, x, 16)
    x += cuda.shfl_xor_sync(_ALL, x, 8)
    x += cuda.shfl_xor_sync(_ALL, x, 4)
    x += cuda.shfl_xor_sync(_ALL, x, 2)
    x += cuda.shfl_xor_sync(_ALL, x, 1)
    return x


@cuda.jit(device=True)
def _total_of_four(x):
    x += cuda.shfl_xor_sync(_ALL, x, 2)
    return x + cuda.shfl_xor_sync(_ALL, x, 1)


@cuda.jit(device=True)
def _largest(x):
    x = max(x, cuda.shfl_xor_sync(_ALL, x, 16))
    x = max(x, cuda.shfl_xor_sync(_ALL, x, 8))
    x = max(x, cuda.shfl_xor_sync(_ALL, x, 4))
    x = max(x, cuda.shfl_xor_sync(_ALL, x, 2))
    return max(x, cuda.shfl_xor_sync(_ALL, x, 1))


@cuda.jit(device=True)
def _running(x, lane):
    step = 1
    while step < WARP:
        before = cuda.shfl_up_sync(_ALL, x, step)
        x += before if lane >= step else 0 * before
        step *= 2
    return x


@cuda.jit(device=True)
def _take(x, lane):
    return cuda.shfl_sync(_ALL, x, lane)


@cuda.jit(device=True)
def _votes(x):
    return cuda.ballot_sync(_ALL, x)


@cuda.jit(device=True)
def _claim(slots, p, slot, sample):
    return cuda.atomic.cas(slots, (p, slot), NONE, sample)


@cuda.jit(device=True)
def _count(numbers, p):
    return cuda.atomic.add(numbers, p, 1)


@cuda.jit(device=True)
def _wait():
    cuda.syncthreads()


_SIMULATED = simulated()
LANES = ONE if _SIMULATED else Lanes(WARP, _total, _largest, _running, _take, _votes)
_width, _per_lane = LANES.count, MOST_ACTIONS // LANES.count
_choice, _row_loss = choice_of(LANES, _per_lane), row_loss_of(LANES, _per_lane)
_draw, _greedy = _choice.draw, _choice.greedy
_chunk, _gather, _join = _row_loss.chunk, _row_loss.gather, _row_loss.join
_SCRATCH, _WORDS = len(SCRATCH), MOST_ACTIONS // WORD
_parts, _share = (1, LANES.total) if _SIMULATED else (4, _total_of_four)
_find, _evaluate = find_of(_claim, _count), evaluate_of(_parts, _share, _wait, prefetch=True)


@gpu_kernel
def find(count, t, end, x, slots, fresh, num_fresh, row):
    i = cuda.grid(1)
    if i < count:
        _find(i, t, end, x, slots, fresh, num_fresh, row)


@partial(gpu_kernel, registers=_REGISTERS)
def evaluate(count, layers, weights, words, places, t, steps, fresh, num_fresh, logits, values):
    if _SIMULATED:
        tiles = cuda.shared.array(ROOM, np.float32)
    else:
        tiles = cuda.shared.array(ROOM, np.float32, alignment=16)  # so that four numbers are read at once
    sums, ahead = cuda.local.array(TILE, np.float32), cuda.local.array(AHEAD, np.float32)
    _evaluate(
        cuda.threadIdx.x, cuda.blockDim.x, cuda.blockIdx.x, count, tiles, sums, ahead, layers, weights, words, places,
        t, steps, fresh, num_fresh, logits, values,
    )


@partial(gpu_kernel, fastmath=True)
def draw(
    count, bits, outputs, logits, values, row, masks, keys, clock, t, actions, store_action, store_log_prob,
    store_value, store_mask,
):
    thread = cuda.grid(1)
    i, lane = thread // _width, thread % _width
    mine = cuda.local.array((2, _per_lane), np.float32)
    if i < count:
        _draw(
            i, lane, mine, bits, outputs, logits, values, row, masks, keys, clock, t, actions, store_action,
            store_log_prob, store_value, store_mask,
        )


@gpu_kernel
def greedy(count, bits, outputs, logits, masks, actions):
    thread = cuda.grid(1)
    i, lane = thread // _width, thread % _width
    if i < count:
        _greedy(i, lane, bits, outputs, logits, masks, actions)


@gpu_kernel
def keep(count, t, end, x):
    i = cuda.grid(1)
    if i < count:
        sample.keep(i, t, end, x)


@gpu_kernel
def unpack(count, words, places, x):
    i = cuda.grid(1)
    if i < count:
        sample.unpack(i, words, places, x)


@gpu_kernel
def discount(count, rewards, ended, gamma, running, totals):
    i = cuda.grid(1)
    if i < count:
        sample.discount(i, rewards, ended, gamma, running, totals)


@gpu_kernel
def shuffle_key(count, keys, counter, epoch, out):
    i = cuda.grid(1)
    if i < count:
        sample.shuffle_key(i, keys, counter, epoch, out)


@gpu_kernel
def gae(count, reward, value, ended, bootstrap, last_value, scale, gamma, decay, advantage, returns):
    i = cuda.grid(1)
    n = reward.shape[2]
    if i < count:
        gae_environment(
            reward, value, ended, bootstrap, last_value, scale, gamma, decay, advantage, returns, i // n, i % n
        )


@gpu_kernel
def row_key(count, words, samples, bits, keys):
    i = cuda.grid(1)
    if i < count:
        rows.row_key(i, words, samples, bits, keys)


@gpu_kernel
def begins(count, order, words, samples, found):
    i = cuda.grid(1)
    if i < count:
        rows.begins(i, order, words, samples, found)


@gpu_kernel
def minibatch_of(count, order, place, share, steps, found):
    i = cuda.grid(1)
    if i < count:
        rows.minibatch_of(i, order, place, share, steps, found)


@gpu_kernel
def begins_again(count, position, row, order, b, taken, found):
    i = cuda.grid(1)
    if i < count:
        rows.begins_again(i, position, row, order, b, taken, found)


@gpu_kernel
def row_number(count, counted, b, row):
    i = cuda.grid(1)
    if i < count:
        rows.row_number(i, counted, b, row)


@gpu_kernel
def take_row(count, s, first, b, words, found):
    i = cuda.grid(1)
    if i < count:
        rows.take_row(i, s, first, b, words, found)


@partial(gpu_kernel, fastmath=True, registers=_REGISTERS)
def chunk(count, actions, b, size, c, first, s, x, logits, values, d_logits, d_values, parts, terms):
    thread = cuda.grid(1)
    i, lane = thread // _width, thread % _width
    mine, mask = cuda.local.array((_SCRATCH, _per_lane), np.float32), cuda.local.array(_WORDS, np.int32)
    if i < count:
        _chunk(i, lane, mine, mask, actions, b, size, c, first, s, x, logits, values, d_logits, d_values, parts, terms)


@gpu_kernel
def gather(count, actions, b, size, first, s, parts, sums):
    thread = cuda.grid(1)
    i, lane = thread // _width, thread % _width
    if i < count:
        _gather(i, lane, actions, b, size, first, s, parts, sums)


@gpu_kernel
def join(count, actions, b, size, first, s, parts, sums, d_logits, d_values):
    thread = cuda.grid(1)
    i, lane = thread // _width, thread % _width
    if i < count:
        _join(i, lane, actions, b, size, first, s, parts, sums, d_logits, d_values)


@gpu_kernel
def adam(count, weights, gradient, first, second, steps, rates, limits, norms, active):
    i = cuda.grid(1)
    if i < count:
        sample.adam(i, weights, gradient, first, second, steps, rates, limits, norms, active)
