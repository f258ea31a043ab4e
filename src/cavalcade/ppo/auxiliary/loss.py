"""Where an extra may take part in an update."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from cavalcade.policy.recurrent import Output
    from cavalcade.ppo.bptt.experience import Experience, Segments


class Extra:
    """Does nothing: an extra overrides what it needs."""

    def begin(self, experience: Experience, update: int, progress: float) -> None:
        """An update begins; progress: the share of the run that is done."""

    def loss(self, batch: Segments, out: Output) -> tuple[Tensor, dict[str, Tensor]]:
        """What is added to the loss of a minibatch, and metrics."""
        return torch.zeros((), device=out.values.device), {}

    def gradient(self, model: nn.Module, update: int) -> None:
        """The gradient of a minibatch is there, clipped."""

    def end(self, model: nn.Module, update: int) -> dict[str, Tensor]:
        """An update ends; metrics of it."""
        return {}
