"""PPO by compiled kernels: the CPU learner, with plain or distinct rows."""

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from cavalcade.config import PPOConfig
from cavalcade.envs.contract import Environment
from cavalcade.errors import ConfigError
from cavalcade.jit import all_threads
from cavalcade.ppo.fused import act, adam, gae
from cavalcade.ppo.fused.blas import single_threaded_blas
from cavalcade.ppo.fused.gradient import METRICS, Coefficients, gradients
from cavalcade.ppo.fused.network import Inputs, layout_of
from cavalcade.ppo.fused.reduction import DistinctRows, PlainRows
from cavalcade.ppo.fused.rows import find_and_evaluate
from cavalcade.ppo.learner import Learner
from cavalcade.ppo.population import Hyper, merge_moments, observation_scaling
from cavalcade.ppo.ranks import ALONE, Ranks
from cavalcade.ppo.returns import discounted_returns

_PARTS = 8  # into which the gradient of a small population is cut: enough for threads, few enough to sum
_KL = METRICS.index("kl")


class FusedLearner(Learner):
    """Learns with compiled kernels on CPU threads.

    With `distinct`, each different observation is computed once while the weights stay the same, and samples that share
    observation, mask and action are one term of the loss (C1: equal to the plain loss up to rounding). `parts`: pieces
    that a policy's gradient is summed up from, 0 for enough to keep threads busy; a fixed number makes a policy's
    weights the same to the bit in a population of any size.
    """

    name = "fused"

    def __init__(
        self,
        env: Environment,
        config: PPOConfig,
        seeds: Sequence[int],
        *,
        hyper: Hyper | None = None,
        context: NDArray | None = None,
        distinct: bool = False,
        dtype: torch.dtype = torch.float32,
        parts: int = 0,
        ranks: Ranks = ALONE,
    ):
        if why := why_not(env, config, distinct):
            raise ConfigError(why)
        single_threaded_blas()
        super().__init__(env, config, seeds, hyper=hyper, context=context, distinct=distinct, dtype=dtype, ranks=ranks)
        self._real = real = np.dtype(str(dtype).removeprefix("torch."))
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
        self._everywhere = np.ones(everyone, np.bool_)
        self._order = np.tile(np.arange(config.num_envs * config.update_steps), (self.policies, 1))
        h = self.hyper
        self._coefficients = Coefficients(
            *(x.astype(real) for x in (h.clip, h.value_coef, h.entropy_coef, h.value_clip))
        )
        self._distinct = (
            DistinctRows(env, env.packed, self.rollout, self._net, real) if distinct and env.packed else None
        )
        self._reduction = self._distinct or PlainRows(self.rollout, real)
        self.restore()

    def restore(self) -> None:
        """Brings what is derived from the state up to date."""
        shift, scale = observation_scaling(self.state, self.config.normalise_observations)
        self._inputs = Inputs(*(np.ascontiguousarray(x, self._real) for x in (self.context, shift, scale)))
        if self._distinct:
            self._distinct.forget()

    def act(self, t: int, group: slice) -> NDArray:
        """Draws actions from the rows of the observations, or by a forward pass."""
        x, mask, packed = self.env.buffers.observation, self.env.buffers.action_mask, self.env.packed
        clock = self._counters[:, 0] + t
        if self._distinct and packed:
            self._distinct.make_room(self.config.num_envs)
            act.act_by_rows(
                self._net, self._distinct.table, self._weights, self._inputs, packed.observation, x, mask,
                packed.action_mask, self.action_keys, clock, self._work, self._scratch, self._everywhere,
                self._rows, self._actions, self._store, t,
            )  # fmt: skip
        else:
            act.act_plain(
                self._net, self._weights, self._inputs, x, mask, self.action_keys, clock, self._work,
                self._scratch, self._actions, self._store, t, *self._range(group),
            )  # fmt: skip
        return self._actions[group]

    def _range(self, group: slice) -> tuple[int, int]:
        """A group as environments of each policy."""
        return (group.start, group.stop) if self.policies == 1 else (0, self.config.num_envs)

    def values(self, wanted: NDArray[np.bool_], ended_at: int | None = None) -> NDArray:
        """Values of current observations, or of those that ended episodes in a step."""
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

    def update(self, progress: float | NDArray) -> dict[str, NDArray]:
        """Advantages, then epochs of minibatches; a policy past its KL limit sits out the rest."""
        c, samples, ranks = self.config, self.config.num_envs * self.config.update_steps, self.ranks
        self.timer.skip()
        self._advantages()
        self.timer.lap("advantage")
        self._reduction.begin()
        rates, active = self.rates(progress), np.ones(self.policies, np.bool_)
        sums, steps = np.zeros((self.policies, len(METRICS) + 1)), np.zeros((self.policies, 1))
        order, bounds = self._order, np.array([0, samples])
        for epoch in range(c.epochs):
            if c.minibatches > 1:
                order, bounds = ranks.minibatches(
                    self.shuffle_keys, self._counters[:, 1], epoch, c.update_steps, c.num_envs, c.minibatches
                )
            for start, stop in itertools.pairwise(bounds):
                metrics = self._minibatch_gradient(order, start, stop, active)
                ranks.sum_(self._gradient, metrics)
                steps[active] += 1
                active &= ~((self.hyper.target_kl > 0) & (metrics[:, _KL] > 1.5 * self.hyper.target_kl))
                self._step(rates, active)
                sums += np.column_stack([metrics, self._norms])
                if not active.any():
                    break
            if not active.any():
                break
        found = dict(zip((*METRICS, "grad_norm"), (sums / steps).T, strict=True)) | {"learning_rate": rates}
        if self._distinct:
            found["distinct_rows"] = self._distinct.table.count / samples
        self._finish()
        self.timer.lap("update")
        return found

    def _advantages(self) -> None:
        """GAE on scaled rewards."""
        r, h, s, real = self.rollout, self.hyper, self.state, self._real
        reward, ended = r.reward.numpy(), r.ended.numpy()
        scale = np.ones(self.policies)
        if self.config.normalise_returns:
            discounted_returns(self.ranks, reward, ended, h.gamma, s)
            scale = 1 / np.sqrt(s.return_square.numpy() / s.return_count.numpy() + 1e-8)
        gae.gae(
            reward, r.value.numpy(), ended, r.bootstrap.numpy(), r.last_value.numpy(), scale.astype(real),
            h.gamma.astype(real), (h.gamma * h.gae_lambda).astype(real), r.advantage.numpy(), r.returns.numpy(),
        )  # fmt: skip
        if self.config.normalise_advantages:
            self.ranks.normalise(r.advantage.numpy().reshape(self.policies, -1))

    def _minibatch_gradient(self, order: NDArray, start: int, stop: int, active: NDArray[np.bool_]) -> NDArray:
        """What samples start … stop − 1 add to the gradient of their minibatch's mean, in `_gradient`; and to metrics.

        Metrics: (P, metrics). A minibatch may have more samples, on other ranks.
        """
        c, pieces, size = self.config, self.config.accumulate, stop - start
        total = np.full(self.policies, c.num_envs * c.update_steps * self.ranks.size // c.minibatches)
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
        return metrics

    def _step(self, rates: NDArray, active: NDArray[np.bool_]) -> None:
        """Adam."""
        s = self.state
        self._norms[:] = 0
        adam.adam_step(
            self._weights, self._gradient, s.first_moment.numpy(), s.second_moment.numpy(), s.adam_steps.numpy(),
            rates, self.hyper.grad_clip, active, self._norms,
        )  # fmt: skip

    def _finish(self) -> None:
        """Books the update: running moments of observations, and nothing remembered of the old weights."""
        if self.config.normalise_observations:
            s = self.state
            found = self.ranks.moments(*self._observation_moments())
            merge_moments(s.observation_count, s.observation_mean, s.observation_square, *found)
        self._counters[:, 1] += 1
        self.restore()

    def _observation_moments(self) -> tuple[NDArray, NDArray, NDArray]:
        """Count, mean and summed squared deviation of the rollout's observations, per policy."""
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
    """What stands against the fused learner with these settings, in words, or nothing."""
    if config.replay:
        return f"replay is {config.replay}; the fused learner has none, use --learner torch or --replay 0"
    if not isinstance(env.spec.action_space, Discrete):
        return f"actions are {env.spec.action_space}; the fused learner draws one of a list, use --learner torch"
    if distinct and env.packed is None:
        return f"the observations of {env.spec.name} are not packed; distinct rows need that, use --rows plain"
    if distinct and config.value_clip:
        return f"value_clip is {config.value_clip}; distinct rows cannot have it, use --rows plain or --value-clip 0"
    return None
