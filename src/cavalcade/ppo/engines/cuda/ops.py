"""The kernels of the CUDA engine as functions with typed arguments; loops over the same rules on the CPU."""

from typing import Any

import torch
from torch import Tensor

from cavalcade.core.launch import Launcher
from cavalcade.ppo.objective import Coefficients

Array = Any  # a NumPy or Numba array in the memory of the device


class Ops(Launcher):
    """One method per kernel. `count`: threads, one per environment or sample. Shapes: see `sample`."""

    def __init__(self, device: torch.device):
        super().__init__(device)
        if self.on_gpu:
            from cavalcade.ppo.engines.cuda import kernels as made
        else:
            from cavalcade.ppo.engines.cuda import loops as made
        self._made: Any = made

    def draw(
        self, count: int, bits: Tensor, actions: int, logits: Tensor, values: Tensor, masks: Tensor, keys: Array,
        clock: Tensor, t: int, chosen: Tensor, action: Tensor, log_prob: Tensor, value: Tensor,
    ) -> None:  # fmt: skip
        """Draws actions and records them as step t."""
        self(self._made.draw, count, bits, actions, logits, values, masks, keys, clock, t, chosen, action, log_prob,
             value)  # fmt: skip

    def greedy(self, count: int, bits: Tensor, actions: int, logits: Tensor, masks: Tensor, chosen: Tensor) -> None:
        """Takes the greedy actions."""
        self(self._made.greedy, count, bits, actions, logits, masks, chosen)

    def record_step(
        self, count: int, reward: Tensor, truncated: Tensor, t: int, end: int, rewards: Tensor, ended: Tensor,
        total: Tensor, finals: Tensor,
    ) -> None:  # fmt: skip
        """Records the results of step t."""
        self(self._made.record_step, count, reward, truncated, t, end, rewards, ended, total, finals)

    def discount(
        self, count: int, rewards: Tensor, ended: Tensor, gamma: Tensor, running: Tensor, totals: Tensor
    ) -> None:
        """Discounted returns so far, of every step."""
        self(self._made.discount, count, rewards, ended, gamma, running, totals)

    def shuffle_key(self, count: int, keys: Array, counter: Tensor, epoch: int, out: Tensor) -> None:
        """A random number per environment: sorting by it shuffles them."""
        self(self._made.shuffle_key, count, keys, counter, epoch, out)

    def loss(
        self, count: int, bits: Tensor, actions: int, c: Coefficients, samples: int, logits: Tensor, values: Tensor,
        order: Tensor, first: int, masks: Tensor, action: Tensor, log_prob: Tensor, value: Tensor, advantage: Tensor,
        returns: Tensor, d_logits: Tensor, d_values: Tensor, terms: Tensor,
    ) -> None:  # fmt: skip
        """The loss of each sample of a minibatch and its derivative with respect to the networks' outputs."""
        self(self._made.loss, count, bits, actions, c, samples, logits, values, order, first, masks, action, log_prob,
             value, advantage, returns, d_logits, d_values, terms)  # fmt: skip

    def gae(
        self, count: int, reward: Tensor, value: Tensor, ended: Tensor, bootstrap: Tensor, last_value: Tensor,
        scale: Tensor, gamma: Tensor, decay: Tensor, advantage: Tensor, returns: Tensor,
    ) -> None:  # fmt: skip
        """Generalised advantage estimation."""
        self(self._made.gae, count, reward, value, ended, bootstrap, last_value, scale, gamma, decay, advantage,
             returns)  # fmt: skip
