"""A policy runner for any head and network, in plain torch."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cavalcade.core.contract import Environment
from cavalcade.policy.heads import Head
from cavalcade.ppo.draws import uniform_draws
from cavalcade.ppo.keys import environment_keys


class TorchRunner:
    """As `PolicyRunner`, for every head and network."""

    def __init__(
        self,
        head: Head,
        spec: Any,  # `MlpSpec`, `ModuleSpec` or `CnnSpec`
        weights: NDArray,
        context: NDArray,
        shift: NDArray,
        scale: NDArray,
        *,
        greedy: bool = True,
        seeds: Sequence[int] | None = None,
        mask: Callable[[Environment], NDArray] | None = None,
    ):
        self.head, self.spec, self.greedy, self._mask = head, spec, greedy, mask
        self._weights, self._context = torch.from_numpy(weights), torch.from_numpy(context)
        self._shift, self._scale = (torch.from_numpy(x).unsqueeze(1) for x in (shift, scale))
        self._seeds = list(seeds or range(len(weights)))
        self._keys, self._clock = np.zeros(0, np.uint64), 0

    @torch.no_grad()
    def __call__(self, env: Environment) -> NDArray:
        """Actions (P·N, …) for the observations in the environment's buffers."""
        shape, n = (len(self._weights), -1), env.spec.num_envs
        observation = torch.from_numpy(env.buffers.observation).unflatten(0, shape)
        allowed = self._mask(env) if self._mask else env.buffers.action_mask
        mask = torch.from_numpy(allowed).unflatten(0, shape)
        x = observation
        if not self.spec.raw:
            x = ((observation - self._shift) * self._scale).to(self._weights.dtype)
        logits, _ = self.spec.forward(self._weights, x, self._context)
        if self.greedy:
            return self.head.greedy(logits, mask).flatten(0, 1).numpy()
        if len(self._keys) != n:
            self._keys = environment_keys(self._seeds, n // len(self._weights))
        draws = np.zeros((n, self.head.draws))
        uniform_draws(self._keys, np.array([self._clock]), 0, draws)
        self._clock += 1
        return self.head.sample(logits, mask, torch.from_numpy(draws).unflatten(0, shape)).flatten(0, 1).numpy()
