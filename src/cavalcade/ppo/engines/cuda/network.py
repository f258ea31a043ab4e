"""Forward and backward passes of a population of perceptrons, features first: (P, features, samples).

The same networks and weights as `policy.mlp`, with the derivative written out instead of autograd. Actor and critic
have equal hidden layers, so one product computes both. The inputs of a layer have a row of ones appended, so that a
layer is one product: biases follow the weights in memory. Logits are laid out rows first, (P, samples, A), since
softmax and loss go through them by sample.
"""

from contextlib import nullcontext

import torch
from torch import Tensor

from cavalcade.core.side_stream import SideStream
from cavalcade.policy.mlp import NETS, Layer, MlpSpec

_ACTOR, _CRITIC = NETS


class Network:
    """Actors and critics for a fixed number of samples; `kind`: dtype of the products, weights keep theirs."""

    def __init__(self, spec: MlpSpec, weights: Tensor, samples: int, kind: torch.dtype):
        self.kind, self._weights, self.side = kind, weights, SideStream(weights.device)
        policies = len(weights)
        actor, critic = (spec.layers(net) for net in NETS)
        self._pairs, self._heads = list(zip(actor[:-1], critic[:-1], strict=True)), (actor[-1], critic[-1])

        def ones(*shape: int) -> Tensor:
            return torch.ones(policies, *shape, dtype=kind, device=weights.device)

        self._inputs = [ones(2, layer.fan_in + 1, samples) for layer in actor]  # of each layer, of both nets
        first = self._inputs[0][:, :, :-1]
        # (P, nets, inputs, samples): observations, for both nets, or for one if they have to be converted.
        self.x = first if kind == weights.dtype else first[:, :1].to(weights.dtype)
        self._logits, self._values = ones(samples, actor[-1].columns), ones(1, samples)
        self._above = ones(2, spec.hidden[-1], samples)  # gradient of the last hidden layers

    def forward(self) -> tuple[Tensor, Tensor]:
        """Logits (P, b, A or more) and values (P, 1, b) of the observations in `x`."""
        self._hidden()
        actor = self._layer(self._weights, self._heads[0]).to(self.kind)
        with self.side.work():
            values = self._value()
        torch.bmm(self._inputs[-1][:, 0].transpose(1, 2), actor, out=self._logits)
        self.side.join()
        return self._logits.to(self._weights.dtype), values

    def values(self) -> Tensor:
        """Values (P, 1, b) of the observations in `x`."""
        self._hidden()
        return self._value()

    def _value(self) -> Tensor:
        critic = self._layer(self._weights, self._heads[1]).to(self.kind)
        torch.bmm(critic.transpose(1, 2), self._inputs[-1][:, 1], out=self._values)
        return self._values.to(self._weights.dtype)

    def _hidden(self) -> None:
        """Runs the hidden layers of both nets."""
        if self.x.dtype != self.kind:
            self._inputs[0][:, :, :-1] = self.x
        for i, layers in enumerate(self._pairs):
            out = self._flat(i + 1)[:, :-1]
            torch.bmm(self._pair(self._weights, *layers).flatten(0, 1).transpose(1, 2), self._flat(i), out=out)
            out.tanh_()

    def backward(self, d_logits: Tensor, d_values: Tensor, gradient: Tensor) -> None:
        """Writes the gradient of the weights, (P, D), given those of logits and values.

        Gradients of weights are computed beside those of the layers below.
        """
        last, down, across = self._inputs[-1], d_logits.to(self.kind), d_values.to(self.kind)
        actor, critic = (self._layer(self._weights, layer)[:, :-1].to(self.kind) for layer in self._heads)
        with self.side.work():
            _multiply(last[:, 0], down, self._layer(gradient, self._heads[0]))
            _multiply(last[:, 1], across.transpose(1, 2), self._layer(gradient, self._heads[1]))
        torch.bmm(actor, down.transpose(1, 2), out=self._above[:, 0])
        torch.mul(critic, across, out=self._above[:, 1])
        d, used = self._above.flatten(0, 1), []
        for i in reversed(range(len(self._pairs))):
            d = torch.ops.aten.tanh_backward(d, self._flat(i + 1)[:, :-1])
            used.append(d)
            with self.side.work() if i else nullcontext():
                _multiply(self._flat(i), d.transpose(1, 2), self._pair(gradient, *self._pairs[i], own=True))
            if i:
                d = torch.bmm(self._pair(self._weights, *self._pairs[i]).flatten(0, 1)[:, :-1], d)
        self.side.join()

    def _flat(self, i: int) -> Tensor:
        """The inputs of layer i, with a batch of both nets of all policies."""
        return self._inputs[i].flatten(0, 1)

    def _layer(self, tensor: Tensor, layer: Layer) -> Tensor:
        """Weights and biases of a layer, (P, in + 1, columns), a view."""
        return tensor[:, layer.weight : layer.bias + layer.columns].unflatten(1, (layer.fan_in + 1, layer.columns))

    def _pair(self, tensor: Tensor, actor: Layer, critic: Layer, *, own: bool = False) -> Tensor:
        """A hidden layer of both nets, (P, 2, in + 1, out): a view (own), or in the dtype of the products."""
        shape = (len(tensor), 2, actor.fan_in + 1, actor.columns)
        strides = (tensor.stride(0), critic.weight - actor.weight, actor.columns, 1)
        view = tensor.as_strided(shape, strides, tensor.storage_offset() + actor.weight)
        return view if own else view.to(self.kind)


def _multiply(a: Tensor, b: Tensor, out: Tensor) -> None:
    """Writes the products a b of a batch, sums over many samples, to a view of as many numbers."""
    if len(a) > 2:
        out.copy_(torch.bmm(a, b).view(out.shape))
        return
    for x, y, z in zip(a, b, out.flatten(0, -3), strict=True):  # one by one, cuBLAS splits the sums
        if z.dtype == x.dtype:
            torch.mm(x, y, out=z)
        else:
            z.copy_(torch.mm(x, y))
