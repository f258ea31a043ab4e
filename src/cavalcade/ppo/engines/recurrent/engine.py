"""PPO with backpropagation through time: a recurrent policy acts for groups of agents and learns from segments."""

import math
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.config.recurrent import MachineConfig, RecurrentPPOConfig
from cavalcade.core.contract import Environment
from cavalcade.core.device import matmul_precision
from cavalcade.core.errors import ConfigError, TrainingError, out_of_memory
from cavalcade.core.threads import few_threads
from cavalcade.policy.heads import Choice
from cavalcade.policy.recurrent import RecurrentNetwork
from cavalcade.policy.tokens import END
from cavalcade.ppo.advantage import vtrace
from cavalcade.ppo.algorithm import learning_rates
from cavalcade.ppo.collect import collect
from cavalcade.ppo.distributed import ALONE, Ranks
from cavalcade.ppo.draws import uniform_draws
from cavalcade.ppo.engine import Engine, head_of
from cavalcade.ppo.engines.choice_loss import choice_loss, loss_gradient
from cavalcade.ppo.engines.recurrent.auxiliary_loss import AuxiliaryLoss
from cavalcade.ppo.engines.recurrent.draw import Seen, Stored, store_and_draw
from cavalcade.ppo.engines.recurrent.experience import Experience, Segments
from cavalcade.ppo.engines.recurrent.means import RunningMeans
from cavalcade.ppo.engines.recurrent.optimizers import Optimizers
from cavalcade.ppo.engines.recurrent.sampling import EachOnce, Sampler
from cavalcade.ppo.engines.recurrent.state import RecurrentState
from cavalcade.ppo.gae import gae
from cavalcade.ppo.keys import environment_keys
from cavalcade.ppo.loss import Minibatch, ppo_loss
from cavalcade.ppo.objective import METRICS, Coefficients
from cavalcade.ppo.returns import discounted_returns, return_scale
from cavalcade.ppo.rollout import EpisodeLog, Episodes
from cavalcade.ppo.state import HyperParams, load_into

_HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


class RecurrentEngine(Engine):
    """Trains one recurrent policy; a row of the environment is an agent."""

    name = "recurrent"
    config: RecurrentPPOConfig
    state: RecurrentState

    def __init__(
        self,
        env: Environment,
        policy: RecurrentNetwork,
        config: RecurrentPPOConfig,
        *,
        machine: MachineConfig,
        device: torch.device,
        seed: int = 0,
        ranks: Ranks = ALONE,
    ):
        agents = env.spec.num_envs
        super().__init__(env, HyperParams.of(config, 1), 1, ranks)
        self.config, self.layout, self.device = config, policy.layout, device
        self._precision = machine.precision
        if self._precision == "tf32" and device.type != "cuda":
            raise ConfigError("precision is tf32, which needs a GPU; take fp32 or bf16")
        self.head = head_of(env)
        self._fused_loss = device.type == "cpu" and machine.compile == "off" and isinstance(self.head, Choice)
        self.policy = policy.to(device)
        self.state = self.fresh_state(agents)
        self.experience = Experience(
            agents, config.steps(agents), config.bptt_horizon, self.layout, self.head, self.policy.initial_state(1),
            device, masks=env.buffers.action_mask.shape[1], offload=machine.offload,
        )  # fmt: skip
        self.optimizers = Optimizers(self.policy, config)
        self.sampler: Sampler = EachOnce(seed, agents, self.experience.segments // agents, ranks)
        self.auxiliary: list[AuxiliaryLoss] = []
        self.episodes = EpisodeLog(len(env.episode_stat_names))
        self._keys = environment_keys([seed], agents, ranks.rank * agents)
        self._memory = self.policy.initial_state(agents)
        self._begins = np.zeros(agents, np.bool_)  # True where the next observation is the first of an episode
        self._dropped = 0
        self._here = 0  # segments of the current minibatch on this rank
        self._pieces = config.grad_accum  # per minibatch; twice as many after memory ran out
        self._means = RunningMeans()  # of auxiliary metrics …
        self._more: dict[str, Tensor] = {}  # … of the latest minibatch
        self._read: dict[str, NDArray] = {}  # … and of the update, on the host
        self._scaler = torch.amp.GradScaler(device.type) if machine.precision == "fp16" else None  # pyright: ignore
        self._coefficients = Coefficients(
            *(torch.full((1,), x, device=device)
              for x in (config.clip, config.value_coef, config.entropy_coef, config.value_clip))
        )  # fmt: skip
        self._ppo_loss: Any = ppo_loss
        if machine.compile != "off":
            self.policy.compile(mode=machine.compile)
            self._ppo_loss = torch.compile(ppo_loss, mode=machine.compile)

    def fresh_state(self, agents: int) -> RecurrentState:
        """The state before the first update."""
        return RecurrentState.fresh(agents)

    def set_threads(self, threads: int) -> None:
        torch.set_num_threads(threads)
        if not self.env.out_of_process:
            numba.set_num_threads(threads)

    def collect(self) -> Episodes:
        self._dropped = 0
        terminal = self.config.timeout_is_terminal
        with few_threads() if self.env.out_of_process else nullcontext(), self.policy.fixed():
            collect(self.env, self, self.experience.results, self.state, self.episodes, terminal, self.timer)
        return self.episodes.take()

    @torch.no_grad()
    def act(self, t: int, group: slice) -> NDArray:
        e = self.experience
        begins = self._begins[group] if t == 0 else e.results.ended[0, t - 1, group].numpy()
        rows, at = e.rows(t, group)
        memory = tuple(s[:, group] for s in self._memory)
        if begins.any():
            keep = torch.from_numpy(~begins).unsqueeze(-1).to(self.device)
            memory = tuple(s * keep for s in memory)
        if at == 0:
            for stored, s in zip(e.state, memory, strict=True):
                stored[:, rows] = s
        shown = self._shown(group).to(self.device)
        with self._autocast():
            out, after = self.policy(shown.unsqueeze(0), memory, np.zeros((1, len(begins)), np.bool_))
        for mine, s in zip(self._memory, after, strict=True):
            mine[:, group] = s
        logits, value = out.logits[0].float(), out.values[0].float()
        if e.action.device.type == self.device.type == "cpu" and isinstance(self.head, Choice):
            return self._store_and_draw(t, group, logits.numpy(), value.numpy(), begins)
        return self._store_and_sample(t, group, shown, logits, value, begins)

    def _store_and_draw(self, t: int, group: slice, logits: NDArray, value: NDArray, begins: NDArray) -> NDArray:
        """Stores a step of a group and samples its actions, in one kernel."""
        e, b = self.experience, self.env.buffers
        rows, at = e.rows(t, group)
        seen = Seen(b.observation[group], b.action_mask[group], begins, value)
        stored = Stored(e.observation.flatten(2).numpy(), e.mask.numpy(), e.begins, e.value.numpy())
        action, log_prob = e.action.numpy()[rows, at], e.log_prob.numpy()[rows, at]
        cut, clock = np.zeros(numba.get_num_threads(), np.int64), self.state.clock + t
        store_and_draw(cut, logits, seen, self._keys, clock, group.start, stored, rows.start, at, action, log_prob)
        self._dropped += int(cut.sum())
        return action

    def _store_and_sample(
        self, t: int, group: slice, shown: Tensor, logits: Tensor, value: Tensor, begins: NDArray
    ) -> NDArray:
        """As `_store_and_draw`, for any head and device."""
        e, allowed = self.experience, self.env.buffers.action_mask[group]
        rows, at = e.rows(t, group)
        self._count_dropped(self.env.buffers.observation[group])
        e.observation[rows, at] = shown.to(e.observation.device)
        e.mask[rows, at] = torch.from_numpy(allowed).to(e.mask.device)
        e.begins[rows, at] = begins if at else False  # the stored state at a segment's start is already reset
        e.value[rows, at] = value.to(e.value)
        draws = np.zeros((len(logits), self.head.draws))
        uniform_draws(self._keys, np.array([self.state.clock + t]), group.start, draws)
        mask = torch.from_numpy(allowed).to(self.device)
        action = self.head.sample(logits, mask, torch.from_numpy(draws).to(self.device))
        e.log_prob[rows, at] = self.head.evaluate(logits, mask, action)[0].to(e.log_prob.device)
        e.action[rows, at] = action.to(e.action)
        return action.cpu().numpy()

    def _shown(self, group: slice) -> Tensor:
        """The observations of a group as the network sees them, on the host."""
        return self.layout.cut(torch.from_numpy(self.env.buffers.observation[group]))

    def _count_dropped(self, observation: NDArray) -> None:
        """Counts observations (…, O) with more tokens than are kept."""
        size = math.prod(self.layout.shape)
        if observation.shape[-1] > size:
            self._dropped += int((observation[..., size] != END).sum())

    @torch.no_grad()
    def values(self, wanted: NDArray[np.bool_], ended_at: int | None = None) -> NDArray:
        buffers, rows = self.env.buffers, np.flatnonzero(wanted)
        shown = buffers.observation if ended_at is None else buffers.final_observation
        cut = self.layout.cut(torch.from_numpy(shown[rows])).to(self.device)
        memory = tuple(s[:, torch.from_numpy(rows).to(self.device)] for s in self._memory)
        with self._autocast():
            out, _ = self.policy(cut.unsqueeze(0), memory, np.zeros((1, len(rows)), np.bool_))
        found = np.zeros((1, len(wanted)), np.float32)
        found[0, rows] = out.values[0].float().cpu().numpy()
        return found

    def prepare(self, progress: float | NDArray) -> None:
        """Computes advantages and value targets of all segments; begins the update of sampler and auxiliary losses."""
        share, e = float(np.max(progress)), self.experience
        self.optimizers.set_rate(float(learning_rates(self, share)[0]))
        self._advantages()
        self._begins[:] = e.results.ended[0, -1].cpu().numpy()
        self.sampler.begin(e.advantage, share)
        for loss in self.auxiliary:
            loss.begin(e, self.state.updates, share)
        self._means = RunningMeans()

    def minibatches(self, epoch: int) -> list[tuple[Tensor, Tensor | None]]:
        """Segments and their importance weights."""
        size = self.config.minibatch_size // self.config.bptt_horizon
        return self.sampler.minibatches(self.state.updates, epoch, size)

    def array(self, values: NDArray) -> Tensor:
        return torch.as_tensor(np.asarray(values, np.float32), device=self.device)

    def on_host(self, means: Tensor, norms: Tensor) -> tuple[NDArray, NDArray]:
        """Reads all metrics in one transfer; those of auxiliary losses are kept for `finish`."""
        for loss in self.auxiliary:
            self._means.add(loss.end(self.policy, self.state.updates))
        more = self._means.values()
        flat = torch.cat([means[:, 0], norms, *(x.view(1).to(self.device) for x in more.values())]).cpu().double()
        count = len(METRICS)
        self._read = {name: flat[count + 1 + i : count + 2 + i].numpy() for i, name in enumerate(more)}
        return flat[:count, None].numpy(), flat[count : count + 1].numpy()

    def finish(self) -> dict[str, NDArray]:
        """Counts the update; returns metrics of auxiliary losses, the reward per agent step and `tokens_dropped`.

        `tokens_dropped` is the fraction of observations with more than K tokens.
        """
        e = self.experience
        self.state.counters[:, 1] += 1
        reward, dropped = (
            np.array([float(e.results.reward.mean())]),
            np.array([self._dropped / (e.segments * e.horizon)]),
        )
        self.ranks.sum_(reward, dropped)
        size = self.ranks.size
        return self._read | {"reward": reward / size, "tokens_dropped": dropped / size}

    def _advantages(self) -> None:
        """Computes advantages and value targets of all segments, on the host."""
        c, e, s, h = self.config, self.experience, self.state, self.hyper
        value = e.by_time(e.value.cpu())
        scale = np.ones(1, np.float32)
        b = e.results
        if c.normalise_returns:
            self._count_returns()
            scale = return_scale(s).float().numpy()
        e.scale = float(scale[0])
        advantage, returns = torch.empty_like(value), torch.empty_like(value)
        gamma, decay = (x.astype(np.float32) for x in (h.gamma, h.gamma * h.gae_lambda))
        arrays = (x.numpy() for x in (b.reward, value, b.ended, b.bootstrap, b.last_value))
        gae(*arrays, scale, gamma, decay, advantage.numpy(), returns.numpy())
        if c.vtrace:
            self._segments = tuple(e.by_segment(x) for x in (e.scale * b.reward, b.ended, b.bootstrap))
            self._after = torch.cat([value[0, e.horizon :: e.horizon], b.last_value]).flatten()  # (S·N,)
        if c.normalise_advantages:
            self.ranks.normalise(advantage.view(1, -1).numpy())
        e.advantage.copy_(e.by_segment(advantage))
        e.returns.copy_(e.by_segment(returns))

    def _count_returns(self) -> None:
        """Adds the rollout to the running moments of returns."""
        b = self.experience.results
        discounted_returns(self.ranks, b.reward.numpy(), b.ended.numpy(), self.hyper.gamma, self.state)

    def gradient(self, batch: tuple[Tensor, Tensor | None], active: Tensor) -> Tensor:
        """Backpropagation through time; metrics (M, 1). If memory runs out, minibatches are halved from then on."""
        index, importance = batch
        self._here = len(index)
        if not self._here:  # all are on other ranks: one segment with a share of 0
            index = torch.zeros(1, dtype=torch.int64)
        metrics = self._gradient_or_none(index, importance)
        if metrics is None:  # the failed attempt and its tensors are freed by now
            size, most = self.config.minibatch_size, 2 * self.config.grad_accum
            if self._pieces < most <= len(index) and self.ranks.size == 1:  # ranks must stay in step
                self._pieces = most
                self.notes.append(f"out of memory: minibatches of {size:,} are computed in {most} pieces from now on")
                metrics = self._gradient_or_none(index, importance)
            if metrics is None:
                raise TrainingError(
                    f"out of memory with minibatches of {size:,} in {self._pieces} pieces; take more of them with "
                    "--grad-accum, lower --minibatch-size or --batch-size, or take --offload"
                )
        self._more = {name: metrics.pop(name) for name in list(metrics) if name not in METRICS}
        found = torch.stack([metrics[name].detach().float().view(1) for name in METRICS])
        if self.ranks.size == 1:
            self._means.add(self._more)
        return found

    def all_reduce(self, metrics: Tensor) -> None:
        """All-reduces gradient and metrics, weighted by each rank's share of the minibatch's segments."""
        c = self.config
        share = self._here * c.bptt_horizon / (c.minibatch_size * self.ranks.size)
        more = [x.detach().float().view(1) for x in self._more.values()]
        found = torch.cat([metrics[:, 0], *more])
        tensors = [found, *(p.grad for p in self.policy.parameters() if p.grad is not None)]
        for tensor in tensors:
            tensor.mul_(share)
        self.ranks.sum_tensors_(tensors)
        metrics[:, 0] = found[: len(METRICS)]
        self._means.add(dict(zip(self._more, found[len(METRICS) :], strict=True)))

    def step(self, rates: Tensor, active: Tensor) -> Tensor:
        """Clips the gradient and steps the optimiser; with fp16, skips steps whose gradient overflowed."""
        if self._scaler is not None:
            self.optimizers.unscale(self._scaler)
        norm = torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.config.grad_clip or float("inf"))
        skipped = self._scaler is not None and not bool(norm.isfinite())
        if not skipped:
            for loss in self.auxiliary:
                loss.gradient(self.policy, self.state.updates)
            self.optimizers.step(self._scaler)
        if self._scaler is not None:
            self._scaler.update()
            norm = torch.zeros_like(norm) if skipped else norm
            self._means.add({"skipped": torch.full_like(norm, float(skipped))})
        return norm.view(1)

    def _gradient_or_none(self, index: Tensor, importance: Tensor | None) -> dict[str, Tensor] | None:
        """Computes the gradient of a minibatch; returns its metrics, or None if memory ran out."""
        self.policy.zero_grad(set_to_none=True)
        try:
            return self._gradient(index, importance)
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return None

    def _gradient(self, index: Tensor, importance: Tensor | None) -> dict[str, Tensor]:
        """Computes the gradient of the mean loss over segments, accumulated over pieces; returns its metrics."""
        metrics: dict[str, Any] = {}
        parts = index.chunk(self._pieces)
        weights = [None] * len(parts) if importance is None else importance.chunk(self._pieces)
        direct = self._direct()
        for part, weight in zip(parts, weights, strict=True):
            share = len(part) / len(index)
            if direct:
                found = self._backpropagate(part, weight, share)
            else:
                loss, found = self._loss(self.experience.take(part), weight)
                loss = loss * share
                with matmul_precision(tf32=self._precision == "tf32"):
                    (loss if self._scaler is None else self._scaler.scale(loss)).backward()
            for name, value in found.items():
                metrics[name] = metrics.get(name, 0) + share * value
        return metrics

    def _loss(self, batch: Segments, importance: Tensor | None) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean loss of a minibatch, and its metrics."""
        with self._autocast():
            out, _ = self.policy(batch.observation, batch.state, batch.begins)
        sample = self._samples(batch, out.logits.detach(), importance)
        if self._fused_loss:
            loss, metrics = choice_loss(out.logits.float(), out.values.float(), sample, self._coefficients)
        else:
            flat = Minibatch(*(x.flatten(0, 1).unsqueeze(0) for x in sample))
            logits, values = out.logits.float().flatten(0, 1).unsqueeze(0), out.values.float().flatten().unsqueeze(0)
            loss, metrics = self._ppo_loss(self.head, logits, values, flat, self._coefficients)
        for auxiliary in self.auxiliary:
            more, said = auxiliary.loss(batch, out)
            loss, metrics = loss + more, metrics | said
        return loss.sum(), {name: value.mean() for name, value in metrics.items()}

    def _samples(self, batch: Segments, logits: Tensor, importance: Tensor | None) -> Minibatch:
        """The samples of a minibatch; logits: those of the current policy."""
        advantage, returns = batch.advantage, batch.returns
        weight = torch.ones_like(advantage)
        if self.config.vtrace:
            advantage, returns = self._corrected(batch, logits)
        if importance is not None:
            weight = weight * importance.to(self.device)
        return Minibatch(
            batch.observation, batch.mask, batch.action, batch.log_prob, batch.value, advantage, returns, weight
        )

    def _direct(self) -> bool:
        """Whether gradients are computed without torch's graph: compiled policy and loss, and nothing else."""
        plain = self._fused_loss and self._precision == "fp32" and self.policy.direct
        return plain and all(loss.idle(self.state.updates) for loss in self.auxiliary)

    def _backpropagate(self, index: Tensor, importance: Tensor | None, share: float) -> dict[str, Tensor]:
        """Adds the gradient of a share of `_loss` to the policy's; returns its metrics."""
        e, found = self.experience, {}
        batch = e.take(index, without_observations=True)

        def loss(logits: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            samples = self._samples(batch, logits, importance)
            means, gradients = loss_gradient(logits, values, samples, self._coefficients)
            found.update(zip(METRICS, means, strict=True))
            return gradients if share == 1 else (share * gradients[0], share * gradients[1])

        self.policy.backpropagate(e.observation, index, batch.state, batch.begins, loss)
        return found

    @torch.no_grad()
    def _corrected(self, batch: Segments, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Advantages and value targets by V-trace with the current policy; (h, b) each.

        Samples need no importance weights: PPO's probability ratio is that weight.
        """
        log_prob, _ = self.head.evaluate(logits.float(), batch.mask, batch.action)
        ratio = (log_prob - batch.log_prob).exp()
        h, index = self.hyper, batch.index.cpu()
        reward, ended, bootstrap = (x[index].to(self.device).T.unsqueeze(0) for x in self._segments)
        gamma = torch.tensor(h.gamma, dtype=torch.float32, device=self.device)
        decay = torch.tensor(h.gamma * h.gae_lambda, dtype=torch.float32, device=self.device)
        after = self._after[index].to(self.device).unsqueeze(0)
        advantage, returns = vtrace(
            reward, batch.value.unsqueeze(0), ended, bootstrap, after, gamma, decay, ratio.unsqueeze(0)
        )
        if self.config.normalise_advantages:
            advantage = self._normalised(advantage)
        return advantage[0], returns[0]

    def _normalised(self, advantage: Tensor) -> Tensor:
        """Normalises the advantages of a minibatch to zero mean, unit standard deviation, over all ranks."""
        if self.ranks.size == 1:
            return (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        flat = advantage.reshape(1, -1).cpu().numpy()
        self.ranks.normalise(flat if self._here else flat[:, :0])
        return torch.from_numpy(flat).to(self.device).view_as(advantage)

    def operations(self, share: float) -> float:
        """Floating-point operations of matrix products per environment step; all samples are computed."""
        return (1 + 3 * self.config.epochs) * self.policy.forward_operations

    def _autocast(self) -> Any:
        if self._precision in _HALF:
            return torch.autocast(self.device.type, _HALF[self._precision])
        return matmul_precision(tf32=self._precision == "tf32")

    def network(self) -> dict[str, Any]:
        return self.policy.described()

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        rest = self.state.tensors() | self.optimizers.tensors()
        if self._scaler is not None:
            rest["loss_scale"] = torch.tensor([self._scaler.get_scale()])
        if self.env.resumable:
            rest |= self._games()
        return self._parameters(), {name: x.detach().cpu() for name, x in rest.items()}

    def load_tensors(self, policy: Mapping[str, Tensor], rest: Mapping[str, Tensor]) -> None:
        games = self._games() if self.env.resumable else {}
        load_into(self.state.tensors() | games | self._parameters(), {**rest, **policy})
        self.optimizers.load(rest)
        if self._scaler is not None and "loss_scale" in rest:
            self._scaler.load_state_dict(self._scaler.state_dict() | {"scale": float(rest["loss_scale"])})

    def _games(self) -> dict[str, Tensor]:
        """Recurrent states of games in progress, and where the next observation is the first of an episode."""
        memory = {f"memory.{i}": s for i, s in enumerate(self._memory)}
        return memory | {"begins": torch.from_numpy(self._begins)}

    def _parameters(self) -> dict[str, Tensor]:
        return {name: p.detach() for name, p in self.policy.named_parameters()}

    def forget_games(self) -> None:
        """Clears recurrent states and the statistics of episodes in progress."""
        self.state.forget_games()
        self._begins[:] = False
        for s in self._memory:
            s.zero_()
