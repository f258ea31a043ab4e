"""A population of multilayer perceptrons: P actors and P critics, weights in one tensor.

Weights are a tensor (P, D): row p holds all of policy p, so that optimisers and norms work on rows and copying a policy
copies a row. `MlpSpec.parameters` gives views by name. Hidden layers are tanh; actor and critic share no weights. Each
policy can have its own constant inputs (`context`), which are appended to the observation.

Shapes: P policies, B samples per policy, O observation values, A actions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cavalcade.core.errors import ConfigError
from cavalcade.policy.weights import weights_from

# Columns of the action layer are padded to a multiple of this, the unit of vector instructions; padding stays zero.
_COLUMNS = 16
NETS = ("actor", "critic")
ACTS_ONLY = "acts_only"  # in the description of a network that was stored without its critic
FIRST_WEIGHT = "actor.0.weight"
_GAINS = {"hidden": 2**0.5, "actor": 0.01, "critic": 1.0}


class Layer(NamedTuple):
    """The position of a layer in a row of weights."""

    name: str  # e.g. actor.0
    fan_in: int
    fan_out: int  # columns in use
    columns: int  # columns stored
    weight: int  # offset of the (fan_in, columns) weights
    bias: int  # offset of the (columns,) biases


@dataclass(frozen=True)
class MlpSpec:
    """Sizes of the networks and the layout of their weights."""

    inputs: int  # O
    actions: int  # A
    hidden: tuple[int, ...] = (64, 64)
    context: int = 0  # constant inputs per policy
    deviations: int = 0  # log standard deviations stored after the layers, for continuous actions
    critic_values: int = 0  # the last values of an observation, which actors do not see: their weights stay 0

    raw: ClassVar[bool] = False  # whether `forward` takes observations as they are, without shift and scale

    def __post_init__(self):
        if not self.hidden or min(self.hidden) < 1:
            raise ConfigError(f"hidden is {self.hidden}; it must be one or more widths of at least 1, e.g. 64,64")

    @property
    def padded_actions(self) -> int:
        return -(-self.actions // _COLUMNS) * _COLUMNS

    def described(self) -> dict[str, Any]:
        """The network as plain data, besides inputs, actions, hidden layers and head."""
        return {"critic_values": self.critic_values} if self.critic_values else {}

    @property
    def unseen(self) -> slice:
        """The weights of actors for values that only critics see."""
        first = self.layers("actor")[0]
        stop = first.weight + self.inputs * first.columns
        return slice(stop - self.critic_values * first.columns, stop)

    def without_critic_values(self, weights: np.ndarray) -> tuple["MlpSpec", np.ndarray]:
        """The same actors for observations without those values; critics say NaN without them."""
        spec = replace(self, inputs=self.inputs - self.critic_values, critic_values=0)
        given = torch.from_numpy(weights)
        named = self.acting(self.parameters(given)) | spec.silent_critic(len(given), given.dtype)
        return spec, weights_from(spec, named, len(given), given.dtype).numpy()

    def acting(self, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Parameters by name without critics and without what actors have for values that they do not see."""
        found = {name: tensor for name, tensor in named.items() if not name.startswith(NETS[1])}
        first = found[FIRST_WEIGHT]
        found[FIRST_WEIGHT] = torch.cat([first[:, : self.inputs - self.critic_values], first[:, self.inputs :]], dim=1)
        return found

    def silent_critic(self, policies: int, dtype: torch.dtype) -> dict[str, Tensor]:
        """Parameters by name of critics that say NaN."""
        named = self.parameters(torch.zeros(policies, self.size, dtype=dtype))
        found = {name: tensor for name, tensor in named.items() if name.startswith(NETS[1])}
        found[f"{NETS[1]}.{len(self.hidden)}.bias"].fill_(torch.nan)
        return found

    def layers(self, net: str) -> list[Layer]:
        return [layer for layer in self._all_layers() if layer.name.startswith(net)]

    @property
    def size(self) -> int:
        """Weights per policy (D)."""
        return self._layers_size + self.deviations

    @property
    def _layers_size(self) -> int:
        last = self._all_layers()[-1]
        return last.bias + last.columns

    def _all_layers(self) -> list[Layer]:
        layers, at = [], 0
        for net, outputs, columns in (("actor", self.actions, self.padded_actions), ("critic", 1, 1)):
            widths = (self.inputs + self.context, *self.hidden, outputs)
            stored = (*widths[:-1], columns)
            for i in range(len(widths) - 1):
                layers.append(
                    Layer(f"{net}.{i}", widths[i], widths[i + 1], stored[i + 1], at, at + widths[i] * stored[i + 1])
                )
                at += (widths[i] + 1) * stored[i + 1]
        return layers

    def parameters(self, weights: Tensor) -> dict[str, Tensor]:
        """Views into (P, D) weights by name: `actor.0.weight` (P, in, out), `actor.0.bias` (P, out) and so on."""
        named = {}
        for layer in self._all_layers():
            stored = weights[:, layer.weight : layer.bias].unflatten(1, (layer.fan_in, layer.columns))
            named[f"{layer.name}.weight"] = stored[..., : layer.fan_out]
            named[f"{layer.name}.bias"] = weights[:, layer.bias : layer.bias + layer.fan_out]
        if self.deviations:
            named["actor.log_deviation"] = weights[:, self._layers_size :]
        return named

    @property
    def title(self) -> str:
        """The network in words, for errors."""
        return f"hidden layers {self.hidden}"

    def initial_weights(self, seeds: list[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """Orthogonal weights and zero biases, (P, D); each policy depends on its own seed only."""
        weights = torch.zeros(len(seeds), self.size, dtype=dtype)
        named = self.parameters(weights)
        first = {seed: seeds.index(seed) for seed in set(seeds)}
        for p, seed in enumerate(seeds):
            if first[seed] < p:
                weights[p] = weights[first[seed]]
                continue
            rng = np.random.Generator(np.random.Philox(key=seed))
            for net in NETS:
                layers = self.layers(net)
                for layer in layers:
                    gain = _GAINS[net if layer is layers[-1] else "hidden"]
                    named[f"{layer.name}.weight"][p] = orthogonal(layer.fan_in, layer.fan_out, gain, rng)
        if self.critic_values:
            weights[:, self.unseen] = 0
        return weights

    @property
    def forward_operations(self) -> int:
        """Floating-point operations of matrix products in a forward pass of actor and critic over one sample."""
        return sum(2 * layer.fan_in * layer.fan_out for layer in self._all_layers())

    @property
    def gradient_operations(self) -> int:
        """Floating-point operations of a forward and a backward pass; inputs need no gradient."""
        inner = sum(2 * layer.fan_in * layer.fan_out for net in NETS for layer in self.layers(net)[1:])
        return 2 * self.forward_operations + inner

    def forward(self, weights: Tensor, observation: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return forward(self, weights, observation, context)


def orthogonal(rows: int, columns: int, gain: float, rng: np.random.Generator) -> Tensor:
    """A matrix with orthogonal rows or columns, whichever are fewer (Saxe et al. 2014)."""
    tall = rng.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(tall)
    q = q * np.sign(np.diag(r))
    return torch.from_numpy(gain * (q if rows >= columns else q.T))


def forward(
    spec: MlpSpec, weights: Tensor, observation: Tensor, context: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Logits (P, B, A) and values (P, B) for observations (P, B, O) and contexts (P, C).

    With continuous actions, D log standard deviations follow the means: (P, B, A + D).
    """
    named = spec.parameters(weights)
    x = observation.to(weights.dtype)
    if spec.context:
        assert context is not None
        x = torch.cat([x, context.to(x.dtype).unsqueeze(1).expand(-1, x.shape[1], -1)], dim=-1)
    outputs = []
    for net in NETS:
        h = x
        layers = spec.layers(net)
        for layer in layers:
            h = torch.baddbmm(named[f"{layer.name}.bias"].unsqueeze(1), h, named[f"{layer.name}.weight"])
            if layer is not layers[-1]:
                h = torch.tanh(h)
        outputs.append(h)
    logits = outputs[0]
    if spec.deviations:
        logits = torch.cat([logits, named["actor.log_deviation"].unsqueeze(1).expand(-1, x.shape[1], -1)], dim=-1)
    return logits, outputs[1].squeeze(-1)
