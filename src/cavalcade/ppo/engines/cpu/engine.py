"""PPO in compiled kernels: the cpu engine, with or without deduplication of observations."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from cavalcade.config import PPOConfig
from cavalcade.core.contract import Environment
from cavalcade.core.errors import ConfigError
from cavalcade.core.jit import all_threads
from cavalcade.ppo import gae
from cavalcade.ppo.engines.cpu import act, adam
from cavalcade.ppo.engines.cpu.blas import single_threaded_blas
from cavalcade.ppo.engines.cpu.gradient import gradients
from cavalcade.ppo.engines.cpu.network import Inputs, layout_of
from cavalcade.ppo.engines.cpu.reduction import DistinctRows, SampleRows
from cavalcade.ppo.engines.cpu.rows import find_and_evaluate
from cavalcade.ppo.engines.host import HostEngine
from cavalcade.ppo.objective import METRICS, Coefficients
from cavalcade.ppo.returns import discounted_returns, return_scale
from cavalcade.ppo.state import merge_moments, observation_scaling

_PARTS = 8  # of the gradient of a small population: enough for threads, few enough to sum


class CpuEngine(HostEngine):
    """A population that is trained by compiled kernels on CPU threads.

    With `distinct`, each distinct observation is computed once while the weights stay the same, and samples that share
    observation, mask and action are one term of the loss (C1: equal to the plain loss up to rounding). `parts`: number
    of partial sums of a policy's gradient, 0 for enough to keep threads busy; a fixed number makes a policy's weights
    identical to the bit in a population of any size.
    """

    name = "cpu"

    def __init__(
        self,
        env: Environment,
        config: PPOConfig,
        seeds: Sequence[int],
        *,
        distinct: bool = False,
        parts: int = 0,
        **options: Any,
    ):
        if why := why_not(env, config, distinct):
            raise ConfigError(why)
        single_threaded_blas()
        super().__init__(env, config, seeds, distinct=distinct, **options)
        self._real = real = np.dtype(str(self.dtype).removeprefix("torch."))
        self._net = layout_of(self.spec)
        threads, parts, everyone = all_threads(), parts or max(1, _PARTS // self.policies), env.spec.num_envs
        self._work = np.zeros((threads, self._net.work), real)
        self._scratch = np.zeros((threads, 3, self._net.padded), real)
        self._parts = np.zeros((self.policies, parts, self.spec.size), real)
        self._metrics = np.zeros((self.policies, parts, len(METRICS)))
        self._gradient = np.zeros((self.policies, self.spec.size), real)
        self._piece = np.zeros_like(self._gradient)
        self._norms = np.zeros(self.policies)
        self._actions, self._rows = np.zeros(everyone, np.int32), np.zeros(everyone, np.int32)
        self._values = np.zeros(everyone, real)
        self._weights, self._counters = self.state.weights.numpy(), self.state.counters.numpy()
        self._store = act.Store(*(getattr(self.rollout, name).numpy() for name in act.Store._fields))
        self._acting = np.ones(everyone, np.bool_)  # environments of the group that acts
        self._order = np.tile(np.arange(config.num_envs * config.rollout_steps), (self.policies, 1))
        h = self.hyper
        self._coefficients = Coefficients(
            *(x.astype(real) for x in (h.clip, h.value_coef, h.entropy_coef, h.value_clip))
        )
        self._distinct = (
            DistinctRows(env, env.packed, self.rollout, self._net, real) if distinct and env.packed else None
        )
        self._reduction = self._distinct or SampleRows(self.rollout, real)
        self.refresh()

    def refresh(self) -> None:
        shift, scale = observation_scaling(self.state, self.config.normalise_observations)
        self._inputs = Inputs(*(np.ascontiguousarray(x, self._real) for x in (self.context, shift, scale)))
        if self._distinct:
            self._distinct.forget()

    def act(self, t: int, group: slice) -> NDArray:
        x, mask, packed = self.env.buffers.observation, self.env.buffers.action_mask, self.env.packed
        clock = self._counters[:, 0] + t
        if self._distinct and packed:
            self._distinct.make_room(self.config.num_envs)
            if len(self.env.groups) > 1:
                self._acting[:] = False
                self._acting[group] = True
            act.act_by_rows(
                self._net, self._distinct.table, self._weights, self._inputs, packed.observation, x, mask,
                packed.action_mask, self.action_keys, clock, self._work, self._scratch, self._acting,
                self._rows, self._actions, self._store, t,
            )  # fmt: skip
        else:
            act.act_plain(
                self._net, self._weights, self._inputs, x, mask, self.action_keys, clock, self._work,
                self._scratch, self._actions, self._store, t, *self._range(group),
            )  # fmt: skip
        return self._actions[group]

    def _range(self, group: slice) -> tuple[int, int]:
        """The environments of each policy in a group, as start and stop."""
        return (group.start, group.stop) if self.policies == 1 else (0, self.config.num_envs)

    def values(self, wanted: NDArray[np.bool_], ended_at: int | None = None) -> NDArray:
        buffers, packed, final = self.env.buffers, self.env.packed, ended_at is not None
        x = buffers.final_observation if final else buffers.observation
        if self._distinct and packed:
            self._distinct.make_room(self.config.num_envs)
            find_and_evaluate(
                self._net, self._distinct.table, self._weights, self._inputs,
                packed.final_observation if final else packed.observation, x, self._work, wanted, self._rows,
            )  # fmt: skip
            found = np.where(wanted, self._rows, 0).reshape(self.policies, -1)
            return np.take_along_axis(self._distinct.table.value, found, axis=1)
        act.values_plain(self._net, self._weights, self._inputs, x, wanted, self._work, self._values)
        return self._values.reshape(self.policies, -1)

    def prepare(self, progress: float | NDArray) -> None:
        """Computes advantages and value targets, and groups samples by distinct observation."""
        self._advantages()
        self._reduction.begin()

    def minibatches(self, epoch: int) -> Iterator[tuple[NDArray, int, int]]:
        """The order of samples (P, B), and start and stop of each minibatch in it."""
        c, order, bounds = self.config, self._order, (0, self._order.shape[1])
        if c.minibatches > 1:
            order, bounds = self.ranks.minibatches(
                self.shuffle_keys, self._counters[:, 1], epoch, c.rollout_steps, c.num_envs, c.minibatches
            )
        for start, stop in itertools.pairwise(bounds):
            yield order, start, stop

    def array(self, values: NDArray) -> NDArray:
        return values

    def on_host(self, means: NDArray, norms: NDArray) -> tuple[NDArray, NDArray]:
        return means, norms

    def _advantages(self) -> None:
        """GAE on scaled rewards."""
        r, h, s, real = self.rollout, self.hyper, self.state, self._real
        reward, ended = r.reward.numpy(), r.ended.numpy()
        scale = np.ones(self.policies)
        if self.config.normalise_returns:
            discounted_returns(self.ranks, reward, ended, h.gamma, s)
            scale = return_scale(s).numpy()
        gae.gae(
            reward, r.value.numpy(), ended, r.bootstrap.numpy(), r.last_value.numpy(), scale.astype(real),
            h.gamma.astype(real), (h.gamma * h.gae_lambda).astype(real), r.advantage.numpy(), r.returns.numpy(),
        )  # fmt: skip
        if self.config.normalise_advantages:
            self.ranks.normalise(r.advantage.numpy().reshape(self.policies, -1))

    def gradient(self, batch: tuple[NDArray, int, int], active: NDArray[np.bool_]) -> NDArray:
        """Writes this rank's part of the gradient of the minibatch's mean loss to `_gradient`; metrics (M, P)."""
        order, start, stop = batch
        c, pieces, size = self.config, self.config.grad_accum, stop - start
        total = np.full(self.policies, c.num_envs * c.rollout_steps * self.ranks.size // c.minibatches)
        metrics = np.zeros((self.policies, len(METRICS)))
        for piece in range(pieces):
            self._reduction.take(order, start + piece * size // pieces, start + (piece + 1) * size // pieces)
            gradients(
                self._net, self._reduction.batch, self._coefficients, total, self._weights, self._inputs, active,
                self._work, self._scratch, self._parts, self._metrics, self._piece,
            )  # fmt: skip
            if piece:
                self._gradient += self._piece
            else:
                self._gradient, self._piece = self._piece, self._gradient
            metrics += self._metrics[:, 0]
        self.blindfold(self._gradient)
        return metrics.T

    def all_reduce(self, metrics: NDArray) -> None:
        self.ranks.sum_(self._gradient, metrics)

    def step(self, rates: NDArray, active: NDArray[np.bool_]) -> NDArray:
        """Adam."""
        s = self.state
        self._norms[:] = 0
        adam.adam_step(
            self._weights, self._gradient, s.first_moment.numpy(), s.second_moment.numpy(), s.adam_steps.numpy(),
            rates, self.hyper.grad_clip, active, self._norms,
        )  # fmt: skip
        return self._norms

    def finish(self) -> dict[str, NDArray]:
        """Counts the update, updates the moments of observations if they are normalised, and clears cached outputs."""
        found = {}
        if self._distinct:
            found["distinct_observations"] = self._distinct.table.count / self._order.shape[1]
        if self.config.normalise_observations:
            s = self.state
            moments = self.ranks.moments(*self._observation_moments())
            merge_moments(s.observation_count, s.observation_mean, s.observation_square, *moments)
        self._counters[:, 1] += 1
        self.refresh()
        return found

    def _observation_moments(self) -> tuple[NDArray, NDArray, NDArray]:
        """Count, mean and sum of squared deviations of the rollout's observations, per policy."""
        samples = self._order.shape[1]
        if self._distinct:
            self._distinct.take(np.tile(np.arange(samples), (self.policies, 1)), 0, samples)
            x, n = self._distinct.table.x, self._distinct.batch.row_n
            x, n = x[:, : int(self._distinct.table.count.max())].astype(np.float64), n.astype(np.float64)
            n = n[:, : x.shape[1]]
            n = np.where(np.arange(x.shape[1]) < self._distinct.table.count[:, None], n, 0)
        else:
            x = self.rollout.observation.numpy().reshape(self.policies, samples, -1).astype(np.float64)
            n = np.ones((self.policies, samples))
        mean = np.einsum("pn,pno->po", n, x) / samples
        square = np.einsum("pn,pno->po", n, (x - mean[:, None]) ** 2)
        return np.full(self.policies, float(samples)), mean, square


def why_not(env: Environment, config: PPOConfig, distinct: bool) -> str | None:
    """Why the cpu engine does not support these settings, or None."""
    if config.replay:
        return f"replay is {config.replay}; the cpu engine does not support it, use --engine torch or --replay 0"
    if not isinstance(env.spec.action_space, Discrete):
        return f"actions are {env.spec.action_space}; the cpu engine needs Discrete, use --engine torch"
    if distinct and env.packed is None:
        return f"observations of {env.spec.name} are not packed; deduplication needs that, use --dedup off"
    if distinct and config.value_clip:
        return (
            f"value_clip is {config.value_clip}; deduplication does not support it, use --dedup off or --value-clip 0"
        )
    return None
