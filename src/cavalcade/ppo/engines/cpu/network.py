"""Forward and backward passes of the population MLP over a tile of rows, on one thread.

A tile's activations stay in the second-level cache; matrix products are BLAS calls. Everything is in place in a work
array per thread. Rows of a tile belong to one policy.
"""

from typing import NamedTuple

import numpy as np

from cavalcade.core.jit import formula, routine
from cavalcade.core.scalar import tanh
from cavalcade.policy.mlp import NETS, MlpSpec

TILE = 96  # rows


class Inputs(NamedTuple):
    """Inputs of each policy's networks besides the raw observation."""

    context: np.ndarray  # (P, C): constant inputs
    shift: np.ndarray  # (P, O): subtracted from an observation …
    scale: np.ndarray  # (P, O): … which is then multiplied by this


class Layout(NamedTuple):
    """Offsets of weights in a policy's row, and of a tile's activations in the work array."""

    layers: int  # per network
    inputs: int  # observation values
    context: int  # constant inputs
    actions: int
    padded: int  # columns of the action layer
    fan_in: np.ndarray  # (2, L)
    columns: np.ndarray  # (2, L)
    weight: np.ndarray  # (2, L): offsets in a row of weights
    bias: np.ndarray  # (2, L)
    output: np.ndarray  # (2, L): offsets of a layer's outputs in the work array
    delta: np.ndarray  # (2, L): offsets of the gradient with respect to its pre-activations
    folded: np.ndarray  # (2,): offsets of the first bias with the context folded in
    x: int  # offset of the observations
    product: int  # offset of a weight-sized product
    work: int  # size of the work array


def layout_of(spec: MlpSpec) -> Layout:
    nets = [spec.layers(net) for net in NETS]
    table = {name: np.array([[getattr(layer, name) for layer in layers] for layers in nets], np.int64)
             for name in ("fan_in", "columns", "weight", "bias")}  # fmt: skip
    at = 0

    def room(size: int) -> int:
        nonlocal at
        start = at
        at += -(-size // 16) * 16
        return start

    x = room(TILE * spec.inputs)
    output = np.array([[room(TILE * layer.columns) for layer in layers] for layers in nets], np.int64)
    delta = np.array([[room(TILE * layer.columns) for layer in layers] for layers in nets], np.int64)
    folded = np.array([room(layers[0].columns) for layers in nets], np.int64)
    product = room(max(layer.fan_in * layer.columns for layers in nets for layer in layers))
    return Layout(
        layers=len(nets[0]), inputs=spec.inputs, context=spec.context, actions=spec.actions, padded=spec.padded_actions,
        output=output, delta=delta, folded=folded, x=x, product=product, work=at, **table,
    )  # fmt: skip


@routine
def matrix(flat, at, rows, columns):
    """A view of a part of a flat array as a matrix."""
    return flat[at : at + rows * columns].reshape(rows, columns)


@formula
def load(x, row, inputs, p, size, into, at):
    """Writes an observation of `size` values, shifted and scaled, to the work array."""
    for j in range(size):
        into[at + j] = (into.dtype.type(x[row, j]) - inputs.shift[p, j]) * inputs.scale[p, j]


@routine
def fold_context(net, weights, inputs, p, work):
    """Adds the contribution of the policy's constant inputs to the first biases: it is the same for every row."""
    context = inputs.context[p]
    for n in range(2):
        columns = net.columns[n, 0]
        bias, into = weights[net.bias[n, 0] :], work[net.folded[n] :]
        for j in range(columns):
            into[j] = bias[j]
        for i in range(net.context):
            row = weights[net.weight[n, 0] + (net.inputs + i) * columns :]
            for j in range(columns):
                into[j] += context[i] * row[j]


@routine
def forward(net, n, weights, work, rows):
    """Runs one network on a tile whose observations are in the work array and whose context is folded."""
    before = matrix(work, net.x, rows, net.inputs)
    for i in range(net.layers):
        fan_in = net.inputs if i == 0 else net.fan_in[n, i]
        columns = net.columns[n, i]
        out = matrix(work, net.output[n, i], rows, columns)
        np.dot(before, matrix(weights, net.weight[n, i], fan_in, columns), out)
        if i == 0:
            bias = work[net.folded[n] : net.folded[n] + columns]
        else:
            bias = weights[net.bias[n, i] : net.bias[n, i] + columns]
        if i < net.layers - 1:
            for r in range(rows):
                for j in range(columns):
                    out[r, j] = tanh(out[r, j] + bias[j])
        else:
            for r in range(rows):
                for j in range(columns):
                    out[r, j] += bias[j]
        before = out


@routine
def backward(net, n, weights, work, rows, gradient):
    """Backpropagates the gradient of the outputs, in the last `delta`, and adds it to a policy's gradient."""
    for back in range(net.layers):
        i = net.layers - 1 - back
        fan_in = net.inputs if i == 0 else net.fan_in[n, i]
        columns = net.columns[n, i]
        delta = matrix(work, net.delta[n, i], rows, columns)
        before = matrix(work, net.x if i == 0 else net.output[n, i - 1], rows, fan_in)
        product = matrix(work, net.product, fan_in, columns)
        np.dot(before.T, delta, product)
        into = gradient[net.weight[n, i] : net.weight[n, i] + fan_in * columns]
        flat = work[net.product : net.product + fan_in * columns]
        for k in range(fan_in * columns):
            into[k] += flat[k]
        into = gradient[net.bias[n, i] : net.bias[n, i] + columns]
        for r in range(rows):
            for j in range(columns):
                into[j] += delta[r, j]
        if i > 0:
            towards = matrix(work, net.delta[n, i - 1], rows, fan_in)
            np.dot(delta, matrix(weights, net.weight[n, i], fan_in, columns).T, towards)
            for r in range(rows):
                for j in range(fan_in):
                    towards[r, j] *= 1 - before[r, j] * before[r, j]


@routine
def context_gradient(net, inputs, p, gradient):
    """Writes the gradient of the constant inputs' weights: that of the first bias times the input."""
    context = inputs.context[p]
    for n in range(2):
        columns = net.columns[n, 0]
        bias = gradient[net.bias[n, 0] :]
        for i in range(net.context):
            into = gradient[net.weight[n, 0] + (net.inputs + i) * columns :]
            for j in range(columns):
                into[j] = context[i] * bias[j]
