"""PPO in torch for image observations: convolutional networks on bytes, converted per minibatch."""

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.core.jit import all_threads
from cavalcade.core.threads import fastest
from cavalcade.ppo.engines.cpu.adam import adam_step
from cavalcade.ppo.engines.torch import TorchEngine
from cavalcade.ppo.loss import Minibatch

_SAMPLES = 64  # of a gradient that is timed


class ImageEngine(TorchEngine):
    """The torch engine with `CnnSpec` networks; observations are never normalised by running moments."""

    name = "torch, images"

    def set_threads(self, threads: int) -> None:
        """Leaves torch's threads alone: gradients of convolutions are summed over them, so results depend on them."""
        numba.set_num_threads(threads)

    def choose_threads(self) -> int:
        """The number of threads beyond which a gradient gets no faster; sets it."""
        n = min(_SAMPLES, self.config.num_envs * self.config.rollout_steps)
        x = torch.zeros(self.policies, n, self.spec.inputs, dtype=self.rollout.observation.dtype)
        w = self.state.weights.detach().clone().requires_grad_()

        def task() -> object:
            logits, values = self._forward(w, x)
            return torch.autograd.grad(logits.sum() + values.sum(), w)

        return fastest(task, torch.set_num_threads, all_threads())

    def refresh(self) -> None:
        super().refresh()
        self._prepared: list[dict[str, Tensor]] | None = None

    def _forward(self, weights: Tensor, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Acting prepares the weights once per rollout."""
        if weights is not self.state.weights or torch.is_grad_enabled():
            return self.spec.forward(weights, observation)
        if self._prepared is None:
            self._prepared = self.spec.prepared(weights)
        return self.spec.forward_prepared(self._prepared, self.spec.blocks(observation))

    def _stage(self, whole: Minibatch) -> Minibatch:
        """Arranges pixels in blocks once instead of in each epoch; bytes all the same."""
        return whole._replace(observation=self.spec.blocks(whole.observation))

    def _forward_staged(self, weights: Tensor, observation: Tensor) -> tuple[Tensor, Tensor]:
        return self.spec.forward_blocks(weights, observation)

    @torch.no_grad()
    def values(self, wanted: NDArray[np.bool_], ended_at: int | None = None) -> NDArray:
        """As in `TorchEngine`; of one policy, only the wanted ones are computed."""
        if self.policies > 1 or self.config.replay:
            return super().values(wanted, ended_at)
        buffers = self.env.buffers
        shown = buffers.observation if ended_at is None else buffers.final_observation
        found = np.zeros((1, len(wanted)), np.float32)
        found[0, wanted] = self._forward(self.state.weights, torch.from_numpy(shown[wanted])[None])[1][0].numpy()
        return found

    def step(self, rates: Tensor, active: Tensor) -> Tensor:
        """A compiled step: a pass over millions of weights instead of a dozen."""
        s, norms = self.state, np.zeros(self.policies)
        rows = (x.numpy() for x in (s.weights, self._gradient, s.first_moment, s.second_moment, s.adam_steps))
        adam_step(*rows, rates.double().numpy(), self.hyper.grad_clip, active.numpy(), norms)
        return torch.from_numpy(norms).to(self.dtype)
