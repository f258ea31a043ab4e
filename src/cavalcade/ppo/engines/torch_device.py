"""The torch engine with its update on a GPU, for environments that step on the CPU.

A rollout is collected in pinned memory and copied to the device once per update; gradients and optimiser steps stay
there, and the weights come back at the end. Perceptrons act on the CPU, where a forward pass takes less time than a
launch; convolutions act on the device. On the CPU the same code runs, which is how it is tested.
"""

from collections.abc import Sequence
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.config import PPOConfig
from cavalcade.core.contract import Environment
from cavalcade.ppo.engines.image import ImageEngine
from cavalcade.ppo.engines.torch import TorchEngine
from cavalcade.ppo.loss import Minibatch

_LEARNT = ("weights", "first_moment", "second_moment", "adam_steps")


class TorchDeviceEngine(TorchEngine):
    """A population whose updates are computed on a device."""

    name = "torch, device"
    acts_there = False

    def __init__(
        self, env: Environment, config: PPOConfig, seeds: Sequence[int], *, device: torch.device, **options: Any
    ):
        self.device, self._downloading = device, False
        super().__init__(env, config, seeds, **options)
        if device.type == "cuda":
            for field in fields(self.rollout):
                setattr(self.rollout, field.name, getattr(self.rollout, field.name).pin_memory())

    def refresh(self) -> None:
        """Also uploads what is learnt, unless it was just downloaded."""
        super().refresh()
        if not self._downloading:
            there = {name: getattr(self.state, name).to(self.device, copy=True) for name in _LEARNT}
            self._learnt = SimpleNamespace(**there)
        self._there = tuple(x.to(self.device) for x in (self._shift, self._scale, self._context))

    def _inputs(self, device: torch.device) -> tuple[Tensor, ...]:
        return self._there if device == self._there[0].device else super()._inputs(device)

    def _forward(self, weights: Tensor, observation: Tensor) -> tuple[Tensor, Tensor]:
        if weights is self.state.weights and self.acts_there:
            there = observation.to(self.device, non_blocking=True)
            logits, values = super()._forward(self._learnt.weights, there)
            return logits.cpu(), values.cpu()
        return super()._forward(weights, observation)

    def _stage(self, whole: Minibatch) -> Minibatch:
        """Copies the samples to the device."""
        return super()._stage(Minibatch(*(x.to(self.device, non_blocking=True) for x in whole)))

    def _take(self, whole: Minibatch, index: Tensor) -> Minibatch:
        return TorchEngine._take(self, whole, index)

    def _gradients(self, batch: Minibatch, share: float) -> tuple[Tensor, dict[str, Tensor]]:
        return TorchEngine._gradients(self, batch, share)

    def step(self, rates: Tensor, active: Tensor) -> Tensor:
        return TorchEngine.step(self, rates, active)

    def finish(self) -> dict[str, NDArray]:
        """Also downloads what was learnt."""
        for name in _LEARNT:
            getattr(self.state, name).copy_(getattr(self._learnt, name))
        self._downloading = True
        try:
            return super().finish()
        finally:
            self._downloading = False


class ImageDeviceEngine(TorchDeviceEngine, ImageEngine):
    """The same for images; it also acts on the device."""

    name = "torch, images, device"
    acts_there = True
