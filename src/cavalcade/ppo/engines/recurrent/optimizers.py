"""Optimisers of the recurrent engine, saved and loaded as plain tensors."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from cavalcade.config.recurrent import RecurrentPPOConfig
from cavalcade.core.errors import StateError

_EPSILON = 1e-5


class Optimizers:
    """One optimiser, or two that share the parameters: Muon for matrices of hidden layers, AdamW for the rest."""

    def __init__(self, model: nn.Module, config: RecurrentPPOConfig):
        named = dict(model.named_parameters())
        hidden = [n for n, p in named.items() if config.optimizer == "muon" and p.dim() == 2 and _is_hidden(n)]
        rest = [n for n in named if n not in hidden]
        self._names = [rest, hidden] if hidden else [rest]
        parameters = [named[name] for name in rest]
        options: dict[str, Any] = {"lr": config.learning_rate, "eps": _EPSILON, "fused": True}
        self.recordable = parameters[0].is_cuda and not hidden
        """Whether a step can be recorded in a CUDA graph; then the learning rate is a tensor."""
        if self.recordable:
            options |= {"lr": torch.tensor(config.learning_rate, device=parameters[0].device), "capturable": True}
        if config.optimizer == "adam":
            self._all: list[torch.optim.Optimizer] = [torch.optim.Adam(parameters, **options)]
        else:
            self._all = [torch.optim.AdamW(parameters, weight_decay=config.weight_decay, **options)]
        if hidden:
            matrices = [named[name] for name in hidden]
            self._all.append(
                torch.optim.Muon(
                    matrices,
                    lr=config.learning_rate,
                    weight_decay=config.weight_decay,
                    adjust_lr_fn="match_rms_adamw",  # so that one learning rate fits both
                )
            )

    def set_rate(self, rate: float) -> None:
        """Sets the learning rate."""
        for one in self._all:
            for group in one.param_groups:
                if isinstance(group["lr"], Tensor):
                    group["lr"].fill_(rate)
                else:
                    group["lr"] = rate

    def step(self, scaler: "torch.amp.GradScaler | None" = None) -> None:  # pyright: ignore
        """Steps all optimisers."""
        for one in self._all:
            if scaler is None:
                one.step()
            else:
                scaler.step(one)

    def unscale(self, scaler: "torch.amp.GradScaler") -> None:  # pyright: ignore
        """Divides the gradients by the loss scale."""
        for one in self._all:
            scaler.unscale_(one)

    def tensors(self) -> dict[str, Tensor]:
        """The state of the optimisers by parameter name, `optimizer.<parameter>.<key>`."""
        found = {}
        for one, names in zip(self._all, self._names, strict=True):
            held = [p for group in one.param_groups for p in group["params"]]
            for name, parameter in zip(names, held, strict=True):
                for key, value in one.state.get(parameter, {}).items():
                    found[f"optimizer.{name}.{key}"] = torch.as_tensor(value)
        return found

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Loads the tensors of `tensors`."""
        for one, names in zip(self._all, self._names, strict=True):
            held = [p for group in one.param_groups for p in group["params"]]
            for name, parameter in zip(names, held, strict=True):
                prefix = f"optimizer.{name}."
                mine = {k.removeprefix(prefix): v for k, v in saved.items() if k.startswith(prefix)}
                for key, value in mine.items():
                    if value.dim() and value.shape != parameter.shape:
                        raise StateError(f"{prefix}{key} of the checkpoint is {tuple(value.shape)}")
                one.state[parameter] = {
                    key: value.to(parameter.device if value.dim() or one.defaults.get("fused") else "cpu", copy=True)
                    for key, value in mine.items()
                }


def _is_hidden(name: str) -> bool:
    """Whether a matrix is a hidden layer, not an embedding table or an output layer."""
    return not name.startswith(("actor", "critic")) and not any(
        word in name for word in ("table", "embedding", "query")
    )
