"""Trained policies in evaluation: a policy runner computes actions for batches."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.contract import Environment
from cavalcade.core.jit import all_threads
from cavalcade.policy.mlp import MlpSpec
from cavalcade.ppo.engines.cpu.act import choose
from cavalcade.ppo.engines.cpu.blas import single_threaded_blas
from cavalcade.ppo.engines.cpu.network import Inputs, layout_of
from cavalcade.ppo.keys import environment_keys

GREEDY = -1


class PolicyRunner:
    """Acts for a batch with P policies, each with an equal share of the environments.

    weights: (P, D); context: (P, C); shift, scale: (P, O), normalise observations. Actions are greedy or sampled;
    seeds: of the samples, one per policy. mask: computes the action masks (N, A) of a batch, if not its own.
    """

    def __init__(
        self,
        spec: MlpSpec,
        weights: NDArray,
        context: NDArray,
        shift: NDArray,
        scale: NDArray,
        *,
        greedy: bool = True,
        seeds: Sequence[int] | None = None,
        mask: Callable[[Environment], NDArray] | None = None,
    ):
        single_threaded_blas()
        self.spec, self.greedy, self._mask = spec, greedy, mask
        self._weights = np.ascontiguousarray(weights)
        self._inputs = Inputs(*(np.ascontiguousarray(x, self._weights.dtype) for x in (context, shift, scale)))
        self._net = layout_of(spec)
        self._work = np.zeros((all_threads(), self._net.work), self._weights.dtype)
        self._scratch = np.zeros((all_threads(), 3, self._net.padded), self._weights.dtype)
        self._seeds = list(seeds or range(len(weights)))
        self._keys, self._clock = np.zeros(0, np.uint64), 0

    @property
    def policies(self) -> int:
        return len(self._weights)

    def __call__(self, env: Environment) -> NDArray[np.int32]:
        """Actions (P·N,) for the observations in the environment's buffers."""
        if len(self._keys) != env.spec.num_envs:
            self._keys = environment_keys(self._seeds, env.spec.num_envs // self.policies)
        actions = np.zeros(env.spec.num_envs, np.int32)
        mask = self._mask(env) if self._mask else env.buffers.action_mask
        choose(
            self._net, self._weights, self._inputs, env.buffers.observation, mask, self._keys,
            GREEDY if self.greedy else self._clock, self._work, self._scratch, actions,
        )  # fmt: skip
        self._clock += 1
        return actions
