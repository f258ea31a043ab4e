"""Forward and backward passes of a population of perceptrons, features first: (P, features, samples).

The same networks and weights as `policy.mlp`, with the derivative written out instead of autograd. The inputs of a
layer have a row of ones appended, so that a layer is one matrix product: biases follow the weights in memory.
"""

import torch
from torch import Tensor

from cavalcade.policy.mlp import NETS, Layer, MlpSpec


class Network:
    """Actors and critics for a fixed number of samples; `kind`: dtype of the products, weights stay float32."""

    def __init__(self, spec: MlpSpec, weights: Tensor, samples: int, kind: torch.dtype = torch.float32):
        self.spec, self.kind, self._weights = spec, kind, weights
        policies = len(weights)

        def ones(rows: int) -> Tensor:
            return torch.ones(policies, rows, samples, dtype=kind, device=weights.device)

        self._x = ones(spec.inputs + 1)
        full = kind == torch.float32
        self.x = self._x[:, :-1] if full else self._x[:, :-1].float()  # (P, O, b): write observations here
        layers = {net: spec.layers(net) for net in NETS}
        self._hidden = {net: [ones(layer.fan_out + 1) for layer in layers[net][:-1]] for net in NETS}
        self.output = {net: ones(layers[net][-1].columns) for net in NETS}  # columns in use come first

    def load(self) -> None:
        """Converts the observations written to `x` to the dtype of the products."""
        if self.kind != torch.float32:
            self._x[:, :-1] = self.x

    def _matrix(self, tensor: Tensor, layer: Layer) -> Tensor:
        """Weights and biases of a layer, (P, in + 1, columns), a view."""
        return tensor[:, layer.weight : layer.bias + layer.columns].unflatten(1, (layer.fan_in + 1, layer.columns))

    def forward(self, net: str) -> Tensor:
        """Runs one of `NETS` on the loaded observations; returns its output, (P, out, b)."""
        h = self._x
        outputs = [hidden[:, :-1] for hidden in self._hidden[net]] + [self.output[net]]
        for layer, out, following in zip(self.spec.layers(net), outputs, [*self._hidden[net], None], strict=True):
            weight = self._matrix(self._weights, layer).transpose(1, 2).to(self.kind)
            torch.bmm(weight, h, out=out)
            if following is not None:
                out.tanh_()
                h = following
        return self.output[net]

    def backward(self, net: str, upstream: Tensor, gradient: Tensor) -> None:
        """Writes the gradient of a net's weights, (P, D), given that of its output (upstream)."""
        layers, d = self.spec.layers(net), upstream.to(self.kind)
        inputs = [self._x, *self._hidden[net]]
        for layer, h in zip(reversed(layers), reversed(inputs), strict=True):
            self._matrix(gradient, layer).copy_(torch.bmm(h, d.transpose(1, 2)))
            if layer is not layers[0]:
                weight = self._matrix(self._weights, layer)[:, :-1].to(self.kind)
                d = torch.ops.aten.tanh_backward(torch.bmm(weight, d), h[:, :-1])
