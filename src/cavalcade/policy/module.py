"""A user-defined torch module in place of the perceptrons; needs the torch engine.

`make(observation, outputs)` creates the module from its sizes. It is called with observations (B, O) and returns logits
(B, outputs) and values (B,). Weights are stored like those of `policy.mlp`: a row of (P, D) per policy.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from cavalcade.core.errors import ConfigError

MakeModule = Callable[[int, int], nn.Module]


class ModuleSpec:
    """Sizes of a module and the layout of its weights, with the interface of `MlpSpec`."""

    hidden: tuple[int, ...] = ()
    context = 0
    raw = False

    def __init__(self, make: MakeModule, inputs: int, actions: int, deviations: int = 0):
        self.make, self.inputs, self.actions, self.deviations = make, inputs, actions, deviations
        self._module = self._made(0)
        if any(True for _ in self._module.buffers()):
            raise ConfigError(
                f"network {path_of(make)} has buffers, e.g. of batch normalisation; only weights are kept"
            )
        self._shapes = {name: p.shape for name, p in self._module.named_parameters()}
        self._check_outputs()

    def described(self) -> dict[str, Any]:
        """The network as plain data, besides inputs, actions and head."""
        return {"module": path_of(self.make)}

    @property
    def size(self) -> int:
        """Weights per policy (D)."""
        return sum(shape.numel() for shape in self._shapes.values()) + self.deviations

    def parameters(self, weights: Tensor) -> dict[str, Tensor]:
        """Views into (P, D) weights by name."""
        named, at = {}, 0
        for name, shape in self._shapes.items():
            named[name] = weights[:, at : at + shape.numel()].unflatten(1, shape or (1,))
            at += shape.numel()
        if self.deviations:
            named["log_deviation"] = weights[:, at:]
        return named

    @property
    def title(self) -> str:
        """The network in words, for errors."""
        return f"the network {path_of(self.make)}"

    def initial_weights(self, seeds: list[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """The module's own initial weights, (P, D); each policy depends on its own seed only."""
        weights = torch.zeros(len(seeds), self.size, dtype=dtype)
        for p, seed in enumerate(seeds):
            named = self.parameters(weights[p : p + 1])
            for name, parameter in self._made(seed).named_parameters():
                named[name][0] = parameter.detach()
        return weights

    def forward(self, weights: Tensor, observation: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Logits (P, B, A) and values (P, B) for observations (P, B, O)."""
        named = self.parameters(weights)
        deviation = named.pop("log_deviation", None)
        logits, values = vmap(lambda w, x: functional_call(self._module, w, (x,)))(named, observation.to(weights.dtype))
        if deviation is not None:
            logits = torch.cat([logits, deviation.unsqueeze(1).expand(-1, logits.shape[1], -1)], dim=-1)
        return logits, values

    def _made(self, seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.make(self.inputs, self.actions)

    def _check_outputs(self) -> None:
        found: Any = self._module(torch.zeros(2, self.inputs))
        shapes = [tuple(x.shape) for x in found] if isinstance(found, tuple) else [type(found).__name__]
        if shapes != [(2, self.actions), (2,)]:
            raise ConfigError(
                f"network {path_of(self.make)} returns {shapes} for 2 observations; it must return logits "
                f"(2, {self.actions}) and values (2,)"
            )


def path_of(make: Any) -> str:
    """The import path of a function or class, module:name."""
    return f"{make.__module__}:{make.__qualname__}"
