"""PPO on one device: a rollout is one CUDA graph, an update another; the host reads results after each of them.

Everything that varies between updates is in tensors: learning rates, counters, seeds, active policies. A minibatch is a
share of the environments with all their steps, in a random order from counter-based random numbers.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.config.ppo import PPOConfig
from cavalcade.core.contract import Environment
from cavalcade.core.device import matmul_precision
from cavalcade.core.device_games import DeviceGames
from cavalcade.core.errors import ConfigError, TrainingError
from cavalcade.policy.mlp import NETS
from cavalcade.ppo.algorithm import learning_rates, named, optimise
from cavalcade.ppo.engine import PopulationEngine
from cavalcade.ppo.engines.cuda.network import Network
from cavalcade.ppo.engines.cuda.ops import Ops
from cavalcade.ppo.engines.cuda.rollout import PackedRollout
from cavalcade.ppo.objective import METRICS, Coefficients
from cavalcade.ppo.returns import return_scale
from cavalcade.ppo.rollout import Episodes
from cavalcade.ppo.update import adam_step

_ACTOR, _CRITIC = NETS
TOO_LARGE = "games, networks or experience do not fit into the GPU; lower --num-envs, --rollout-steps or --policies"
_ON_HOST = ("counters",)  # fields of the state that stay on the host


class CudaEngine(PopulationEngine):
    """A population that is trained on games on a device."""

    name = "cuda"
    leaves_early = False  # the host cannot read while a graph runs

    def __init__(
        self,
        env: Environment,
        games: DeviceGames,
        config: PPOConfig,
        seeds: Sequence[int],
        *,
        precision: str = "fp32",
        **options: Any,
    ):
        check(config, games.horizon)
        super().__init__(env, config, seeds, **options)
        self.games, self.device = games, games.device
        n, steps = config.num_envs, config.rollout_steps
        for name, tensor in self.state.tensors().items():
            if name not in _ON_HOST:
                setattr(self.state, name, tensor.to(self.device))
        self._ends = [t for t in range(steps) if (t + 1) % min(games.horizon, steps) == 0]
        width = len(env.episode_stat_names) if games.episode_stats is not None else 0
        shape = (games.words.shape[1], games.mask_words.shape[1], len(self._ends), width)
        self.rollout = PackedRollout.allocate(self.policies, steps, n, *shape, self.device)
        self._ops = Ops(self.device)
        self._tf32, self._kind = precision == "tf32", torch.bfloat16 if precision == "bf16" else torch.float32
        self._player = Network(self.spec, self.state.weights, n, self._kind)
        self._gradient, self._part = (torch.zeros_like(self.state.weights) for _ in range(2))
        self._graphs: dict[str, Any] = {}
        self._means: tuple[Tensor, Tensor] | None = None  # of the latest update, written by its graph
        self._changed = False  # state, keys or games, from outside
        self._allocate()
        self._make_room()

    def _make_room(self) -> None:
        """Allocates the buffers of a minibatch and tries a gradient; if memory runs out, tries smaller pieces."""
        c = self.config
        share, self._pieces = c.num_envs // c.minibatches, c.grad_accum
        while True:
            try:
                self._allocate_minibatch()
                with matmul_precision(self._tf32):
                    self._minibatch(0, share)
                return
            except torch.OutOfMemoryError:
                if share % (2 * self._pieces):
                    raise TrainingError(TOO_LARGE) from None
                self._pieces *= 2
                if hasattr(self, "_network"):
                    del self._network  # its memory is needed
                torch.cuda.empty_cache()
                self.notes = [f"out of memory: minibatches are computed in {self._pieces} pieces"]

    def _allocate_minibatch(self) -> None:
        """Allocates the buffers of a piece of a minibatch."""
        c, policies = self.config, self.policies
        samples = c.rollout_steps * (c.num_envs // c.minibatches // self._pieces)
        zeros = self._zeros
        self._network = Network(self.spec, self.state.weights, samples, self._kind)
        self._words = zeros(policies, samples, self.games.words.shape[1], of=torch.int64)
        self._d_logits, self._d_values = zeros(policies, self.spec.padded_actions, samples), zeros(policies, 1, samples)
        self._terms = zeros(len(METRICS), policies, samples)

    def _allocate(self) -> None:
        """Allocates everything else that kernels read and write."""
        c, zeros, policies, n = self.config, self._zeros, self.policies, self.config.num_envs
        h, held = self.hyper, self.array
        self._order = torch.arange(n, device=self.device).repeat(policies, 1)
        self._sorted = zeros(policies, n, of=torch.int64)
        self._totals = zeros(policies, c.rollout_steps, n, of=torch.float64)
        self._clock, self._counter = zeros(policies, of=torch.int64), zeros(policies, of=torch.int64)
        self._rates = zeros(policies)
        self._scale = torch.ones(policies, device=self.device)
        self._gamma, self._decay = held(h.gamma), held(h.gamma * h.gae_lambda)
        self._limit_kl, self._grad_clip = held(h.target_kl), held(h.grad_clip)
        self._coefficients = Coefficients(held(h.clip), held(h.value_coef), held(h.entropy_coef), held(h.value_clip))
        self._keys, self._orders = self._ops.moved(self.action_keys), self._ops.moved(self.shuffle_keys)

    def _zeros(self, *shape: int, of: torch.dtype = torch.float32) -> Tensor:
        return torch.zeros(shape, dtype=of, device=self.device)

    def set_threads(self, threads: int) -> None:
        """Does nothing: the work is on the device."""

    def collect(self) -> Episodes:
        self.timer.skip()
        if self._changed:
            self._take_over()
        self._clock.copy_(self.state.counters[:, 0])
        self._run("rollout", self._rollout)
        self.games.played()
        self.state.counters[:, 0] += self.config.rollout_steps
        self.timer.lap("rollout")
        return self.episodes()

    def episodes(self) -> Episodes:
        """The episodes that ended in the latest rollout, by policy and environment."""
        r = self.rollout
        over = r.ended[:, self._ends].cpu().numpy()
        p, end, e = np.nonzero(over)
        if not len(p):
            return Episodes(p, e, p, np.zeros(0), p, np.zeros((0, r.episode_stats.shape[-1])))
        at = (p, end, e)
        kind, total, episode_stats = (x.cpu().numpy()[at] for x in (r.kinds, r.finals, r.episode_stats))
        return Episodes(p, e, kind.astype(np.int64), total, np.full(len(p), self.games.horizon), episode_stats)

    def update(self, progress: float | NDArray) -> dict[str, NDArray]:
        """As `Engine.update`, with the whole update as one graph and one read of metrics at the end."""
        self.timer.skip()
        rates = learning_rates(self, progress)
        self._rates.copy_(torch.as_tensor(np.asarray(rates, np.float32)), non_blocking=True)
        self._counter.copy_(self.state.counters[:, 1])
        self._run("update", self._update)
        assert self._means is not None
        found = named(*self.on_host(*self._means), rates) | self.finish()
        self.timer.lap("update")
        return found

    @torch.no_grad()
    def _update(self) -> None:
        self.prepare(0.0)
        self._means = optimise(self, self._rates, self._limit_kl)

    def array(self, values: NDArray) -> Tensor:
        return torch.as_tensor(np.asarray(values, np.float32)).to(self.device)

    def on_host(self, means: Tensor, norms: Tensor) -> tuple[NDArray, NDArray]:
        """Reads both in one transfer."""
        found = torch.cat([means, norms.unsqueeze(0)]).cpu().double().numpy()
        return found[:-1], found[-1]

    def finish(self) -> dict[str, NDArray]:
        self.state.counters[:, 1] += 1
        return {}

    def _run(self, name: str, work: Callable[[], None]) -> None:
        """Runs work; on a GPU eagerly the first time, then as a CUDA graph."""
        with matmul_precision(self._tf32):
            if self.device.type != "cuda":
                work()
                return
            try:
                if name not in self._graphs:  # compiles kernels and allocates memory
                    work()
                    self._graphs[name] = None
                    return
                if self._graphs[name] is None:
                    torch.cuda.synchronize()
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph):
                        work()
                    self._graphs[name] = graph
            except torch.OutOfMemoryError:
                raise TrainingError(TOO_LARGE) from None
            self._graphs[name].replay()

    @torch.no_grad()
    def _rollout(self) -> None:
        """T steps: observe, forward, draw, step, record."""
        g, r, s = self.games, self.rollout, self.state
        n, shape, end = g.num_envs, (self.policies, self.config.num_envs), 0
        for t in range(self.config.rollout_steps):
            words, masks = g.words.view(*shape, -1), g.mask_words.view(*shape, -1)
            r.words[:, t], r.mask_words[:, t] = words, masks
            logits, values = self._seen(self._player, words)
            self._ops.draw(n, g.mask_bits, self.spec.actions, logits, values, g.mask_words, self._keys, self._clock, t,
                g.actions, r.action, r.log_prob, r.value,
            )  # fmt: skip
            g.step()
            over = t in self._ends
            self._ops.record_step(
                n, g.reward, g.truncated, t, end if over else -1, r.reward, r.ended, s.episode_return, r.finals
            )
            if over:
                self._finish(t, end)
                end += 1
        r.last_value.copy_(self._value(g.words.view(*shape, -1)))

    def _seen(self, network: Network, words: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and values of observations, (P, b, W)."""
        self.games.observe(words, network.x)
        network.load()
        return network.forward(_ACTOR).float(), network.forward(_CRITIC).float()

    def _value(self, words: Tensor) -> Tensor:
        """Values of one observation per environment, (P, N)."""
        self.games.observe(words, self._player.x)
        self._player.load()
        return self._player.forward(_CRITIC)[:, 0].float()

    def _finish(self, t: int, end: int) -> None:
        """Records the episodes that end in step t: kinds, statistics, and values of final observations."""
        g, r, shape = self.games, self.rollout, (self.policies, self.config.num_envs)
        r.kinds[:, end] = g.kind.view(shape)
        if g.episode_stats is not None:
            r.episode_stats[:, end] = g.episode_stats.view(*shape, -1)
        if not self.config.timeout_is_terminal:
            value = self._value(g.final_words.view(*shape, -1))
            r.bootstrap[:, t] = torch.where(g.truncated.view(shape), value, 0.0)

    def minibatches(self, epoch: int) -> Iterator[int]:
        """The first environment of each minibatch, in the random order of the epoch."""
        self._shuffle(epoch)
        share = self.config.num_envs // self.config.minibatches
        for m in range(self.config.minibatches):
            yield m * share

    def gradient(self, batch: int, active: Tensor) -> Tensor:
        terms = self._minibatch(batch, self.config.num_envs // self.config.minibatches)
        return torch.where(active, terms, 0.0)

    def step(self, rates: Tensor, active: Tensor) -> Tensor:
        s = self.state
        return adam_step(
            s.weights, self._gradient, s.first_moment, s.second_moment, s.adam_steps, rates, self._grad_clip, active
        )

    def _shuffle(self, epoch: int) -> None:
        """Writes a random order of each policy's environments; not needed with one minibatch."""
        if self.config.minibatches > 1:
            self._ops.shuffle_key(self._sorted.numel(), self._orders, self._counter, epoch, self._sorted)
            self._order.copy_(self._sorted.argsort(dim=1))

    def _minibatch(self, first: int, share: int) -> Tensor:
        """Computes the gradient of a minibatch; returns its `METRICS`, (M, P)."""
        if self._pieces == 1:
            return self._piece(first, share, self._gradient)
        self._gradient.zero_()
        size, means = share // self._pieces, []
        for i in range(self._pieces):
            means.append(self._piece(first + i * size, size, self._part))
            self._gradient += self._part / self._pieces
        return torch.stack(means).mean(0)

    def _piece(self, first: int, share: int, gradient: Tensor) -> Tensor:
        """As `_minibatch`, for a piece of it."""
        r, samples = self.rollout, self._words.shape[1]
        chosen = self._order[:, first : first + share]
        index = chosen[:, None, :, None].expand(-1, r.words.shape[1], -1, r.words.shape[3])
        torch.gather(r.words, 2, index, out=self._words.view(*index.shape))
        logits, values = self._seen(self._network, self._words)
        self._ops.loss(self.policies * samples, self.games.mask_bits, self.spec.actions, self._coefficients, samples,
            logits, values, self._order, first,
            r.mask_words.view(-1, r.mask_words.shape[3]), r.action, r.log_prob, r.value, r.advantage, r.returns,
            self._d_logits, self._d_values, self._terms,
        )  # fmt: skip
        self._network.backward(_ACTOR, self._d_logits, gradient)
        self._network.backward(_CRITIC, self._d_values, gradient)
        return self._terms.mean(2)

    def prepare(self, progress: float | NDArray) -> None:
        r, s, n = self.rollout, self.state, self.games.num_envs
        if self.config.normalise_returns:
            gamma = self._gamma.double()
            self._ops.discount(n, r.reward, r.ended, gamma, s.return_sum, self._totals)
            count = float(self._totals[0].numel())
            square, mean = torch.var_mean(self._totals.flatten(1), dim=1, correction=0)
            total = s.return_count + count
            delta = mean - s.return_mean
            s.return_square += square * count + delta**2 * s.return_count * count / total
            s.return_mean += delta * count / total
            s.return_count.copy_(total)
            self._scale.copy_(return_scale(s))
        self._ops.gae(n, r.reward, r.value, r.ended, r.bootstrap, r.last_value, self._scale, self._gamma, self._decay,
            r.advantage, r.returns,
        )  # fmt: skip
        if self.config.normalise_advantages:
            spread, mean = torch.std_mean(r.advantage, dim=(1, 2), keepdim=True)
            r.advantage.sub_(mean).div_(spread + 1e-8)

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """As `PopulationEngine.tensors`, with episode lengths read from the games."""
        steps = np.asarray(self.games.steps, np.int64).reshape(self.policies, -1)
        self.state.episode_length.copy_(torch.from_numpy(steps))
        return super().tensors()

    def refresh(self) -> None:
        """Marks state, keys or games as changed; the next rollout loads them."""
        self._changed = True

    def _take_over(self) -> None:
        self._changed = False
        self.games.push()
        self._ops.copy(self.action_keys, self._keys)
        self._ops.copy(self.shuffle_keys, self._orders)

    def push_reward_weights(self) -> None:
        self.games.push_weights()

    def fetch_games(self) -> None:
        if not self._changed:
            self.games.pull()


def check(config: PPOConfig, horizon: int) -> None:
    """Raises `ConfigError` for settings that the CUDA engine does not support."""
    for name, usual in (("replay", 0), ("normalise_observations", False), ("engine", "auto")):
        if getattr(config, name) != usual:
            raise ConfigError(
                f"{name} is {getattr(config, name)}; the cuda engine does not support it, take --device cpu"
            )
    if config.num_envs % (config.minibatches * config.grad_accum):
        raise ConfigError(
            f"{config.num_envs} environments do not divide into {config.minibatches} minibatches × "
            f"{config.grad_accum} pieces, as they must on a GPU; take --device cpu or another number"
        )
    if max(horizon, config.rollout_steps) % min(horizon, config.rollout_steps):
        raise ConfigError(
            f"rollout_steps is {config.rollout_steps} and horizon {horizon}; on a GPU one must be a multiple of the "
            "other"
        )
