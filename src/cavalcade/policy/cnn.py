"""Convolutional networks for images: a trunk of convolutions and one dense layer that actor and critic share.

Images of at least 36 × 36 pixels go through the trunk of Mnih et al. (2015), smaller ones through two 3 × 3
convolutions. Weights are stored like those of `policy.mlp`: a row of (P, D) per policy. Pixels stay bytes until a
minibatch is computed; their range is scaled to 0 … 1 by the weights of the first layer. Tensors are channels-last.

Blocks of s × s pixels become channels, s the first stride: a convolution of kernel k and stride s is one of kernel
k / s and stride 1 on blocks. With three channels instead of 48 most of a vector register would be padding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import prod
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 — its usual name
from torch import Tensor

from cavalcade.core.images import ImageLayout
from cavalcade.policy.mlp import orthogonal

_LARGE = 36  # pixels from which the large trunk fits
_GAINS = {"actor": 0.01, "critic": 1.0}  # of other layers: √2


class Convolution(NamedTuple):
    """A convolution without padding, followed by ReLU."""

    channels: int
    kernel: int
    stride: int


_NATURE = (Convolution(32, 8, 4), Convolution(64, 4, 2), Convolution(64, 3, 1))
_SMALL = (Convolution(16, 3, 1), Convolution(32, 3, 2))


@dataclass(frozen=True)
class CnnSpec:
    """Sizes of the networks and the layout of their weights, with the interface of `MlpSpec`."""

    image: ImageLayout
    actions: int  # A
    deviations: int = 0  # log standard deviations, for continuous actions
    features: int = 0  # F, width of the dense layer; 0: 512 for the large trunk, 128 for the small
    half: bool = False  # compute the trunk in bfloat16; weights, actor and critic stay in single precision

    raw: ClassVar[bool] = True
    hidden: ClassVar[tuple[int, ...]] = ()
    context: ClassVar[int] = 0

    @property
    def inputs(self) -> int:
        """Values of an observation (O)."""
        return self.image.size

    @property
    def large(self) -> bool:
        return min(self.image.height, self.image.width) >= _LARGE

    @property
    def convolutions(self) -> tuple[Convolution, ...]:
        return _NATURE if self.large else _SMALL

    @property
    def trunk_names(self) -> list[str]:
        """The layers that actor and critic share."""
        return [*(f"conv.{i}" for i in range(len(self.convolutions))), "dense"]

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each parameter, in the order in which they are stored."""
        found: dict[str, tuple[int, ...]] = {}
        for i, (size, before) in enumerate(zip(self.convolutions, self._inputs_of_layers, strict=False)):
            found[f"conv.{i}.weight"] = (size.channels, before[2], size.kernel, size.kernel)
            found[f"conv.{i}.bias"] = (size.channels,)
        width = self.features or (512 if self.large else 128)
        layers = (("dense", prod(self._inputs_of_layers[-1]), width), ("actor", width, self.actions))
        for name, inputs, outputs in (*layers, ("critic", width, 1)):
            found[f"{name}.weight"], found[f"{name}.bias"] = (outputs, inputs), (outputs,)
        return found | ({"log_deviation": (self.deviations,)} if self.deviations else {})

    @cached_property
    def _inputs_of_layers(self) -> list[tuple[int, int, int]]:
        """Height, width and channels of the input of each convolution, and of the dense layer."""
        h, w = self.image.height, self.image.width
        sizes = [(h, w, self.image.frames * self.image.channels)]
        for one in self.convolutions:
            h, w = ((x - one.kernel) // one.stride + 1 for x in (h, w))
            sizes.append((h, w, one.channels))
        return sizes

    @property
    def size(self) -> int:
        """Weights per policy (D)."""
        return sum(prod(shape) for shape in self.shapes.values())

    def described(self) -> dict[str, Any]:
        """The network as plain data, besides inputs, actions and head."""
        return {"image": asdict(self.image), "features": self.features}

    def parameters(self, weights: Tensor) -> dict[str, Tensor]:
        """Views into (P, D) weights by name, (P, …) each."""
        parts = weights.split([prod(shape) for shape in self.shapes.values()], dim=1)
        return {name: part.unflatten(1, shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}

    @property
    def title(self) -> str:
        """The network in words, for errors."""
        return f"convolutions on {self.image}"

    def initial_weights(self, seeds: list[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """Orthogonal weights and zero biases, (P, D); each policy depends on its own seed only."""
        weights = torch.zeros(len(seeds), self.size, dtype=dtype)
        named = self.parameters(weights)
        for p, seed in enumerate(seeds):
            rng = np.random.Generator(np.random.Philox(key=seed))
            for name, stored in named.items():
                if name.endswith("weight"):
                    rows, columns = len(stored[p]), stored[p].numel() // len(stored[p])
                    made = orthogonal(columns, rows, _GAINS.get(name.split(".")[0], 2**0.5), rng)
                    stored[p] = made.T.reshape(stored[p].shape)
        return weights

    def forward(self, weights: Tensor, observation: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Logits (P, B, A) and values (P, B) for raw observations (P, B, O)."""
        return self.forward_blocks(weights, self.blocks(observation))

    def blocks(self, observation: Tensor) -> Tensor:
        """Pixels of raw observations (…, O) as (…, H / s, W / s, s·s·K·C), of their dtype."""
        image, first = self.image, self.convolutions[0]
        k, s, size = image.frames, first.stride, (image.height, image.width)
        if image.channels_first:
            x = observation.reshape(-1, k, image.channels, *size).permute(0, 3, 4, 1, 2)
        else:
            x = observation.reshape(-1, k, *size, image.channels).permute(0, 2, 3, 1, 4)
        h, w = ((n - first.kernel) // s * s + first.kernel for n in size)  # pixels that the convolution reaches
        x = x[:, :h, :w].unflatten(2, (-1, s)).unflatten(1, (-1, s)).transpose(2, 3)  # (B, H / s, W / s, s, s, K, C)
        return x.contiguous().flatten(3).unflatten(0, observation.shape[:-1])

    def forward_blocks(self, weights: Tensor, blocks: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (P, B, A) and values (P, B) for the blocks of observations (P, B, H / s, W / s, s·s·K·C)."""
        return self.forward_prepared(self.prepared(weights), blocks)

    def prepared(self, weights: Tensor) -> list[dict[str, Tensor]]:
        """The parameters of each policy, by name, as layers take them (`prepare`)."""
        named = self.parameters(weights)
        return [prepare(self, {name: x[p] for name, x in named.items()}) for p in range(len(weights))]

    def write_gradient(self, name: str, parts: Sequence[Tensor], to: Tensor) -> None:
        """Writes the gradient of a parameter of one policy: the sum of those of its prepared form."""
        if name == f"{self.trunk_names[0]}.weight":
            parts = [_from_blocks(x, self.convolutions[0].stride) for x in parts]
        to.copy_(parts[0])
        for more in parts[1:]:
            to.add_(more)
        if name == f"{self.trunk_names[0]}.weight":
            to.div_(self.image.high - self.image.low)

    def forward_prepared(self, prepared: list[dict[str, Tensor]], blocks: Tensor) -> tuple[Tensor, Tensor]:
        """As `forward_blocks`, with parameters that were prepared before."""
        logits, values = zip(*(self._outputs(w, x) for w, x in zip(prepared, blocks, strict=True)), strict=True)
        return (torch.stack(logits), torch.stack(values)) if len(prepared) > 1 else (logits[0][None], values[0][None])

    def outputs(self, w: Mapping[str, Tensor], observation: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (B, A) and values (B,) of one policy for raw observations (B, O); w: its parameters by name."""
        return self._outputs(prepare(self, w), self.blocks(observation))

    def _outputs(self, w: Mapping[str, Tensor], blocks: Tensor) -> tuple[Tensor, Tensor]:
        x = trunk(self, w, blocks).to(w["actor.weight"].dtype)
        logits, value = (
            F.linear(x, w["actor.weight"], w["actor.bias"]),
            F.linear(x, w["critic.weight"], w["critic.bias"]),
        )
        if self.deviations:
            logits = torch.cat([logits, w["log_deviation"].expand(len(x), -1)], dim=-1)
        return logits, value.squeeze(-1)

    @property
    def _operations(self) -> list[int]:
        """Floating-point operations per sample of each layer."""
        after = self._inputs_of_layers[1:]
        matrices = [prod(shape) for name, shape in self.shapes.items() if name.endswith("weight")]
        places = [h * w for h, w, _ in after] + [1] * (len(matrices) - len(after))
        return [2 * n * at for n, at in zip(matrices, places, strict=True)]

    @cached_property
    def forward_operations(self) -> int:
        """Floating-point operations of a forward pass over one sample."""
        return sum(self._operations)

    @cached_property
    def gradient_operations(self) -> int:
        """Floating-point operations of a forward and a backward pass; pixels need no gradient."""
        return 3 * self.forward_operations - self._operations[0]


def prepare(spec: CnnSpec, w: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters of one policy as layers take them: the trunk's in its precision, the first kernel on blocks."""
    dtype, enter = torch.bfloat16 if spec.half else w["dense.weight"].dtype, spec.trunk_names[0]
    kernel = _on_blocks(w[f"{enter}.weight"] / (spec.image.high - spec.image.low), spec.convolutions[0].stride)
    found = {**w, f"{enter}.weight": kernel}
    inner = {f"{name}.{part}" for name in spec.trunk_names for part in ("weight", "bias")}
    return {name: x.to(dtype) if name in inner else x for name, x in found.items()}


def trunk(spec: CnnSpec, w: Mapping[str, Tensor], blocks: Tensor) -> Tensor:
    """Features (B, F) of the blocks of observations (B, H / s, W / s, s·s·K·C); w: prepared parameters."""
    enter, *inner, dense = spec.trunk_names
    pixels = blocks.to(w[f"{dense}.weight"].dtype, copy=True).permute(0, 3, 1, 2)
    if spec.image.low:
        pixels.sub_(spec.image.low)
    x = F.conv2d(pixels, w[f"{enter}.weight"], w[f"{enter}.bias"]).relu_()
    for name, size in zip(inner, spec.convolutions[1:], strict=True):
        x = F.conv2d(x, w[f"{name}.weight"], w[f"{name}.bias"], size.stride).relu_()
    x = x.permute(0, 2, 3, 1).flatten(1)
    return F.linear(x, w[f"{dense}.weight"], w[f"{dense}.bias"]).relu_()


def _on_blocks(weight: Tensor, stride: int) -> Tensor:
    """Weights (O, C, k, k) of a convolution of stride s as (O, s·s·C, k / s, k / s), of one of stride 1 on blocks."""
    return weight.unflatten(3, (-1, stride)).unflatten(2, (-1, stride)).permute(0, 3, 5, 1, 2, 4).flatten(1, 3)


def _from_blocks(weight: Tensor, stride: int) -> Tensor:
    """The inverse of `_on_blocks`."""
    apart = weight.unflatten(1, (stride, stride, -1))  # (O, s, s, C, k / s, k / s)
    return apart.permute(0, 3, 4, 1, 5, 2).flatten(4, 5).flatten(2, 3)
