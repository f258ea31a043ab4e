"""Forward pass of the token policy over tiles of agents, on one thread each.

    x₁ = relu(Σ embeddings + b)   x₂ = relu(W x₁ + b)   features = x₂ or LSTM(x₂) or GRU(x₂)   out = heads(features)

Arrays are rows of (step, agent), time first: row t·b + i. Widths are padded to whole panels (`products`) with zeros,
which stay zeros. A core has four blocks of columns: LSTM i, f, g, o; GRU n, r, z, q with n = tanh(x's part + r·q).
Input weights lead to the first `from_input` columns, recurrent weights to the last `from_state`.
"""

from typing import NamedTuple

import numba
import numpy as np

from cavalcade.core.jit import formula, kernel, routine
from cavalcade.core.scalar import tanh
from cavalcade.policy.compiled.products import add_product
from cavalcade.policy.compiled.sums import add_sum
from cavalcade.policy.tokens import END

NONE, LSTM, GRU = range(3)


class Shape(NamedTuple):
    """Sizes of a pass."""

    steps: int  # h
    agents: int  # b
    actions: int  # A
    inner: int  # H, before padding
    width: int  # padded
    outputs: int  # A + 1, padded
    core: int
    from_input: int
    from_state: int
    tiles: int


class Tokens(NamedTuple):
    """Observations as bytes, and what they mean."""

    bytes: np.ndarray  # flat
    starts: np.ndarray  # (b,): where the first observation of each agent begins
    step: int  # bytes from one step to the next
    most: int  # K
    rows: np.ndarray  # (place, feature): first row · 256 + number of rows − 1; negative if the pair has no meaning
    weight: np.ndarray  # (feature, value): of a single row


class Weights(NamedTuple):
    """Parameters: matrices packed for the forward pass, biases padded."""

    table: np.ndarray  # (R, H), not padded
    sums_bias: np.ndarray  # (H,)
    layer: np.ndarray  # (width, width)
    layer_bias: np.ndarray
    inputs: np.ndarray  # (width, from_input)
    states: np.ndarray  # (width, from_state)
    core_bias: np.ndarray  # (4, width)
    heads: np.ndarray  # (width, outputs)
    heads_bias: np.ndarray


class Work(NamedTuple):
    """What the forward pass leaves for the backward pass. B = h·b rows at least."""

    rows: np.ndarray  # (B, K) int32: rows of the table …
    weights: np.ndarray  # (B, K): … and their weights
    count: np.ndarray  # (B,) int32
    first: np.ndarray  # (B, width): x₁
    second: np.ndarray  # (B, width): x₂
    gates: np.ndarray  # (B, 4, width): after their activations, but q
    before: np.ndarray  # (B, width): state h that a step begins with
    cells: np.ndarray  # (B, width): c after a step
    out: np.ndarray  # (B, outputs)


class Memory(NamedTuple):
    """Recurrent states, (b, width) each; empty arrays without a core, or without cells."""

    hidden: np.ndarray
    cell: np.ndarray
    hidden_after: np.ndarray
    cell_after: np.ndarray


@kernel(parallel=True, numerics=True)
def forward(shape, tokens, begins, weights, work, memory, features, logits, values):
    """Writes features (B, width), logits (B, A), values (B,) and states after the last step; begins: (h, b) bool."""
    for tile in numba.prange(shape.tiles):
        _forward_tile(shape, tile, tokens, begins, weights, work, memory, features, logits, values)


@routine
def _forward_tile(shape, tile, tokens, begins, weights, work, memory, features, logits, values):
    start, stop = shape.agents * tile // shape.tiles, shape.agents * (tile + 1) // shape.tiles
    n, width, size = stop - start, shape.width, shape.outputs
    first, second, out = work.first, work.second, work.out
    for t in range(shape.steps):
        row = t * shape.agents + start
        for i in range(n):
            _find_rows(tokens, tokens.starts[start + i] + t * tokens.step, work, row + i)
            _sum_rows(weights, work, row + i)
        for r in range(row, row + n):
            _copy(weights.layer_bias, second, r)
        add_product(first, row * width, width, 1, n, width, weights.layer, second, row * width, width, width)
        for r in range(row, row + n):
            _rectify(second, r)
        if shape.core == NONE:
            for r in range(row, row + n):
                _copy(second[r], features, r)
        else:
            _remember(shape, t, start, n, begins, weights, work, memory, features)
        for r in range(row, row + n):
            _copy(weights.heads_bias, out, r)
        add_product(features, row * width, width, 1, n, width, weights.heads, out, row * size, size, size)
        for r in range(row, row + n):
            for a in range(shape.actions):
                logits[r, a] = out[r, a]
            values[r] = out[r, shape.actions]


@formula
def _find_rows(tokens, at, work, row):
    """Rows and weights of the tokens of an observation that begins at a byte."""
    count, one = 0, np.float32(1)
    for k in range(tokens.most):
        here = at + 3 * k
        place = tokens.bytes[here]
        if place == END:
            break
        feature, value = tokens.bytes[here + 1], tokens.bytes[here + 2]
        found = tokens.rows[place, feature]
        if found < 0:
            continue
        others, weight = found & 255, tokens.weight[feature, value]
        work.rows[row, count] = (found >> 8) + min(np.int32(value), others)
        work.weights[row, count] = one if others > 0 else weight
        count += 1
    work.count[row] = count


@formula
def _sum_rows(weights, work, row):
    """x₁ of a row."""
    into, bias = work.first, weights.sums_bias
    for j in range(bias.size):
        into[row, j] = bias[j]
    add_sum(weights.table, work.rows, work.weights, work.count[row], into, row)
    _rectify(into, row)


@formula
def _copy(vector, into, row):
    for j in range(into.shape[1]):
        into[row, j] = vector[j]


@formula
def _rectify(array, row):
    """Applies relu to a row, in place."""
    zero = array.dtype.type(0)
    for j in range(array.shape[1]):
        array[row, j] = max(array[row, j], zero)


@routine
def _remember(shape, t, start, n, begins, weights, work, memory, features):
    """A step of the core for a tile."""
    row, width, four = t * shape.agents + start, shape.width, 4 * shape.width
    gates, at = work.gates, row * four
    for i in range(n):
        if t == 0:
            _keep(memory.hidden, start + i, begins[t, start + i], work.before, row + i)
        else:
            _keep(features, row + i - shape.agents, begins[t, start + i], work.before, row + i)
        for k in range(4):
            for j in range(width):
                gates[row + i, k, j] = weights.core_bias[k, j]
    add_product(work.second, row * width, width, 1, n, width, weights.inputs, gates, at, four, shape.from_input)
    last = at + four - shape.from_state
    add_product(work.before, row * width, width, 1, n, width, weights.states, gates, last, four, shape.from_state)
    for i in range(n):
        r = row + i
        if shape.core == GRU:
            _gru(gates, work.before, r, features)
        elif t == 0:
            _lstm(gates, memory.cell, start + i, begins[t, start + i], r, work.cells, features)
        else:
            _lstm(gates, work.cells, r - shape.agents, begins[t, start + i], r, work.cells, features)
    if t == shape.steps - 1:
        for i in range(n):
            _keep(features, row + i, False, memory.hidden_after, start + i)
            if shape.core == LSTM:
                _keep(work.cells, row + i, False, memory.cell_after, start + i)


@formula
def _keep(array, row, begins, into, into_row):
    """Copies a row, or zeros where an episode begins."""
    factor = array.dtype.type(0 if begins else 1)
    for j in range(array.shape[1]):
        into[into_row, j] = factor * array[row, j]


@formula
def _sigmoid(x, half):
    return half + half * tanh(half * x)


@formula
def _lstm(gates, past, past_row, begins, row, cells, hidden):
    half, keep = gates.dtype.type(0.5), gates.dtype.type(0 if begins else 1)
    for j in range(gates.shape[2]):
        i, f = _sigmoid(gates[row, 0, j], half), _sigmoid(gates[row, 1, j], half)
        g, o = tanh(gates[row, 2, j]), _sigmoid(gates[row, 3, j], half)
        c = f * (keep * past[past_row, j]) + i * g
        gates[row, 0, j], gates[row, 1, j], gates[row, 2, j], gates[row, 3, j] = i, f, g, o
        cells[row, j] = c
        hidden[row, j] = o * tanh(c)


@formula
def _gru(gates, before, row, hidden):
    half = gates.dtype.type(0.5)
    for j in range(gates.shape[2]):
        r, z = _sigmoid(gates[row, 1, j], half), _sigmoid(gates[row, 2, j], half)
        n = tanh(gates[row, 0, j] + r * gates[row, 3, j])
        gates[row, 0, j], gates[row, 1, j], gates[row, 2, j] = n, r, z
        hidden[row, j] = n + z * (before[row, j] - n)
