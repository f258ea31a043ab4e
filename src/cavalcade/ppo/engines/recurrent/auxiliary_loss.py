"""The base class of auxiliary losses: hooks into an update."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from cavalcade.policy.recurrent import Output
    from cavalcade.ppo.engines.recurrent.experience import Experience, Segments


class AuxiliaryLoss:
    """All hooks do nothing by default; a subclass overrides those it needs."""

    def idle(self, update: int) -> bool:
        """Whether `loss` and `gradient` do nothing in an update."""
        return False

    def begin(self, experience: Experience, update: int, progress: float) -> None:
        """Called before an update; progress: the completed share of the run."""

    def loss(self, batch: Segments, out: Output) -> tuple[Tensor, dict[str, Tensor]]:
        """A term to add to the loss of a minibatch, and metrics."""
        return torch.zeros((), device=out.values.device), {}

    def gradient(self, model: nn.Module, update: int) -> None:
        """Called with the clipped gradient of a minibatch in the model's parameters."""

    def end(self, model: nn.Module, update: int) -> dict[str, Tensor]:
        """Called after an update; returns metrics."""
        return {}
