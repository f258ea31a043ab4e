"""PPO on one device: a rollout is one CUDA graph, an update another; the host reads results after each of them.

Everything that varies between updates is in tensors: learning rates, counters, seeds, active policies. A minibatch is a
share of the environments with all their steps, in a random order from counter-based random numbers. In an update the
network runs once per distinct observation of a minibatch (`dedup`, `row_loss`): after each rollout the host reads how
many there are at most, and records the update anew if that number has left the range the graph was made for.
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
from cavalcade.ppo.algorithm import learning_rates, named, optimise
from cavalcade.ppo.engine import PopulationEngine
from cavalcade.ppo.engines.cuda.acting import Acting, DistinctActing, PlainActing
from cavalcade.ppo.engines.cuda.dedup import SortedSamples
from cavalcade.ppo.engines.cuda.network import Network
from cavalcade.ppo.engines.cuda.ops import Ops
from cavalcade.ppo.engines.cuda.piece import Piece, room_for
from cavalcade.ppo.engines.cuda.rollout import PackedRollout
from cavalcade.ppo.engines.cuda.row_loss import Experience
from cavalcade.ppo.engines.cuda.sample import Returned
from cavalcade.ppo.objective import METRICS, Coefficients
from cavalcade.ppo.returns import return_scale
from cavalcade.ppo.rollout import Episodes

TOO_LARGE = "games, networks or experience do not fit into the GPU; lower --num-envs, --rollout-steps or --policies"
_ON_HOST = ("counters",)  # fields of the state that stay on the host
_KEPT = 2  # sizes of an update's buffers and their graphs


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
        shape = (games.words.shape[1], self.spec.actions, len(self._ends), width)
        self.rollout = PackedRollout.allocate(self.policies, steps, n, *shape, self.device, self.dtype)
        self._ops = Ops(self.device)
        self.precision = precision
        self._tf32, self._kind = precision == "tf32", torch.bfloat16 if precision == "bf16" else self.dtype
        self._player = Network(self.spec, self.state.weights, n, self._kind)
        self._acting = self._make_acting()
        self._gradient, self._part = (torch.zeros_like(self.state.weights) for _ in range(2))
        self._graphs: dict[str, Any] = {}
        # Of the latest update: of metrics and of gradient norms. Every graph of an update writes them here.
        self._means = self._zeros(len(METRICS), self.policies), self._zeros(self.policies)
        self._changed = False  # state, keys or games, from outside
        self._pieces = config.grad_accum  # of a minibatch
        self._room, self._made = 0, dict[int, Piece]()  # rows of a piece that there is room for; buffers by room
        self._allocate()
        self._cut()

    def _make_acting(self) -> Acting:
        """By distinct observations, if the table of a rollout fits into memory."""
        if self.config.dedup != "off" and DistinctActing.suits(self.spec):
            try:
                return DistinctActing(self._ops, self.games, self.spec, self.state.weights, self.rollout)
            except torch.OutOfMemoryError:
                self.notes = ["out of memory: the network runs for every environment while acting"]
        return PlainActing(self._ops, self.games, self._player)

    def _cut(self) -> None:
        """Allocates the order of samples for minibatches of so many pieces."""
        c = self.config
        parts, distinct = c.minibatches * self._pieces, c.dedup != "off"
        self._sorted = SortedSamples(self._ops, self.rollout, c.epochs, parts, distinct=distinct)
        self._graphs.pop("rollout", None)
        self._forget_pieces()

    def _found(self) -> int:
        """Reads how many rows there are: the most in a piece of a minibatch; notes their share of all samples."""
        most, rows = self._sorted.counts.tolist()
        self._share = rows / self._sorted.total
        return most

    def _make_room(self, rows: int) -> None:
        """Chooses the buffers of a piece of a minibatch for so many rows; makes smaller pieces if memory runs out."""
        share = self.config.num_envs // self.config.minibatches
        while True:
            room = room_for(rows, self._sorted.size, self.policies)
            if room == self._room:
                return
            if self._room in self._made:
                self._made[self._room].graph = self._graphs.get("update")
            try:
                self._made[room] = self._made.pop(room, None) or self._allocate_piece(room)  # the latest is last
                break
            except torch.OutOfMemoryError:
                if self._made:  # try again without those
                    self._forget_pieces()
                    continue
                if share % (2 * self._pieces):
                    raise TrainingError(TOO_LARGE) from None
                self._pieces *= 2
                self._cut()
                self._sorted.find(self._orders, self._counter)
                rows = self._found()
                self.notes = [f"out of memory: minibatches are computed in {self._pieces} pieces"]
        for old in list(self._made)[:-_KEPT]:
            del self._made[old]
        self._room = room
        if "update" in self._graphs:  # it was run once: everything is compiled
            self._graphs["update"] = self._made[room].graph

    def _forget_pieces(self) -> None:
        """Frees the memory of buffers and graphs."""
        self._room = 0
        self._made.clear()
        if "update" in self._graphs:
            self._graphs["update"] = None
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _allocate_piece(self, room: int) -> Piece:
        size, width = self._sorted.size, self.games.words.shape[1]
        return Piece.allocate(self._ops, self.spec, self.state.weights, room, size, width, self._kind)

    def _allocate(self) -> None:
        """Allocates everything else that kernels read and write."""
        c, zeros, policies, n = self.config, self._zeros, self.policies, self.config.num_envs
        h, held = self.hyper, self.array
        self._totals = zeros(policies, c.rollout_steps, n, of=torch.float64)
        self._clock, self._counter = zeros(policies, of=torch.int64), zeros(policies, of=torch.int64)
        self._rates = zeros(policies)
        self._scale = torch.ones(policies, dtype=self.dtype, device=self.device)
        self._gamma, self._decay = held(h.gamma), held(h.gamma * h.gae_lambda)
        self._limit_kl, self._grad_clip = held(h.target_kl), held(h.grad_clip)
        self._coefficients = Coefficients(held(h.clip), held(h.value_coef), held(h.entropy_coef), held(h.value_clip))
        self._keys, self._orders = self._ops.moved(self.action_keys), self._ops.moved(self.shuffle_keys)

    def _zeros(self, *shape: int, of: torch.dtype | None = None) -> Tensor:
        return torch.zeros(shape, dtype=of or self.dtype, device=self.device)

    def set_threads(self, threads: int) -> None:
        """Does nothing: the work is on the device."""

    def collect(self) -> Episodes:
        self.timer.skip()
        if self._changed:
            self._take_over()
        self._clock.copy_(self.state.counters[:, 0])
        self._counter.copy_(self.state.counters[:, 1])
        self._run("rollout", self._rollout)
        self.games.played()
        self._make_room(self._found())
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
        self._rates.copy_(torch.as_tensor(np.asarray(rates)), non_blocking=True)
        self._run("update", self._update)
        found = named(*self.on_host(*self._means), rates) | self.finish()
        self.timer.lap("update")
        return found

    @torch.no_grad()
    def _update(self) -> None:
        self.prepare(0.0)
        for kept, found in zip(self._means, optimise(self, self._rates, self._limit_kl), strict=True):
            kept.copy_(found)

    def array(self, values: NDArray) -> Tensor:
        return torch.as_tensor(np.asarray(values), dtype=self.dtype).to(self.device)

    def on_host(self, means: Tensor, norms: Tensor) -> tuple[NDArray, NDArray]:
        """Reads both in one transfer."""
        found = torch.cat([means, norms.unsqueeze(0)]).cpu().double().numpy()
        return found[:-1], found[-1]

    def finish(self) -> dict[str, NDArray]:
        self.state.counters[:, 1] += 1
        return {"distinct_observations": np.full(self.policies, self._share)}

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

    def recorded(self) -> dict[str, Any]:
        """The CUDA graphs of rollout and update, by name, to measure them; trains on until both are recorded."""
        while not all(self._graphs.get(name) for name in ("rollout", "update")):
            self.collect()
            self.update(0.0)
        return dict(self._graphs)

    def bytes_per_step(self, share: float) -> float:
        """Bytes of samples and network outputs that are read and written per step, at least; as `operations`."""
        r, outputs = self.rollout, self.spec.padded_actions + 1
        samples = sum(x.numel() * x.element_size() for x in vars(r).values()) / r.action.numel()
        row = 2 * outputs * self.state.weights.element_size()  # written and read
        return samples * (1 + self.config.epochs) + share * row * (1 + 2 * self.config.epochs)

    @torch.no_grad()
    def _rollout(self) -> None:
        """T steps: observe, forward, draw, step, record."""
        g, r, s = self.games, self.rollout, self.state
        n, shape, end = g.num_envs, (self.policies, self.config.num_envs), 0
        acting, ended_before = self._acting, -1
        x = Returned(
            g.words, g.reward, g.truncated, r.words.flatten(0, 2), r.reward, r.ended, s.episode_return, r.finals
        )
        acting.begin()
        for t in range(self.config.rollout_steps):
            acting.see(t, ended_before, x)
            self._ops.draw(n, g.mask_bits, self.spec.actions, acting.logits, acting.values, acting.row, g.mask_words,
                self._keys, self._clock, t, g.actions, r.action, r.log_prob, r.value, r.mask,
            )  # fmt: skip
            g.step()
            ended_before = end if t in self._ends else -1
            if t in self._ends:
                self._finish(t, end)
                end += 1
        self._ops.keep(n, self.config.rollout_steps, ended_before, x)
        r.last_value.copy_(self._value(g.words.view(*shape, -1)))
        self._sorted.find(self._orders, self._counter)

    def _value(self, words: Tensor) -> Tensor:
        """Values of one observation per environment, (P, N)."""
        self._ops.unpack(words, self.games.value_places, self._player.x)
        return self._player.values()[:, 0]

    def _finish(self, t: int, end: int) -> None:
        """Records the episodes that end in step t: kinds, statistics, and values of final observations."""
        g, r, shape = self.games, self.rollout, (self.policies, self.config.num_envs)
        r.kinds[:, end] = g.kind.view(shape)
        if g.episode_stats is not None:
            r.episode_stats[:, end] = g.episode_stats.view(*shape, -1)
        if not self.config.timeout_is_terminal:
            value = self._value(g.final_words.view(*shape, -1))
            r.bootstrap[:, t] = torch.where(g.truncated.view(shape), value, 0.0)

    def minibatches(self, epoch: int) -> Iterator[tuple[int, int]]:
        """Epoch and number of each minibatch."""
        for m in range(self.config.minibatches):
            yield epoch, m

    def gradient(self, batch: tuple[int, int], active: Tensor) -> Tensor:
        metrics = self._minibatch(*batch)
        self.blindfold(self._gradient)
        return torch.where(active, metrics, 0.0)

    def step(self, rates: Tensor, active: Tensor) -> Tensor:
        s, g = self.state, self._gradient
        norms = g.norm(dim=1)
        s.adam_steps += active
        self._ops.adam(
            g.numel(), s.weights, g, s.first_moment, s.second_moment, s.adam_steps, rates, self._grad_clip, norms,
            active,
        )  # fmt: skip
        return torch.where(active, norms, 0.0)

    def _minibatch(self, epoch: int, m: int) -> Tensor:
        """Computes the gradient of a minibatch; returns its `METRICS`, (M, P)."""
        if self._pieces == 1:
            return self._piece(epoch, m, self._gradient)
        self._gradient.zero_()
        means = []
        for i in range(self._pieces):
            means.append(self._piece(epoch, m * self._pieces + i, self._part))
            self._gradient += self._part / self._pieces
        return torch.stack(means).mean(0)

    def _piece(self, epoch: int, part: int, gradient: Tensor) -> Tensor:
        """As `_minibatch`, for a piece of it."""
        r, ops, y, b = self.rollout, self._ops, self._made[self._room], self._sorted.size
        s, first = self._sorted.of(epoch), part * self.policies * b
        with y.network.side.work():
            y.derivatives.zero_()
        ops.take_row(self.policies * b, s, first, b, r.words.flatten(0, 2), y.words)
        ops.unpack(y.words, self.games.value_places, y.network.x)
        logits, values = y.network.forward()
        samples = (r.action, r.log_prob, r.value, r.advantage, r.returns)
        x = Experience(r.mask.flatten(0, 2), *(one.flatten() for one in samples))
        ops.row_loss(
            self.policies, self.spec.actions, b, y.chunk, self._coefficients, first, s, x, logits, values, y.d_logits,
            y.d_values, y.parts, y.sums, y.terms,
        )  # fmt: skip
        with y.network.side.work():
            metrics = y.terms.view(len(METRICS), self.policies, -1).sum(2)
        y.network.backward(y.d_logits, y.d_values, gradient)
        return metrics

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
