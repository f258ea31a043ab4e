"""Backward pass of the token policy: through time for each tile of agents, then the gradients of weights.

Threads share weight gradients by rows of the matrices and the gradient of the embedding table by columns; every element
is summed over samples in order, so that it does not depend on the number of threads.
"""

from typing import NamedTuple

import numba
import numpy as np

from cavalcade.core.jit import formula, kernel, routine
from cavalcade.core.scalar import tanh
from cavalcade.policy.compiled.network import GRU, NONE
from cavalcade.policy.compiled.products import add_product
from cavalcade.policy.compiled.sums import TOGETHER, spread
from cavalcade.policy.compiled.vectors import LINE, copy_line

_CHUNK = 96  # samples that are added to weight gradients at a time …
_BLOCK = 96  # … and rows of the matrices: both copies fit the L2 cache
_APART = 16  # elements between copied rows: they fall into different sets of the cache


class Transposed(NamedTuple):
    """Weights packed for the backward pass."""

    layer: np.ndarray  # (width, width)
    inputs: np.ndarray  # (from_input, width)
    states: np.ndarray  # (from_state, width)
    heads: np.ndarray  # (outputs, width)


class Upstream(NamedTuple):
    """Gradients of the outputs; features and states may be empty."""

    out: np.ndarray  # (B, outputs): logits, value, zeros
    features: np.ndarray  # (B, width)
    hidden: np.ndarray  # (b, width), overwritten with the gradient of the first state
    cell: np.ndarray


class Deltas(NamedTuple):
    """Gradients of pre-activations, written by `back_through_time`; those of gates replace the gates."""

    first: np.ndarray  # (B, width)
    second: np.ndarray  # (B, width)


class Gradients(NamedTuple):
    """Gradients of weights, transposed as torch keeps them, padded, zeros before."""

    layer: np.ndarray  # (width, width)
    inputs: np.ndarray  # (from_input, width)
    states: np.ndarray  # (from_state, width)
    heads: np.ndarray  # (outputs, width)
    sums_bias: np.ndarray  # (width,)
    layer_bias: np.ndarray
    core_bias: np.ndarray  # (4·width,)
    heads_bias: np.ndarray


@kernel(parallel=True, numerics=True)
def back_through_time(shape, begins, weights, work, cell, upstream, deltas):
    """Gradients of all pre-activations, and of the states at the start; cell: (b, width) at the start."""
    for tile in numba.prange(shape.tiles):
        _back_tile(shape, tile, begins, weights, work, cell, upstream, deltas)


@routine
def _back_tile(shape, tile, begins, weights, work, cell, upstream, deltas):
    start, stop = shape.agents * tile // shape.tiles, shape.agents * (tile + 1) // shape.tiles
    n, width, size = stop - start, shape.width, shape.outputs
    first, second = deltas.first, deltas.second
    for back in range(shape.steps):
        t = shape.steps - 1 - back
        row = t * shape.agents + start
        # the gradient of features: in `first` for a core, which overwrites it later, else in `second`
        into = second if shape.core == NONE else first
        for r in range(row, row + n):
            _clear(into, r)
            if upstream.features.size:
                for j in range(width):
                    into[r, j] = upstream.features[r, j]
        add_product(upstream.out, row * size, size, 1, n, size, weights.heads, into, row * width, width, width)
        if shape.core != NONE:
            _back_core(shape, t, start, n, begins, weights, work, cell, upstream, deltas)
        for r in range(row, row + n):
            _stop_at_zero(second, work.second, r)
            _clear(first, r)
        add_product(second, row * width, width, 1, n, width, weights.layer, first, row * width, width, width)
        for r in range(row, row + n):
            _stop_at_zero(first, work.first, r)


@formula
def _stop_at_zero(delta, value, row):
    """The gradient of relu, in place."""
    zero = delta.dtype.type(0)
    for j in range(delta.shape[1]):
        delta[row, j] = delta[row, j] if value[row, j] > zero else zero


@formula
def _clear(array, row):
    for j in range(array.shape[1]):
        array[row, j] = 0


@routine
def _back_core(shape, t, start, n, begins, weights, work, cell, upstream, deltas):
    """A step of the core back in time; `deltas.first` has the gradient of its output."""
    row, width, four = t * shape.agents + start, shape.width, 4 * shape.width
    gates, hidden, carry, second = work.gates, upstream.hidden, upstream.cell, deltas.second
    for i in range(n):
        r, begun = row + i, begins[t, start + i]
        if shape.core == GRU:
            _back_gru(gates, work.before, r, deltas.first, hidden, start + i)
        elif t == 0:
            _back_lstm(gates, cell, start + i, begun, work.cells, r, deltas.first, hidden, carry, start + i)
        else:
            past = r - shape.agents
            _back_lstm(gates, work.cells, past, begun, work.cells, r, deltas.first, hidden, carry, start + i)
        _clear(second, r)
    at, last = row * four, row * four + four - shape.from_state
    add_product(gates, at, four, 1, n, shape.from_input, weights.inputs, second, row * width, width, width)
    add_product(gates, last, four, 1, n, shape.from_state, weights.states, hidden, start * width, width, width)
    for i in range(n):
        if begins[t, start + i]:
            _clear(hidden, start + i)


@formula
def _back_lstm(gates, past, past_row, begins, cells, row, delta, hidden, carry, agent):
    """Replaces gates by their gradients; `hidden` and `carry`, from the step after, by parts for the step before."""
    real = gates.dtype.type
    one, keep = real(1), real(0 if begins else 1)
    for j in range(gates.shape[2]):
        i, f, g, o = gates[row, 0, j], gates[row, 1, j], gates[row, 2, j], gates[row, 3, j]
        dh, u = delta[row, j] + hidden[agent, j], tanh(cells[row, j])
        dc = carry[agent, j] + dh * o * (one - u * u)
        gates[row, 0, j] = dc * g * i * (one - i)
        gates[row, 1, j] = dc * (keep * past[past_row, j]) * f * (one - f)
        gates[row, 2, j] = dc * i * (one - g * g)
        gates[row, 3, j] = dh * u * o * (one - o)
        carry[agent, j] = keep * dc * f
        hidden[agent, j] = 0


@formula
def _back_gru(gates, before, row, delta, hidden, agent):
    """As `_back_lstm`."""
    one = gates.dtype.type(1)
    for j in range(gates.shape[2]):
        n, r, z, q = gates[row, 0, j], gates[row, 1, j], gates[row, 2, j], gates[row, 3, j]
        dh = delta[row, j] + hidden[agent, j]
        dn = dh * (one - z) * (one - n * n)
        gates[row, 0, j] = dn
        gates[row, 1, j] = dn * q * r * (one - r)
        gates[row, 2, j] = dh * (before[row, j] - n) * z * (one - z)
        gates[row, 3, j] = dn * r
        hidden[agent, j] = dh * z


@kernel(parallel=True, numerics=True)
def weight_gradients(shape, parts, work, features, out, deltas, gradients):
    """Adds the gradients of matrices and biases over all rows."""
    for part in numba.prange(parts):
        _weight_part(shape, part, parts, work, features, out, deltas, gradients)


@routine
def _weight_part(shape, part, parts, work, features, out, deltas, g):
    real, width, four = g.layer.dtype, shape.width, 4 * shape.width
    panels, copied = np.empty(_CHUNK * width, real), np.empty(_CHUNK * (_BLOCK + _APART), real)
    gates = work.gates.reshape(work.gates.shape[0], four)
    total = shape.steps * shape.agents
    for row in range(0, total, _CHUNK):
        n = min(_CHUNK, total - row)
        _pack_rows(work.first, row, n, panels)
        _add_outer(deltas.second, 0, width, row, n, part, parts, copied, panels, g.layer)
        _pack_rows(features, row, n, panels)
        _add_outer(out, 0, shape.outputs, row, n, part, parts, copied, panels, g.heads)
        _add_columns(deltas.first, row, n, part, parts, g.sums_bias)
        _add_columns(deltas.second, row, n, part, parts, g.layer_bias)
        _add_columns(out, row, n, part, parts, g.heads_bias)
        if shape.core:
            x, y = shape.from_input, shape.from_state
            _pack_rows(work.second, row, n, panels)
            _add_outer(gates, 0, x, row, n, part, parts, copied, panels, g.inputs)
            _pack_rows(work.before, row, n, panels)
            _add_outer(gates, four - y, y, row, n, part, parts, copied, panels, g.states)
            _add_columns(gates, row, n, part, parts, g.core_bias)


@routine
def _pack_rows(x, row, n, panels):
    """Packs n rows of a matrix into panels of their columns (`products`)."""
    width, size = x.shape[1], LINE // x.itemsize
    for r in range(n):
        for j in range(0, width, size):
            copy_line(x, (row + r) * width + j, panels, j * n + r * size)


@routine
def _add_outer(delta, offset, columns, row, n, part, parts, copied, panels, into):
    """Adds δᵀ x of n samples to this part's rows of `into`; x: in panels; δ: `columns` columns from `offset`."""
    width, stride, size = into.shape[1], _BLOCK + _APART, LINE // into.itemsize
    lines, row_size = columns // size, delta.shape[1]
    last = lines * (part + 1) // parts * size
    for start in range(lines * part // parts * size, last, _BLOCK):
        stop = min(start + _BLOCK, last)
        for r in range(n):
            at = (row + r) * row_size + offset
            for j in range(start, stop, size):
                copy_line(delta, at + j, copied, r * stride + j - start)
        add_product(copied, 0, 1, stride, stop - start, n, panels, into, start * width, width, width)


@routine
def _add_columns(delta, row, n, part, parts, bias):
    """Adds the sums of δ over n samples to this part of a bias."""
    start, stop = bias.size * part // parts, bias.size * (part + 1) // parts
    target = bias[start:stop]
    for r in range(row, row + n):
        values = delta[r, start:stop]
        for j in range(stop - start):
            target[j] += values[j]


@kernel(parallel=True, numerics=True)
def table_gradient(shape, parts, work, delta, gradient):
    """Adds the gradient of the embedding table, (R, width)."""
    for part in numba.prange(parts):
        _table_part(shape, part, parts, work, delta, gradient)


@routine
def _table_part(shape, part, parts, work, delta, gradient):
    """Some columns of the gradient, a few cache lines at a time."""
    size = LINE // gradient.itemsize
    lines = shape.width // size
    column, last = lines * part // parts * size, lines * (part + 1) // parts * size
    while column < last:
        count = TOGETHER * size if column + TOGETHER * size <= last else size
        for r in range(shape.steps * shape.agents):
            spread(gradient, work.rows, work.weights, work.count[r], delta, r, column, count)
        column += count
