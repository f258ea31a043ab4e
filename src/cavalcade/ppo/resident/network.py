"""Forward and backward passes of a population of perceptrons, feature by feature: (P, features, samples).

The same networks and weights as `policy.mlp`, with the derivative written out: no graph of operations is kept, every
buffer is where it was in the last pass.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from cavalcade.policy.mlp import NETS, MlpSpec


class Pass(NamedTuple):
    """Activations of one net: inputs of every layer, (P, features, b) each, and the output."""

    inputs: list[Tensor]
    output: Tensor


class Network:
    """Actors and critics; `kind` is the type of products (float32, or bfloat16 with float32 weights)."""

    def __init__(self, spec: MlpSpec, weights: Tensor, kind: torch.dtype = torch.float32):
        self.spec, self.kind = spec, kind
        self._named = spec.parameters(weights)

    def forward(self, net: str, x: Tensor) -> Pass:
        """One of `NETS` over observations (P, O, b)."""
        inputs, h = [], x
        layers = self.spec.layers(net)
        for layer in layers:
            inputs.append(h)
            weight = self._named[f"{layer.name}.weight"].transpose(1, 2).to(self.kind)
            bias = self._named[f"{layer.name}.bias"].unsqueeze(-1).to(self.kind)
            h = torch.baddbmm(bias, weight, h)
            if layer is not layers[-1]:
                h = h.tanh_()
        return Pass(inputs, h)

    def both(self, x: Tensor) -> tuple[Pass, Pass]:
        """Actor and critic."""
        actor, critic = (self.forward(net, x.to(self.kind)) for net in NETS)
        return actor, critic

    def backward(self, net: str, passed: Pass, upstream: Tensor, gradient: dict[str, Tensor]) -> None:
        """Writes the gradient of a net's weights, given that of its output."""
        layers = self.spec.layers(net)
        d = upstream.to(self.kind)
        for layer, x in zip(reversed(layers), reversed(passed.inputs), strict=True):
            gradient[f"{layer.name}.weight"].copy_(torch.bmm(x, d.transpose(1, 2)))
            gradient[f"{layer.name}.bias"].copy_(d.sum(2, dtype=torch.float32))
            if layer is not layers[0]:
                d = torch.bmm(self._named[f"{layer.name}.weight"].to(self.kind), d)
                d = torch.ops.aten.tanh_backward(d, x)
