"""Recurrent policies on rows of values or pixels: a perceptron or convolutions, a core, an actor and a critic."""

from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from cavalcade.core.images import ImageLayout
from cavalcade.policy.cnn import CnnSpec, prepare, trunk
from cavalcade.policy.recurrent import Core, RecurrentNetwork


@dataclass(frozen=True)
class RowLayout:
    """Rows as the environment gives them."""

    inputs: int  # O
    dtype: torch.dtype
    image: ImageLayout | None = None  # if convolutions encode them

    @property
    def shape(self) -> tuple[int]:
        """Shape of an observation."""
        return (self.inputs,)

    def cut(self, rows: Tensor) -> Tensor:
        """Rows (n, O) as they are."""
        return rows


class RowEncoder(nn.Module):
    """Hidden tanh layers on normalised values, (h, b, O) → (h, b, H)."""

    shift: Tensor
    scale: Tensor

    def __init__(self, inputs: int, hidden: tuple[int, ...]):
        super().__init__()
        widths = (inputs, *hidden)
        layers = [layer for i in range(len(hidden)) for layer in (nn.Linear(widths[i], widths[i + 1]), nn.Tanh())]
        self.layers = nn.Sequential(*layers)
        self.register_buffer("shift", torch.zeros(inputs), persistent=False)
        self.register_buffer("scale", torch.ones(inputs), persistent=False)

    def forward(self, rows: Tensor) -> Tensor:
        return self.layers((rows.float() - self.shift) * self.scale)


class PixelEncoder(nn.Module):
    """The trunk of `CnnSpec`, (h, b, O) → (h, b, F)."""

    def __init__(self, spec: CnnSpec, seed: int):
        super().__init__()
        self.spec = spec
        made = spec.parameters(spec.initial_weights([seed]))
        self.weights = nn.ParameterDict(
            {
                f"{name}_{part}".replace(".", "_"): nn.Parameter(made[f"{name}.{part}"][0].clone())
                for name in spec.trunk_names
                for part in ("weight", "bias")
            }
        )

    def forward(self, rows: Tensor) -> Tensor:
        w = {f"{n}.{part}": self.weights[f"{n}_{part}".replace(".", "_")]
             for n in self.spec.trunk_names for part in ("weight", "bias")}  # fmt: skip
        found = trunk(self.spec, prepare(self.spec, w), self.spec.blocks(rows.flatten(0, 1)))
        return found.to(w["dense.bias"].dtype).unflatten(0, rows.shape[:2])


class RowPolicy(RecurrentNetwork):
    """A recurrent policy on rows."""

    layout: RowLayout

    def __init__(
        self,
        layout: RowLayout,
        actions: int,
        *,
        core: Core,
        hidden: tuple[int, ...] = (64, 64),
        features: int = 0,
        deviations: int = 0,
        half: bool = False,
    ):
        if layout.image is None:
            encoder, width = RowEncoder(layout.inputs, hidden), hidden[-1]
        else:
            spec = CnnSpec(layout.image, 1, features=features, half=half)
            encoder, width = PixelEncoder(spec, int(torch.randint(2**31, ()))), spec.shapes["dense.bias"][0]
        super().__init__(encoder, actions, core, width, deviations)
        self.layout, self._hidden, self._features, self._deviations = layout, hidden, features, deviations

    def described(self) -> dict[str, Any]:
        image = {} if self.layout.image is None else {"image": asdict(self.layout.image), "features": self._features}
        shape = {"inputs": self.layout.inputs, "dtype": str(self.layout.dtype).removeprefix("torch.")}
        return {**super().described(), **shape, "hidden": list(self._hidden), **image}

    @classmethod
    def from_description(cls, plain: dict[str, Any], deviations: int = 0) -> "RowPolicy":
        """A network with the architecture of a checkpoint."""
        image = plain.get("image")
        if image is not None:
            image = ImageLayout(**image | {"shape": tuple(image["shape"])})
        layout = RowLayout(plain["inputs"], getattr(torch, plain["dtype"]), image)
        given = {"core": plain["core"], "hidden": tuple(plain["hidden"]), "features": plain.get("features", 0)}
        return cls(layout, plain["actions"], deviations=deviations, **given)

    def normalise(self, shift: Tensor, scale: Tensor) -> None:
        """Sets shift and scale of values; pixels are left alone."""
        if isinstance(self.encoder, RowEncoder):
            self.encoder.shift.copy_(shift)
            self.encoder.scale.copy_(scale)

    @property
    def forward_operations(self) -> int:
        """Floating-point operations of matrix products and convolutions in a forward pass over one observation."""
        inner = sum(2 * p.numel() for n, p in self.named_parameters() if p.dim() == 2 and not n.startswith("encoder"))
        if isinstance(self.encoder, PixelEncoder):
            spec = self.encoder.spec
            heads = sum(2 * prod(spec.shapes[f"{name}.weight"]) for name in ("actor", "critic"))
            return inner + spec.forward_operations - heads
        return inner + sum(2 * p.numel() for p in self.encoder.parameters() if p.dim() == 2)
