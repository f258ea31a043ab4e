"""PPO in plain torch on the CPU: supports every option; the reference for the other engines."""

import itertools
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.config import PPOConfig
from cavalcade.core.contract import Environment
from cavalcade.ppo.advantage import gae, normalise
from cavalcade.ppo.draws import uniform_draws
from cavalcade.ppo.engines.host import HostEngine
from cavalcade.ppo.loss import Minibatch
from cavalcade.ppo.objective import METRICS, Coefficients
from cavalcade.ppo.off_policy import Remembered, off_policy
from cavalcade.ppo.returns import discounted_returns, return_scale
from cavalcade.ppo.rollout import Rollout
from cavalcade.ppo.state import merge_moments, observation_scaling
from cavalcade.ppo.update import accumulate, adam_step, gradient, take


class TorchEngine(HostEngine):
    """A population that is trained by autograd."""

    name = "torch"
    device = torch.device("cpu")  # of the update

    def __init__(self, env: Environment, config: PPOConfig, seeds: Sequence[int], **options: Any):
        super().__init__(env, config, seeds, **options)
        self._context = torch.as_tensor(self.context, dtype=self.dtype)
        h = self.hyper
        coefficients = (h.clip, h.value_coef, h.entropy_coef, h.value_clip)
        self._coefficients = Coefficients(*(self.array(x) for x in coefficients))
        self._grad_clip = self.array(h.grad_clip)
        self._learnt: Any = self.state  # weights and moments where updates are computed
        self._gradient = torch.zeros_like(self.state.weights)
        self._replay: deque[Remembered] = deque(maxlen=config.replay)
        self._final = torch.zeros(0)
        self._out_of_time = torch.zeros(0)
        self._torch_threads = 1
        self.refresh()

    def set_threads(self, threads: int) -> None:
        super().set_threads(threads)
        self._torch_threads = max(self._torch_threads, torch.get_num_threads())  # as chosen before the first change
        torch.set_num_threads(min(threads, self._torch_threads))

    def refresh(self) -> None:
        shift, scale = observation_scaling(self.state, self.config.normalise_observations)
        self._shift, self._scale = (torch.as_tensor(x, dtype=self.dtype).unsqueeze(1) for x in (shift, scale))

    def _forward(self, weights: Tensor, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and values of raw observations (P, b, O)."""
        shift, scale, context = self._inputs(weights.device)
        return self.spec.forward(weights, (observation.to(self.dtype) - shift) * scale, context)

    def _forward_staged(self, weights: Tensor, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and values of the observations of staged samples."""
        return self._forward(weights, observation)

    def _inputs(self, device: torch.device) -> tuple[Tensor, ...]:
        """Shift and scale of observations, and contexts, on a device."""
        return self._shift, self._scale, self._context

    @torch.no_grad()
    def act(self, t: int, group: slice) -> NDArray:
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
        """As in `HostEngine`; also stores final observations for replay."""
        buffers = self.env.buffers
        x = torch.from_numpy(buffers.observation if ended_at is None else buffers.final_observation)
        x = x.view(self.policies, self.config.num_envs, -1)
        if ended_at is not None and self.config.replay:
            late = torch.from_numpy(wanted).view(self.policies, -1)
            self._final[:, ended_at][late] = x[late]
            self._out_of_time[:, ended_at] |= late
        return self._forward(self.state.weights, x)[1].numpy()

    def prepare(self, progress: float | NDArray) -> None:
        """Computes advantages and value targets of this rollout and of replayed ones."""
        samples = self._samples()
        whole = samples[0]
        if len(samples) > 1:
            whole = Minibatch(*(torch.cat(parts, dim=1) for parts in zip(*samples, strict=True)))
        self._whole = self._stage(whole)

    def _stage(self, whole: Minibatch) -> Minibatch:
        """The samples of an update as its gradients take them."""
        return whole

    def minibatches(self, epoch: int) -> Iterator[tuple[Minibatch, float]]:
        """Minibatches, and this rank's share of the samples of each; samples include replayed ones."""
        whole, c, n = self._whole, self.config, self.config.num_envs
        samples = whole.action.shape[1]
        if c.minibatches == 1:
            yield whole, 1 / self.ranks.size
            return
        order, bounds = self.ranks.minibatches(
            self.shuffle_keys, self.state.counters[:, 1].numpy(), epoch, samples // n, n, c.minibatches
        )
        everyone = samples * self.ranks.size // c.minibatches  # samples of a minibatch
        for start, stop in itertools.pairwise(bounds):
            chosen = order[:, start:stop]
            if stop == start:  # all are on other ranks: one sample with a share of 0
                chosen = np.zeros((self.policies, 1), np.int64)
            yield self._take(whole, torch.from_numpy(chosen).to(self.device)), (stop - start) / everyone

    def _take(self, whole: Minibatch, index: Tensor) -> Minibatch:
        """The samples with the given indices, (P, b), of each policy."""
        return take(whole, index)

    def gradient(self, batch: tuple[Minibatch, float], active: Tensor) -> Tensor:
        samples, share = batch
        self._gradient, metrics = accumulate(self._gradients, samples, self.config.grad_accum)
        self.blindfold(self._gradient)
        found = torch.stack([metrics[name] for name in METRICS])
        if self.ranks.size > 1:
            self._gradient.mul_(share)
            found.mul_(share)
        return torch.where(active, found, 0)

    def _gradients(self, batch: Minibatch, share: float) -> tuple[Tensor, dict[str, Tensor]]:
        """The gradient of a share of each policy's loss over a batch, (P, D), and its metrics."""
        return gradient(self.head, self._forward_staged, self._learnt.weights, batch, self._coefficients, share)

    def all_reduce(self, metrics: Tensor) -> None:
        self.ranks.sum_(self._gradient.numpy(), *(row.numpy() for row in metrics))

    def step(self, rates: Tensor, active: Tensor) -> Tensor:
        s = self._learnt
        return adam_step(
            s.weights, self._gradient, s.first_moment, s.second_moment, s.adam_steps, rates, self._grad_clip, active
        )

    def array(self, values: NDArray) -> Tensor:
        return torch.as_tensor(values, dtype=self.dtype, device=self.device)

    def on_host(self, means: Tensor, norms: Tensor) -> tuple[NDArray, NDArray]:
        return means.cpu().numpy(), norms.cpu().numpy()

    def _samples(self) -> list[Minibatch]:
        """The samples of this rollout and of replayed ones."""
        fresh, remembered = self._fresh(), list(self._replay)
        self._remember()
        return [fresh, *(self._replayed(old) for old in remembered)]

    @property
    def late(self) -> tuple[Tensor, Tensor]:
        """With replay: final observations of episodes truncated in this rollout, and where they are valid."""
        return self._final, self._out_of_time

    def _scaled_reward(self, r: Rollout) -> Tensor:
        """Rewards, divided by the running standard deviation of returns if so configured."""
        s = self.state
        if not self.config.normalise_returns:
            return r.reward.to(self.dtype)
        discounted_returns(self.ranks, r.reward.numpy(), r.ended.numpy(), self.hyper.gamma, s)
        return r.reward.to(self.dtype) * self._reward_scale()

    def _reward_scale(self) -> Tensor:
        if not self.config.normalise_returns:
            return torch.ones(self.policies, 1, 1, dtype=self.dtype)
        return return_scale(self.state).to(self.dtype).view(-1, 1, 1)

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
        """Normalises advantages to zero mean, unit standard deviation, over all ranks."""
        if self.ranks.size == 1:
            return normalise(advantage)
        self.ranks.normalise(advantage.numpy().reshape(self.policies, -1))
        return advantage

    @torch.no_grad()
    def _replayed(self, old: Remembered) -> Minibatch:
        """The samples of an earlier rollout: targets by V-trace, each sample weighted by min(1, π / μ)."""
        shape = old.reward.shape
        final = self._forward(self.state.weights, old.final.flatten(1, 2))[1].view(shape) * old.out_of_time
        return self._off_policy(old, final)

    def _off_policy(self, old: Remembered, final: Tensor, vtrace: bool = True) -> Minibatch:
        """Samples of an older policy; final: values of final observations, 0 where there are none, (P, T, N)."""
        reward = old.reward.to(self.dtype) * self._reward_scale()
        terminal = self.config.timeout_is_terminal
        bootstrap = torch.zeros_like(final) if terminal else final
        forward = partial(self._forward, self.state.weights)
        found = off_policy(self.head, forward, old, reward, bootstrap, *self._discounts(), vtrace)
        advantage = self._normalised(found.advantage) if self.config.normalise_advantages else found.advantage
        parts = (old.observation, old.mask, old.action, found.log_prob, found.value, advantage)
        return Minibatch(*(x.flatten(1, 2) for x in (*parts, found.target, found.weight)))

    def memory(self) -> dict[str, Tensor]:
        """The rollouts kept for replay."""
        return {f"replay.{i}.{f.name}": getattr(old, f.name) for i, old in enumerate(self._replay) for f in fields(old)}

    def load_memory(self, saved: Mapping[str, Tensor]) -> None:
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

    def finish(self) -> dict[str, NDArray]:
        """Counts the update, and updates the moments of observations if they are normalised."""
        s = self.state
        if self.config.normalise_observations:
            x = self.rollout.observation.flatten(1, 2).double()
            mean = x.mean(1)
            square = ((x - mean.unsqueeze(1)) ** 2).sum(1)
            count = np.full(self.policies, float(x.shape[1]))
            found = self.ranks.moments(count, mean.numpy(), square.numpy())
            merge_moments(s.observation_count, s.observation_mean, s.observation_square, *found)
        s.counters[:, 1] += 1
        self.refresh()
        return {}
