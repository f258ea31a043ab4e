"""PPO back through time: a policy with memory acts in groups of agents, and learns from segments of what it did."""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.config_mettagrid import MettagridTrainConfig
from cavalcade.envs.contract import Environment
from cavalcade.errors import TrainingError
from cavalcade.policy.heads import Choice
from cavalcade.policy.recurrent import TokenPolicy
from cavalcade.policy.tokens import END, TokenLayout
from cavalcade.ppo.advantage import vtrace
from cavalcade.ppo.bptt.draw import draw_actions
from cavalcade.ppo.bptt.experience import Experience, Segments
from cavalcade.ppo.bptt.optimizers import Optimizers
from cavalcade.ppo.bptt.sampling import EachOnce, Sampler
from cavalcade.ppo.bptt.state import BpttState
from cavalcade.ppo.collect import collect
from cavalcade.ppo.extras.extra import Extra
from cavalcade.ppo.fused.gae import gae
from cavalcade.ppo.keys import environment_keys
from cavalcade.ppo.loss import Coefficients, Minibatch, ppo_loss
from cavalcade.ppo.population import Hyper, load_into
from cavalcade.ppo.ranks import ALONE, Ranks
from cavalcade.ppo.returns import discounted_returns
from cavalcade.ppo.rollout import Ended, EpisodeLog
from cavalcade.ppo.threads import few_threads
from cavalcade.ppo.timer import Timer
from cavalcade.ppo.torch_learner import uniform_draws

_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class BpttLearner:
    """One policy that learns in arenas; a row of the environment is an agent."""

    name, policies = "bptt", 1

    def __init__(
        self,
        env: Environment,
        layout: TokenLayout,
        config: MettagridTrainConfig,
        device: torch.device,
        ranks: Ranks = ALONE,
    ):
        c, agents = config.ppo, env.spec.num_envs
        self.env, self.config, self.layout, self.device, self.ranks = env, config, layout, device, ranks
        self.hyper = Hyper.of(c, 1)  # pyright: ignore[reportArgumentType] — the same names
        self.head = Choice(env.buffers.action_mask.shape[1])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            net = config.policy
            made = TokenPolicy(layout, self.head.outputs, encoder=net.encoder, core=net.core, width=net.width)
        self.policy = made.to(device)
        self.state = BpttState.fresh(agents)
        self.experience = Experience(
            agents, c.steps(agents), c.bptt_horizon, layout.tokens, self.head.outputs,
            self.policy.initial_state(1), device, offload=config.machine.offload,
        )  # fmt: skip
        self.optimizers = Optimizers(self.policy, c)
        self.sampler: Sampler = EachOnce(config.seed, agents, self.experience.segments // agents, ranks)
        self.extras: list[Extra] = []
        self.notes: list[str] = []  # what happened and was dealt with, to be told once
        self.timer, self.episodes = Timer(), EpisodeLog(len(env.figure_names))
        self._keys = environment_keys([config.seed], agents, ranks.rank * agents)
        self._memory = self.policy.initial_state(agents)
        self._begins = np.zeros(agents, np.bool_)  # where the next observation is the first of an episode
        self._dropped = 0
        self._here = 0  # segments of the minibatch that are on this rank
        self._pieces = 1  # in which a minibatch is computed
        self._scaler = torch.amp.GradScaler(device.type) if config.machine.precision == "fp16" else None  # pyright: ignore
        self._coefficients = Coefficients(
            *(torch.full((1,), x, device=device) for x in (c.clip, c.value_coef, c.entropy_coef, c.value_clip))
        )
        if config.machine.compile != "off":
            self.policy.encoder = torch.compile(self.policy.encoder, mode=config.machine.compile)  # pyright: ignore

    def set_threads(self, threads: int) -> None:
        """CPU threads of learning."""
        torch.set_num_threads(threads)

    def collect(self) -> Ended:
        """Plays until the experience is full; returns the episodes that ended."""
        self._dropped = 0
        with few_threads() if self.env.elsewhere else nullcontext():
            booked: Any = self.experience.booked
            state: Any = self.state
            collect(self.env, self, booked, state, self.episodes, self.config.ppo.horizon_ends, self.timer)
        return self.episodes.take()

    @torch.no_grad()
    def act(self, t: int, group: slice) -> NDArray:
        """Draws actions for the observations of a group and books them as step t."""
        e = self.experience
        begins = self._begins[group] if t == 0 else e.booked.ended[0, t - 1, group].numpy()
        rows, at = e.rows(t, group)
        tokens = self._store_tokens(rows, at, group)
        memory = tuple(s[:, group] for s in self._memory)
        if begins.any():
            keep = torch.from_numpy(~begins).unsqueeze(-1).to(self.device)
            memory = tuple(s * keep for s in memory)
        if at == 0:
            for stored, s in zip(e.state, memory, strict=True):
                stored[:, rows] = s
        e.begins[rows, at] = begins if at else False  # a segment's first state is forgotten already
        with self._autocast():
            out, after = self.policy(tokens, memory, np.zeros((1, len(begins)), np.bool_))
        for mine, s in zip(self._memory, after, strict=True):
            mine[:, group] = s
        e.value[rows, at] = out.values[0].to(e.value)
        e.mask[rows, at] = torch.from_numpy(self.env.buffers.action_mask[group]).to(e.mask.device)
        return self._draw(out.logits[0].float(), t, group)

    def _draw(self, logits: Tensor, t: int, group: slice) -> NDArray:
        """Actions of a group at counted random numbers, booked with their probabilities."""
        e, allowed = self.experience, self.env.buffers.action_mask[group]
        rows, at = e.rows(t, group)
        clock, count = self.state.clock + t, len(logits)
        if e.action.device.type == self.device.type == "cpu":
            action, log_prob = e.action.numpy()[rows, at], e.log_prob.numpy()[rows, at]
            draw_actions(logits.numpy(), allowed, self._keys, clock, group.start, action, log_prob)
            return action
        draws = np.zeros((count, 1))
        uniform_draws(self._keys, np.array([clock]), group.start, draws)
        mask = torch.from_numpy(allowed).to(self.device)
        action = self.head.sample(logits, mask, torch.from_numpy(draws).to(self.device))
        e.log_prob[rows, at] = self.head.evaluate(logits, mask, action)[0].to(e.log_prob.device)
        e.action[rows, at] = action.to(e.action)
        return action.cpu().numpy()

    def _store_tokens(self, rows: slice, at: int, group: slice) -> Tensor:
        """Keeps what fits of the observations of a group; returns it for the network, (1, n, K, 3)."""
        e, k = self.experience, 3 * self.layout.tokens
        observation = self.env.buffers.observation[group]
        if observation.shape[1] > k:
            self._dropped += int((observation[:, k] != END).sum())
        cut = torch.from_numpy(observation[:, :k]).unflatten(1, (-1, 3))
        if self.device.type == "cuda":
            cut = cut.pin_memory()
        shown = cut.to(self.device, non_blocking=True)
        e.tokens[rows, at] = shown if e.tokens.device == shown.device else cut
        return shown.unsqueeze(0)

    @torch.no_grad()
    def values(self, wanted: NDArray[np.bool_], ended_at: int | None = None) -> NDArray:
        """Values (1, N) of wanted agents: of current observations, or of those that ended episodes in a step."""
        buffers, rows = self.env.buffers, np.flatnonzero(wanted)
        shown = buffers.observation if ended_at is None else buffers.final_observation
        cut = torch.from_numpy(shown[rows, : 3 * self.layout.tokens]).to(self.device)
        memory = tuple(s[:, torch.from_numpy(rows).to(self.device)] for s in self._memory)
        with self._autocast():
            out, _ = self.policy(cut.view(1, len(rows), -1, 3), memory, np.zeros((1, len(rows)), np.bool_))
        found = np.zeros((1, len(wanted)), np.float32)
        found[0, rows] = out.values[0].float().cpu().numpy()
        return found

    def update(self, progress: float) -> dict[str, NDArray]:
        """Advantages, then epochs of minibatches."""
        c, e, s = self.config.ppo, self.experience, self.state
        self.timer.skip()
        self._advantages()
        self._begins[:] = e.booked.ended[0, -1].numpy()
        self.sampler.begin(e.advantage, progress)
        for extra in self.extras:
            extra.begin(e, s.updates, progress)
        self.timer.lap("advantage")
        rate = c.learning_rate * (1 - progress if c.schedule == "linear" else 1)
        sums: dict[str, Any] = {}
        counts: dict[str, int] = {}
        stop = False
        for epoch in range(c.epochs):
            for index, importance in self.sampler.minibatches(s.updates, epoch, c.minibatch_size // c.bptt_horizon):
                metrics = self._minibatch(index, importance, rate)
                for name, value in metrics.items():
                    sums[name] = sums.get(name, 0) + value
                    counts[name] = counts.get(name, 0) + 1
                stop = bool(c.target_kl) and float(metrics["kl"]) > 1.5 * c.target_kl
                if stop:
                    break
            if stop:
                break
        found = {name: value / counts[name] for name, value in sums.items()}
        for extra in self.extras:
            found |= extra.end(self.policy, s.updates)
        s.counters[:, 1] += 1
        read = torch.stack([torch.as_tensor(x, device=self.device).float().view(()) for x in found.values()]).cpu()
        told = {name: read[i : i + 1].double().numpy() for i, name in enumerate(found)}
        self.timer.lap("update")
        reward, dropped = (
            np.array([float(e.booked.reward.mean())]),
            np.array([self._dropped / (e.segments * e.horizon)]),
        )
        self.ranks.sum_(reward, dropped)
        told["reward"] = reward / self.ranks.size  # per agent-step
        told["learning_rate"] = np.array([rate])
        told["tokens_dropped"] = dropped / self.ranks.size
        return told

    def _advantages(self) -> None:
        """Advantages and value targets of all segments, on the host."""
        c, e, s, h = self.config.ppo, self.experience, self.state, self.hyper
        value = e.by_time(e.value.cpu())
        scale = np.ones(1, np.float32)
        b = e.booked
        if c.normalise_returns:
            discounted_returns(self.ranks, b.reward.numpy(), b.ended.numpy(), h.gamma, s)
            scale = (1 / torch.sqrt(s.return_square / s.return_count + 1e-8)).float().numpy()
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

    def _minibatch(self, index: Tensor, importance: Tensor | None, rate: float) -> dict[str, Tensor]:
        """One step of the optimiser; if memory runs out, once, in halves from then on."""
        here = self._here = len(index)
        index = index if here else torch.zeros(1, dtype=torch.int64)  # all are on other ranks: it counts for nothing
        metrics = self._gradient_or_none(index, importance)
        if metrics is None:  # what failed is forgotten by now, with all that it held
            if self._pieces == 1 and len(index) > 1 and self.ranks.size == 1:  # ranks must stay in step
                self._pieces = 2
                size = self.config.ppo.minibatch_size
                self.notes.append(f"out of memory: minibatches of {size:,} are computed in halves from now on")
                metrics = self._gradient_or_none(index, importance)
            if metrics is None:
                size = "half a minibatch" if self._pieces > 1 else "a minibatch"
                raise TrainingError(
                    f"out of memory with {size} of {self.config.ppo.minibatch_size:,}; lower "
                    "--minibatch-size, or --batch-size, or take --offload"
                )
        metrics = self._summed(metrics, here)
        if self._scaler is not None:
            self.optimizers.unscale(self._scaler)
        limit = self.config.ppo.grad_clip
        norm = torch.nn.utils.clip_grad_norm_(self.policy.parameters(), limit or float("inf"))
        if self._scaler is not None:
            skipped = not bool(norm.isfinite())  # too large for half precision: left out, and the scale shrinks
            if not skipped:
                self._step(rate)
            self._scaler.update()
            norm = torch.zeros_like(norm) if skipped else norm
            return metrics | {"grad_norm": norm, "skipped": torch.full_like(norm, float(skipped))}
        self._step(rate)
        return metrics | {"grad_norm": norm}

    def _summed(self, metrics: dict[str, Tensor], here: int) -> dict[str, Tensor]:
        """Gradient and metrics of a minibatch, of which so many segments are here, over all ranks."""
        if self.ranks.size == 1:
            return metrics
        c = self.config.ppo
        share = here * c.bptt_horizon / (c.minibatch_size * self.ranks.size)
        told = torch.stack([value.detach().float().view(()) for value in metrics.values()])
        tensors = [told, *(p.grad for p in self.policy.parameters() if p.grad is not None)]
        for tensor in tensors:
            tensor.mul_(share)
        self.ranks.sum_tensors_(tensors)
        return dict(zip(metrics, told, strict=True))

    def _step(self, rate: float) -> None:
        """Takes the gradient that is there."""
        for extra in self.extras:
            extra.gradient(self.policy, self.state.updates)
        self.optimizers.step(rate, self._scaler)

    def _gradient_or_none(self, index: Tensor, importance: Tensor | None) -> dict[str, Tensor] | None:
        """The gradient of a minibatch and its metrics; nothing if memory ran out."""
        self.policy.zero_grad(set_to_none=True)
        try:
            return self._gradient(index, importance)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not _out_of_memory(error):
                raise
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return None

    def _gradient(self, index: Tensor, importance: Tensor | None) -> dict[str, Tensor]:
        """The gradient of the mean loss over segments, in pieces that need less memory; and its metrics."""
        metrics: dict[str, Any] = {}
        weights = [None] * self._pieces if importance is None else importance.chunk(self._pieces)
        for part, weight in zip(index.chunk(self._pieces), weights, strict=True):
            share = len(part) / len(index)
            loss, found = self._loss(self.experience.take(part), weight)
            loss = loss * share
            (loss if self._scaler is None else self._scaler.scale(loss)).backward()
            for name, value in found.items():
                metrics[name] = metrics.get(name, 0) + share * value
        return metrics

    def _loss(self, batch: Segments, importance: Tensor | None) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean loss of a minibatch, and what it is made of."""
        with self._autocast():
            out, _ = self.policy(batch.tokens, batch.state, batch.begins)
        advantage, returns = batch.advantage, batch.returns
        weight = torch.ones_like(advantage)
        if self.config.ppo.vtrace:
            advantage, returns = self._corrected(batch, out.logits.detach())
        if importance is not None:
            weight = weight * importance.to(self.device)
        sample = Minibatch(
            batch.tokens, batch.mask, batch.action, batch.log_prob, batch.value, advantage, returns, weight
        )
        flat = Minibatch(*(x.flatten(0, 1).unsqueeze(0) for x in sample))
        logits, values = out.logits.float().flatten(0, 1).unsqueeze(0), out.values.float().flatten().unsqueeze(0)
        loss, metrics = ppo_loss(self.head, logits, values, flat, self._coefficients)
        for extra in self.extras:
            more, said = extra.loss(batch, out)
            loss, metrics = loss + more, metrics | said
        return loss.sum(), {name: value.mean() for name, value in metrics.items()}

    @torch.no_grad()
    def _corrected(self, batch: Segments, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Advantages and value targets by V-trace, given what the policy says now; (h, b) each.

        The ratio in the loss of PPO is the weight of the sample itself.
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
        if self.config.ppo.normalise_advantages:
            advantage = self._normalised(advantage)
        return advantage[0], returns[0]

    def _normalised(self, advantage: Tensor) -> Tensor:
        """Advantages of a minibatch to mean 0 and deviation 1, over all ranks."""
        if self.ranks.size == 1:
            return (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        flat = advantage.reshape(1, -1).cpu().numpy()
        self.ranks.normalise(flat if self._here else flat[:, :0])
        return torch.from_numpy(flat).to(self.device).view_as(advantage)

    def _autocast(self) -> Any:
        kind = _TYPES[self.config.machine.precision]
        return nullcontext() if kind == torch.float32 else torch.autocast(self.device.type, kind)

    def network(self) -> dict[str, Any]:
        """What a checkpoint says of the network."""
        net = self.config.policy
        shape = {"encoder": net.encoder, "core": net.core, "width": net.width, "actions": self.head.outputs}
        return shape | {"features": list(self.layout.features), "tags": self.layout.tags, "tokens": self.layout.tokens}

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What a checkpoint holds: the weights by name, and everything else that learning changes."""
        rest = self.state.tensors() | self.optimizers.tensors()
        if self._scaler is not None:
            rest["loss_scale"] = torch.tensor([self._scaler.get_scale()])
        return self._parameters(), {name: x.detach().cpu() for name, x in rest.items()}

    def load_tensors(self, policy: Mapping[str, Tensor], rest: Mapping[str, Tensor]) -> None:
        """Takes over what a checkpoint holds; nothing changes if it does not fit."""
        load_into(self.state.tensors() | self._parameters(), {**rest, **policy})
        self.optimizers.load(rest)
        if self._scaler is not None and "loss_scale" in rest:
            self._scaler.load_state_dict(self._scaler.state_dict() | {"scale": float(rest["loss_scale"])})

    def _parameters(self) -> dict[str, Tensor]:
        return {name.replace("_orig_mod.", ""): p.detach() for name, p in self.policy.named_parameters()}

    def forget_games(self) -> None:
        """The games in progress are gone: new ones begin."""
        self.state.forget_games()
        self._begins[:] = False
        for s in self._memory:
            s.zero_()


def _out_of_memory(error: Exception) -> bool:
    """Whether memory ran out, on a GPU or on the host."""
    said = isinstance(error, RuntimeError) and "not enough memory" in str(error)
    return said or isinstance(error, torch.OutOfMemoryError | MemoryError)
