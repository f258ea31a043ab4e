"""The recurrent engine with games on its own device.

A step of act, draw, play and store is one CUDA graph, and so is a gradient step. The host knows when episodes end and
never waits for a step; it reads once per update. On the CPU the same code runs without graphs, which is how it is
tested.
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.core.device import matmul_precision
from cavalcade.core.launch import Launcher
from cavalcade.core.recorded import Recorded
from cavalcade.ppo.engines.cuda.ops import Ops
from cavalcade.ppo.engines.recurrent.engine import RecurrentEngine
from cavalcade.ppo.engines.recurrent.experience import CollectedResults
from cavalcade.ppo.objective import METRICS
from cavalcade.ppo.returns import return_scale
from cavalcade.ppo.rollout import Episodes
from cavalcade.ppo.state import merge_moments


class ResidentGames(Protocol):
    """Games of one length on a device; a row of the tensors is an agent."""

    tokens: Tensor  # (N, K, 3): observations
    seen: Tensor  # (N,): tokens of the observations, kept or not
    reward: Tensor
    actions: Tensor

    def launch(self) -> None:
        """Steps every game with `actions`; can be captured in a CUDA graph."""
        ...

    def ended(self) -> NDArray[np.int64]:
        """The games that ended in the step just launched."""
        ...

    def rows(self, games: NDArray[np.int64], /) -> Tensor: ...

    def begin(self, games: NDArray[np.int64], /) -> None: ...

    def statistics(self, games: NDArray[np.int64], /) -> NDArray[np.float64]: ...

    def check_room(self, most: int) -> None: ...

    def push(self) -> None: ...

    def pull(self) -> None: ...


class ResidentEngine(RecurrentEngine):
    """Trains one recurrent policy on games that stay on its device."""

    def __init__(self, games: ResidentGames, *args: Any, graphs: bool = True, **options: Any):
        super().__init__(*args, **options)
        self.games, n, device = games, self.env.spec.num_envs, self.device
        r = self.experience.results
        self.experience.results = CollectedResults(*(x.to(device) for x in vars(r).values()))
        self.experience.mask[:] = True
        self._graphs = graphs and device.type == "cuda"
        self._step_graph, self._gradient_graph = Recorded(self._graphs), Recorded(self._graphs, _EAGER)
        self._norm: Tensor | None = None  # of a gradient step that was a graph
        self._index = torch.zeros(0, dtype=torch.int64, device=device)  # segments of that step
        self._at = torch.zeros((), dtype=torch.int64, device=device)  # step of the rollout
        self.optimizers.recordable &= options["machine"].compile == "off"
        self._first = self.experience.horizon * torch.arange(n, device=device)  # row of an agent's first step
        self._launch, self._ops = Launcher(device), Ops(device)
        self._draws = self._launch.moved(self._keys)
        self._clock = torch.zeros(1, dtype=torch.int64, device=device)
        self._allowed = torch.ones(n, self.policy.actions, dtype=torch.bool, device=device)
        self._value, self._log_prob = torch.zeros(n, device=device), torch.zeros(n, device=device)
        self._totals = torch.zeros(n, dtype=torch.float64, device=device)  # returns of episodes in progress
        self._running = torch.zeros(1, n, dtype=torch.float64, device=device)  # discounted sums of rewards
        self._fresh = torch.zeros(n, dtype=torch.bool, device=device)  # the observation is the first of an episode
        self._most, self._over = (torch.zeros((), dtype=torch.int64, device=device) for _ in range(2))
        if self._launch.on_gpu:
            from cavalcade.ppo.engines.recurrent.draw_cuda import draw_clocked
        else:
            from cavalcade.ppo.engines.recurrent.draw import draw_clocked
        self._draw_clocked: Callable[..., Any] = draw_clocked

    def set_threads(self, threads: int) -> None:
        """Does nothing: the work is on the device."""

    @torch.no_grad()
    def collect(self) -> Episodes:
        e, games, steps = self.experience, self.games, self.experience.steps
        r, everyone = e.results, slice(0, self.env.spec.num_envs)
        r.ended.zero_()
        r.bootstrap.zero_()
        self._most.zero_()
        self._over.zero_()
        self._at.zero_()
        e.begins[:] = False
        self.timer.skip()
        for t in range(steps):
            rows, at = e.rows(t, everyone)
            if at == 0:
                keep = ~self._fresh.unsqueeze(-1)
                for stored, s in zip(e.state, self._memory, strict=True):
                    stored[:, rows] = s * keep
            elif self._begins.any():
                e.begins[rows, at] = self._begins
            self._step_graph(self._step_games)
            self._begins[:] = False
            over = games.ended()
            if len(over):
                self._end(t, over)
        self.state.counters[:, 0] += steps
        self.state.episode_length += steps
        r.last_value[0] = torch.where(r.ended[0, -1], 0.0, self._values_now())
        self._dropped, most = int(self._over), int(self._most)
        games.check_room(most)
        self.timer.lap("rollout")
        return self.episodes.take()

    def _step_games(self) -> None:
        """Act, draw, play, store; everything is in tensors that stay in place."""
        g, e, n = self.games, self.experience, self.env.spec.num_envs
        rows = self._first + self._at // e.horizon * (n * e.horizon) + self._at % e.horizon
        _put(e.observation, rows, g.tokens)
        keep = ~self._fresh.unsqueeze(-1)
        with self._autocast():
            out, after = self.policy(g.tokens.unsqueeze(0), tuple(s * keep for s in self._memory), _NO_ENDS)
        for mine, s in zip(self._memory, after, strict=True):
            mine.copy_(s)
        self._value.copy_(out.values[0])
        logits = out.logits[0].float().contiguous()
        self._over += (g.seen > g.tokens.shape[1]).sum()
        self._launch(self._draw_clocked, n, logits, self._allowed, self._draws, self._clock, g.actions, self._log_prob)
        self._clock += 1
        g.launch()
        torch.maximum(self._most, g.seen.max().long(), out=self._most)
        self._totals += g.reward
        self._fresh.zero_()
        for field, x in ((e.value, self._value), (e.log_prob, self._log_prob), (e.action, g.actions)):
            _put(field, rows, x)
        e.results.reward[0].index_copy_(0, self._at.view(1), g.reward.unsqueeze(0))
        self._at += 1

    def _end(self, t: int, over: NDArray[np.int64]) -> None:
        """Records the episodes that ended in step t and begins the next."""
        e, games = self.experience, self.games
        rows = games.rows(over)
        e.results.ended[0, t, rows] = True
        if not self.config.timeout_is_terminal:
            e.results.bootstrap[0, t, rows] = self._values_now()[rows]
        environment = rows.cpu().numpy()
        length = self.state.episode_length[0].numpy()[environment] + t + 1
        none = np.zeros(len(environment), np.int64)
        found = Episodes(none, environment, none, self._totals[rows].cpu().numpy(), length, games.statistics(over))
        self.episodes.add(t, 0, found)
        self._totals[rows] = 0
        games.begin(over)
        self._fresh[rows] = True
        self._begins[environment] = True
        self.state.episode_length[0, environment] = -(t + 1)  # the steps of this rollout are added at its end

    def gradient(self, batch: tuple[Tensor, Tensor | None], active: Tensor) -> Tensor:
        """As in `RecurrentEngine`; where nothing depends on the host, gradient and optimiser step are one graph."""
        self._norm = None
        if not self._recordable(*batch):
            return super().gradient(batch, active)
        index = batch[0]
        if len(self._index) != len(index):
            self._index = torch.empty_like(index, device=self.device)
            self._gradient_graph.drop()
        self._index.copy_(index)
        try:
            metrics, self._norm = self._gradient_graph(self._gradient_step)
        except RuntimeError as error:  # memory ran out, or something waits for the host: nothing has changed yet
            self.optimizers.recordable = False
            self._gradient_graph.drop()
            self.notes.append(f"gradient steps are not recorded as CUDA graphs: {str(error).splitlines()[0]}")
            return super().gradient(batch, active)
        return metrics

    def _recordable(self, index: Tensor, importance: Tensor | None) -> bool:
        """Whether the gradient step of a minibatch is the same work as that of any other."""
        c, update = self.config, self.state.updates
        same = importance is None and not c.vtrace and c.target_kl == 0 and self._pieces == 1 and self._scaler is None
        if not self._graphs or not same or not self.optimizers.recordable:
            return False
        return all(loss.idle(update) for loss in self.auxiliary) and not self.experience.begins[index.numpy()].any()

    def _gradient_step(self) -> tuple[Tensor, Tensor]:
        """Metrics and gradient norm of a step on the segments in `_index`, in which no episode begins."""
        self.policy.zero_grad(set_to_none=True)
        e = self.experience
        loss, metrics = self._loss(e.take(self._index, np.zeros((e.horizon, len(self._index)), np.bool_)), None)
        with matmul_precision(tf32=self._precision == "tf32"):
            loss.backward()
        found = torch.stack([metrics[name].detach().float().view(1) for name in METRICS])
        return found, super().step(None, None)  # pyright: ignore[reportArgumentType] — neither is used

    def step(self, rates: Tensor, active: Tensor) -> Tensor:
        return super().step(rates, active) if self._norm is None else self._norm

    def _values_now(self) -> Tensor:
        """Values of the current observations, (N,)."""
        keep = ~self._fresh.unsqueeze(-1)
        with self._autocast():
            out, _ = self.policy(self.games.tokens.unsqueeze(0), tuple(s * keep for s in self._memory), _NO_ENDS)
        return out.values[0].float()

    @torch.no_grad()
    def _advantages(self) -> None:
        """Computes advantages and value targets of all segments, on the device."""
        c, e, h = self.config, self.experience, self.hyper
        value, b = e.by_time(e.value), e.results
        gamma, decay = (self.array(x) for x in (h.gamma, h.gamma * h.gae_lambda))
        scale = torch.ones(1, device=self.device)
        if c.normalise_returns:
            self._add_returns(torch.as_tensor(h.gamma, device=self.device))
            scale = return_scale(self.state).float().to(self.device)
        e.scale = float(scale[0])
        advantage, returns = torch.empty_like(value), torch.empty_like(value)
        n = value.shape[2]
        self._ops.gae(n, b.reward, value, b.ended, b.bootstrap, b.last_value, scale, gamma, decay, advantage, returns)
        if c.vtrace:
            self._segments = tuple(e.by_segment(x) for x in (e.scale * b.reward, b.ended, b.bootstrap))
            self._after = torch.cat([value[0, e.horizon :: e.horizon], b.last_value]).flatten()
        if c.normalise_advantages:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        e.advantage.copy_(e.by_segment(advantage))
        e.returns.copy_(e.by_segment(returns))

    def _add_returns(self, gamma: Tensor) -> None:
        """Adds the discounted returns of a rollout to their running moments."""
        b, s = self.experience.results, self.state
        totals = torch.zeros(b.reward.shape, dtype=torch.float64, device=self.device)
        self._ops.discount(b.reward.shape[2], b.reward, b.ended, gamma, self._running, totals)
        mean = totals.mean()
        square = ((totals - mean) ** 2).sum()
        found = torch.stack([mean, square]).cpu().numpy()
        count = np.array([float(totals.numel())])
        merge_moments(
            s.return_count, s.return_mean.unsqueeze(-1), s.return_square.unsqueeze(-1), count, found[:1, None],
            found[1:, None],
        )  # fmt: skip

    def fetch_games(self) -> None:
        """Copies games and what is counted of their episodes back to the host."""
        self.games.pull()
        self.state.episode_return[0] = self._totals.cpu()
        self.state.return_sum.copy_(self._running)

    def refresh(self) -> None:
        """Copies games and counters to the device; graphs of the old arrays are dropped."""
        self._step_graph.drop()
        self._gradient_graph.drop()
        self.games.push()
        self._totals.copy_(self.state.episode_return[0])
        self._running.copy_(self.state.return_sum)
        self._clock.fill_(self.state.clock)
        self._fresh.copy_(torch.from_numpy(self._begins))


def _put(field: Tensor, rows: Tensor, x: Tensor) -> None:
    """Writes rows of a field of the experience, (S·N, h, …), whose first two axes are taken as one."""
    field.flatten(0, 1).index_copy_(0, rows, x.to(field.dtype))


_NO_ENDS = np.zeros((1, 1), np.bool_)
_EAGER = 2  # gradient steps before the first is recorded
