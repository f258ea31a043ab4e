"""PPO in plain torch: every option, any device; the reference that the fused learner is held to."""

import itertools
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.config import PPOConfig
from cavalcade.envs.contract import Environment
from cavalcade.jit import kernel
from cavalcade.policy.mlp import forward
from cavalcade.ppo.advantage import gae, normalise, vtrace
from cavalcade.ppo.fused.act import draw_target
from cavalcade.ppo.learner import Learner
from cavalcade.ppo.loss import Coefficients, Minibatch
from cavalcade.ppo.population import Hyper, merge_moments, observation_scaling
from cavalcade.ppo.ranks import ALONE, Ranks
from cavalcade.ppo.returns import discounted_returns
from cavalcade.ppo.rollout import Rollout
from cavalcade.ppo.update import adam_step, gradient, take


@kernel
def uniform_draws(keys, clock, start, draws):
    """Uniform numbers of environments from start on, (n, draws); clock: (P,)."""
    n = keys.size // clock.size
    for i in range(draws.shape[0]):
        e = start + i
        for part in range(draws.shape[1]):
            draws[i, part] = draw_target(keys, e, clock[e // n], part)


@dataclass
class Remembered:
    """A rollout of an earlier update, for replay: what happened and how likely it was then; (P, T, N, …)."""

    observation: Tensor
    mask: Tensor
    action: Tensor
    log_prob: Tensor
    reward: Tensor
    ended: Tensor
    final: Tensor  # (P, T, N, O): last observations of episodes that ran out of time …
    out_of_time: Tensor  # … and where there are any
    last: Tensor  # (P, N, O): observation after the last step


class TorchLearner(Learner):
    """Learns by autograd."""

    name = "torch"

    def __init__(
        self,
        env: Environment,
        config: PPOConfig,
        seeds: Sequence[int],
        *,
        hyper: Hyper | None = None,
        context: NDArray | None = None,
        dtype: torch.dtype = torch.float32,
        ranks: Ranks = ALONE,
    ):
        super().__init__(env, config, seeds, hyper=hyper, context=context, dtype=dtype, ranks=ranks)
        self._context = torch.as_tensor(self.context, dtype=dtype)
        h = self.hyper
        coefficients = (h.clip, h.value_coef, h.entropy_coef, h.value_clip)
        self._coefficients = Coefficients(*(torch.as_tensor(x, dtype=dtype) for x in coefficients))
        self._replay: deque[Remembered] = deque(maxlen=config.replay)
        self._final = torch.zeros(0)
        self._out_of_time = torch.zeros(0)
        self.restore()

    def restore(self) -> None:
        """Brings what is derived from the state up to date."""
        shift, scale = observation_scaling(self.state, self.config.normalise_observations)
        self._shift, self._scale = (torch.as_tensor(x, dtype=self.dtype).unsqueeze(1) for x in (shift, scale))

    def _forward(self, weights: Tensor, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and values of raw observations (P, b, O)."""
        x = (observation.to(self.dtype) - self._shift) * self._scale
        return forward(self.spec, weights, x, self._context)

    @torch.no_grad()
    def act(self, t: int, group: slice) -> NDArray:
        """Draws actions at counted random numbers."""
        r, count = self.rollout, group.stop - group.start
        here = group if self.policies == 1 else slice(None)  # environments of each policy
        observation = torch.from_numpy(self.env.buffers.observation[group]).unflatten(0, (self.policies, -1))
        mask = torch.from_numpy(self.env.buffers.action_mask[group]).unflatten(0, (self.policies, -1))
        logits, values = self._forward(self.state.weights, observation)
        draws = np.zeros((count, self.head.draws))
        uniform_draws(self.action_keys, self.state.counters[:, 0].numpy() + t, group.start, draws)
        action = self.head.sample(logits, mask, torch.from_numpy(draws).unflatten(0, (self.policies, -1)))
        r.observation[:, t, here], r.mask[:, t, here] = observation, mask
        r.action[:, t, here] = action.to(r.action.dtype)
        r.log_prob[:, t, here] = self.head.evaluate(logits, mask, action)[0]
        r.value[:, t, here] = values
        if self.config.replay and t == group.start == 0:
            self._final = torch.zeros_like(r.observation)
            self._out_of_time = torch.zeros_like(r.ended)
        return action.flatten(0, 1).numpy()

    @torch.no_grad()
    def values(self, wanted: NDArray[np.bool_], ended_at: int | None = None) -> NDArray:
        """Values of current observations, or of those that ended episodes in a step."""
        buffers = self.env.buffers
        x = torch.from_numpy(buffers.observation if ended_at is None else buffers.final_observation)
        x = x.view(self.policies, self.config.num_envs, -1)
        if ended_at is not None and self.config.replay:
            late = torch.from_numpy(wanted).view(self.policies, -1)
            self._final[:, ended_at][late] = x[late]
            self._out_of_time[:, ended_at] |= late
        return self._forward(self.state.weights, x)[1].numpy()

    def update(self, progress: float | NDArray) -> dict[str, NDArray]:
        """Advantages, then epochs of minibatches; a policy past its KL limit sits out the rest."""
        c, s = self.config, self.state
        self.timer.skip()
        whole = Minibatch(*(torch.cat(parts, dim=1) for parts in zip(*self._samples(), strict=True)))
        self.timer.lap("advantage")
        everyone = whole.action.shape[1] * self.ranks.size // c.minibatches  # samples of a minibatch
        bounds = [0, whole.action.shape[1]]
        rates = self.rates(progress)
        active = torch.ones(self.policies, dtype=torch.bool)
        limit_kl = torch.as_tensor(self.hyper.target_kl, dtype=self.dtype)
        rate, grad_clip = (torch.as_tensor(x, dtype=self.dtype) for x in (rates, self.hyper.grad_clip))
        sums, steps = {}, torch.zeros(self.policies, dtype=self.dtype)
        for epoch in range(c.epochs):
            order = None
            if c.minibatches > 1:
                order, bounds = self._minibatches(whole.action.shape[1], epoch)
            for start, stop in itertools.pairwise(bounds):
                chosen = order if order is None or stop == start else order[:, start:stop]
                if stop == start:  # all are on other ranks: one that counts for nothing
                    chosen = np.zeros((self.policies, 1), np.int64)
                batch = whole if chosen is None else take(whole, torch.from_numpy(chosen))
                grad, metrics = gradient(self.head, self._forward, s.weights, batch, self._coefficients, c.accumulate)
                self._sum(grad, metrics, (stop - start) / everyone)
                metrics = {name: torch.where(active, value, 0) for name, value in metrics.items()}
                steps += active
                active = active & ~((limit_kl > 0) & (metrics["kl"] > 1.5 * limit_kl))
                metrics["grad_norm"] = adam_step(
                    s.weights, grad, s.first_moment, s.second_moment, s.adam_steps, rate, grad_clip, active
                )
                sums = {name: sums.get(name, 0) + value for name, value in metrics.items()}
                if not bool(active.any()):
                    break
            if not bool(active.any()):
                break
        self._finish()
        self.timer.lap("update")
        found = {name: np.asarray((value / steps).numpy(), np.float64) for name, value in sums.items()}
        return found | {"learning_rate": rates}

    def _samples(self) -> list[Minibatch]:
        """What to learn from: this rollout, and earlier ones."""
        fresh, remembered = self._fresh(), list(self._replay)
        self._remember()
        return [fresh, *(self._replayed(old) for old in remembered)]

    @property
    def late(self) -> tuple[Tensor, Tensor]:
        """With replay: last observations of episodes that ran out of time in this rollout, and where there are any."""
        return self._final, self._out_of_time

    def _minibatches(self, samples: int, epoch: int) -> tuple[NDArray, NDArray]:
        """The random order of samples, replayed ones included, and where minibatches begin and end in it."""
        c, n = self.config, self.config.num_envs
        keys, updates = self.shuffle_keys, self.state.counters[:, 1].numpy()
        return self.ranks.minibatches(keys, updates, epoch, samples // n, n, c.minibatches)

    def _sum(self, grad: Tensor, metrics: dict[str, Tensor], share: float) -> None:
        """Sums gradient and metrics of a minibatch over ranks, of which this one has had a share."""
        if self.ranks.size > 1:
            tensors = (grad, *metrics.values())
            for tensor in tensors:
                tensor.mul_(share)
            self.ranks.sum_(*(tensor.numpy() for tensor in tensors))

    def _scaled_reward(self, r: Rollout) -> Tensor:
        """Rewards, divided by the running deviation of returns if so configured."""
        s = self.state
        if not self.config.normalise_returns:
            return r.reward.to(self.dtype)
        discounted_returns(self.ranks, r.reward.numpy(), r.ended.numpy(), self.hyper.gamma, s)
        return r.reward.to(self.dtype) * self._reward_scale()

    def _reward_scale(self) -> Tensor:
        s = self.state
        if not self.config.normalise_returns:
            return torch.ones(self.policies, 1, 1, dtype=self.dtype)
        return (1 / torch.sqrt(s.return_square / s.return_count + 1e-8)).to(self.dtype).view(-1, 1, 1)

    def _discounts(self) -> tuple[Tensor, Tensor]:
        h = self.hyper
        return torch.as_tensor(h.gamma, dtype=self.dtype), torch.as_tensor(h.gamma * h.gae_lambda, dtype=self.dtype)

    def _fresh(self) -> Minibatch:
        """The samples of this rollout, (P, B, …)."""
        r = self.rollout
        reward = self._scaled_reward(r)
        advantage, returns = gae(reward, r.value, r.ended, r.bootstrap, r.last_value, *self._discounts())
        if self.config.normalise_advantages:
            advantage = self._normalised(advantage)
        r.advantage.copy_(advantage)
        r.returns.copy_(returns)
        parts = (r.observation, r.mask, r.action, r.log_prob, r.value, advantage, returns, torch.ones_like(r.value))
        return Minibatch(*(x.flatten(1, 2) for x in parts))

    def _normalised(self, advantage: Tensor) -> Tensor:
        """Advantages to mean 0 and deviation 1, over all ranks."""
        if self.ranks.size == 1:
            return normalise(advantage)
        self.ranks.normalise(advantage.numpy().reshape(self.policies, -1))
        return advantage

    @torch.no_grad()
    def _replayed(self, old: Remembered) -> Minibatch:
        """The samples of an earlier rollout: targets by V-trace, each sample weighed by min(1, π / μ)."""
        shape = old.reward.shape
        flat = old.observation.flatten(1, 2)
        logits, values = self._forward(self.state.weights, flat)
        log_prob, _ = self.head.evaluate(logits, old.mask.flatten(1, 2), old.action.flatten(1, 2))
        log_prob, value = log_prob.view(shape), values.view(shape)
        ratio = (log_prob - old.log_prob).exp()
        final = self._forward(self.state.weights, old.final.flatten(1, 2))[1].view(shape) * old.out_of_time
        bootstrap = torch.zeros_like(final) if self.config.horizon_ends else final
        last = self._forward(self.state.weights, old.last)[1]
        reward = old.reward.to(self.dtype) * self._reward_scale()
        advantage, target = vtrace(reward, value, old.ended, bootstrap, last, *self._discounts(), ratio)
        if self.config.normalise_advantages:
            advantage = self._normalised(advantage)
        weight = ratio.clamp(max=1.0)
        parts = (old.observation, old.mask, old.action, log_prob, value, advantage, target, weight)
        return Minibatch(*(x.flatten(1, 2) for x in parts))

    def memory(self) -> dict[str, Tensor]:
        """The remembered rollouts."""
        return {f"replay.{i}.{f.name}": getattr(old, f.name) for i, old in enumerate(self._replay) for f in fields(old)}

    def load_memory(self, saved: Mapping[str, Tensor]) -> None:
        """Takes over remembered rollouts."""
        self._replay.clear()
        while f"replay.{len(self._replay)}.action" in saved:
            i = len(self._replay)
            self._replay.append(Remembered(**{f.name: saved[f"replay.{i}.{f.name}"] for f in fields(Remembered)}))

    def _remember(self) -> None:
        """Keeps this rollout for replay."""
        if not self.config.replay:
            return
        r = self.rollout
        last = torch.from_numpy(self.env.buffers.observation.copy()).view(self.policies, self.config.num_envs, -1)
        kept = [x.clone() for x in (r.observation, r.mask, r.action, r.log_prob, r.reward, r.ended)]
        self._replay.append(Remembered(*kept, self._final, self._out_of_time, last))  # pyright: ignore

    def _finish(self) -> None:
        """Books the update."""
        s = self.state
        if self.config.normalise_observations:
            x = self.rollout.observation.flatten(1, 2).double()
            mean = x.mean(1)
            square = ((x - mean.unsqueeze(1)) ** 2).sum(1)
            count = np.full(self.policies, float(x.shape[1]))
            found = self.ranks.moments(count, mean.numpy(), square.numpy())
            merge_moments(s.observation_count, s.observation_mean, s.observation_square, *found)
        s.counters[:, 1] += 1
        self.restore()
