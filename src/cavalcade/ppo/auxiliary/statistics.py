"""Statistics of weights and gradients by layer, every N updates."""

import torch
from torch import Tensor, nn

from cavalcade.ppo.engines.recurrent.auxiliary_loss import AuxiliaryLoss


class Statistics(AuxiliaryLoss):
    """Norms of weights and gradients, the standard deviation of gradient norms, and the share of zero gradients."""

    def __init__(self, every: int):
        self._every = every
        self._seen: dict[str, list[Tensor]] = {}
        self._zero: dict[str, Tensor] = {}

    def idle(self, update: int) -> bool:
        return update % self._every != 0

    def gradient(self, model: nn.Module, update: int) -> None:
        """Stores the gradient norms of this minibatch."""
        if self.idle(update):
            return
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                self._seen.setdefault(name, []).append(parameter.grad.norm())
                self._zero[name] = (parameter.grad == 0).float().mean()

    def end(self, model: nn.Module, update: int) -> dict[str, Tensor]:
        """The statistics of an update."""
        found = {}
        for name, parameter in model.named_parameters():
            if name in self._seen:
                norms = torch.stack(self._seen[name])
                found[f"weight_norm/{name}"] = parameter.detach().norm()
                found[f"gradient_norm/{name}"] = norms.mean()
                found[f"gradient_spread/{name}"] = norms.std(correction=0)
                found[f"gradient_zero/{name}"] = self._zero[name]
        self._seen, self._zero = {}, {}
        return found
