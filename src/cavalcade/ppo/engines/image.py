"""PPO in torch for image observations: convolutional networks on bytes, converted per minibatch.

A batch is computed in parts by threads that do not wait for each other in between. The number of parts depends on the
size of the batch alone, so that results are the same on any number of threads.
"""

from functools import partial
from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.core.jit import all_threads
from cavalcade.core.part_threads import PartThreads
from cavalcade.core.threads import fastest, few_threads
from cavalcade.policy.cnn import CnnSpec
from cavalcade.policy.heads import Choice
from cavalcade.ppo.draws import draw_rows
from cavalcade.ppo.engines.choice_loss import loss_gradient
from cavalcade.ppo.engines.cpu.adam import move_part, square_part
from cavalcade.ppo.engines.torch import TorchEngine
from cavalcade.ppo.loss import Minibatch, ppo_loss
from cavalcade.ppo.objective import METRICS, Coefficients

_SAMPLES = 256  # of a gradient that is timed
_ALONE = 128  # samples of a part of a gradient, at least: each part has a gradient of all weights
_LEAST, _MOST = 1e8, 16  # floating-point operations of a part, at least; parts of a batch, at most
_WEIGHTS = 1 << 17  # that a thread takes at once in a step; norms are summed in this order
_LARGE = 1 << 18  # elements of a parameter whose gradient is written in two halves


class ImageEngine(TorchEngine):
    """The torch engine with `CnnSpec` networks; observations are never normalised by running moments."""

    name = "torch, images"
    spec: CnnSpec

    def __init__(self, *arguments: Any, **options: Any):
        self._threads = PartThreads()
        super().__init__(*arguments, **options)

    def set_threads(self, threads: int) -> None:
        """Sets the threads of parts; torch computes each with one."""
        numba.set_num_threads(threads)
        torch.set_num_threads(1)
        self._threads.use(threads)

    def choose_threads(self) -> int:
        """The number of threads beyond which a gradient gets no faster; sets it."""
        n = min(_SAMPLES, self.config.num_envs * self.config.rollout_steps)
        seen = torch.zeros(self.policies, n, self.spec.inputs, dtype=self.rollout.observation.dtype)
        ones, allowed = torch.ones(self.policies, n), torch.ones(self.policies, n, self.head.outputs, dtype=torch.bool)
        action = torch.zeros(self.policies, n, *self.head.parts, dtype=self.rollout.action.dtype)
        batch = self._stage(Minibatch(seen, allowed, action, 0 * ones, 0 * ones, ones, ones, ones))
        return fastest(lambda: self._gradients(batch, 1.0), self.set_threads, all_threads())

    def refresh(self) -> None:
        super().refresh()
        self._prepared: list[dict[str, Tensor]] | None = None

    def update(self, progress: float | NDArray) -> dict[str, NDArray]:
        """As in `TorchEngine`; kernels use one thread, since those of OpenMP would spin beside ours."""
        with few_threads():
            return super().update(progress)

    @torch.no_grad()
    def act(self, t: int, group: slice) -> NDArray:
        """As in `TorchEngine`; one kernel draws the actions of one policy."""
        if self.policies > 1 or self.config.replay or not isinstance(self.head, Choice):
            return super().act(t, group)
        r, buffers = self.rollout, self.env.buffers
        observation, mask = buffers.observation[group], buffers.action_mask[group]
        logits, values = self._forward(self.state.weights, torch.from_numpy(observation)[None])
        action, log_prob = (x[0, t, group].numpy() for x in (r.action, r.log_prob))
        draw_rows(logits[0].numpy(), mask, self.action_keys, self.state.clock + t, group.start, action, log_prob)
        r.observation[0, t, group].numpy()[:] = observation
        r.mask[0, t, group].numpy()[:] = mask
        r.value[0, t, group] = values[0]
        return action

    def _forward(self, weights: Tensor, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Acting prepares the weights once per rollout."""
        if weights is not self.state.weights or torch.is_grad_enabled():
            return self.spec.forward(weights, observation)
        if self._prepared is None:
            self._prepared = self.spec.prepared(weights)
        prepared = self._prepared

        @torch.no_grad()
        def outputs(rows: slice) -> tuple[Tensor, Tensor]:
            return self.spec.forward_prepared(prepared, self.spec.blocks(observation[:, rows]))

        found = self._threads.map(outputs, self._parts(observation.shape[1], self.spec.forward_operations))
        logits, values = zip(*found, strict=True)
        return torch.cat(logits, 1), torch.cat(values, 1)

    def _parts(self, samples: int, operations: int, least: int = 1) -> list[slice]:
        """The parts of a batch, of at least so many samples, by the operations of a sample."""
        count = max(1, min(_MOST, samples // least, int(samples * operations / _LEAST)))
        return [slice(samples * i // count, samples * (i + 1) // count) for i in range(count)]

    def _stage(self, whole: Minibatch) -> Minibatch:
        """Arranges pixels in blocks once instead of in each epoch; bytes all the same."""
        return whole._replace(observation=self.spec.blocks(whole.observation))

    def _take(self, whole: Minibatch, index: Tensor) -> Minibatch:
        """Minibatches of pixels are gathered by all threads."""
        found = super()._take(whole._replace(observation=whole.observation[:, :, :0]), index)
        pixels = torch.empty(*index.shape, *whole.observation.shape[2:], dtype=whole.observation.dtype)

        def gather(rows: slice) -> None:
            for p, which in enumerate(index):
                torch.index_select(whole.observation[p], 0, which[rows], out=pixels[p, rows])

        self._threads.map(gather, self._parts(index.shape[1], self.spec.gradient_operations))
        return found._replace(observation=pixels)

    def _forward_staged(self, weights: Tensor, observation: Tensor) -> tuple[Tensor, Tensor]:
        return self.spec.forward_blocks(weights, observation)

    def _gradients(self, batch: Minibatch, share: float) -> tuple[Tensor, dict[str, Tensor]]:
        """As in `TorchEngine`, computed in parts."""
        total = self._gradient if self.config.grad_accum == 1 else torch.empty_like(self._gradient)
        found = []
        for p, named in enumerate(self.spec.prepared(self._learnt.weights)):
            mine = Minibatch(*(x[p : p + 1] for x in batch))
            coefficients = Coefficients(*(x[p : p + 1] for x in self._coefficients))
            found.append(self._policy_gradient(total[p : p + 1], named, mine, coefficients))
        if share != 1:
            total *= share
        return total, {name: torch.stack([means[i] for means in found]) for i, name in enumerate(METRICS)}

    def _policy_gradient(
        self, total: Tensor, named: dict[str, Tensor], batch: Minibatch, coefficients: Coefficients
    ) -> Tensor:
        """Writes the gradient of one policy, (1, D); returns the metrics, (M,). named: its prepared parameters."""
        names = list(named)

        def forward(rows: slice) -> tuple[list[Tensor], Tensor, Tensor]:
            leaves = [named[name].detach().requires_grad_() for name in names]
            inputs = dict(zip(names, leaves, strict=True))
            return leaves, *self.spec.forward_prepared([inputs], batch.observation[:, rows])

        def backward(made: tuple[list[Tensor], Tensor, Tensor], *upstream: Tensor) -> tuple[Tensor, ...]:
            leaves, logits, values = made
            return torch.autograd.grad((logits, values), leaves, upstream)

        parts = self._parts(batch.action.shape[1], self.spec.gradient_operations, _ALONE)
        passes = self._threads.map(forward, parts)
        logits, values = (torch.cat([made[i].detach() for made in passes], 1) for i in (1, 2))
        means, upstream = self._loss(logits, values, batch, coefficients)
        found = self._threads.map(backward, passes, *([x[:, rows] for rows in parts] for x in upstream))
        rows = [
            (name, [g[part] for g in gradients], to[0, part])
            for (name, to), *gradients in zip(self.spec.parameters(total).items(), *found, strict=True)
            for part in _halves(to[0])
        ]
        self._threads.map(self.spec.write_gradient, *zip(*rows, strict=True))
        return means

    def _loss(
        self, logits: Tensor, values: Tensor, batch: Minibatch, coefficients: Coefficients
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The metrics of one policy's loss, and its gradients with respect to logits and values."""
        if isinstance(self.head, Choice):
            return loss_gradient(logits, values, batch, coefficients)
        outputs = logits.requires_grad_(), values.requires_grad_()
        loss, metrics = ppo_loss(self.head, *outputs, batch, coefficients)
        return torch.cat([metrics[name] for name in METRICS]), torch.autograd.grad(loss.sum(), outputs)

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
        """A compiled step: a pass over millions of weights instead of a dozen, by all threads."""
        s, norms = self.state, np.zeros(self.policies)
        weights, *rest = (x.numpy() for x in (s.weights, self._gradient, s.first_moment, s.second_moment))
        size = weights.shape[1]
        starts = range(0, size, _WEIGHTS)
        stops = [min(start + _WEIGHTS, size) for start in starts]
        for p in np.flatnonzero(active.numpy()).tolist():
            s.adam_steps[p] += 1
            norms[p] = norm = sum(self._threads.map(partial(square_part, rest[0], p), starts, stops)) ** 0.5
            how = int(s.adam_steps[p]), float(rates[p]), float(self.hyper.grad_clip[p]), norm

            def move(start: int, stop: int, p: int = p, how: tuple[Any, ...] = how) -> None:
                move_part(weights, *rest, p, start, stop, *how)

            self._threads.map(move, starts, stops)
        return torch.from_numpy(norms).to(self.dtype)


def _halves(x: Tensor) -> list[slice]:
    """The first axis of a large tensor in two halves, else in one."""
    n = len(x)
    return [slice(0, n // 2), slice(n // 2, n)] if x.numel() >= _LARGE else [slice(0, n)]
