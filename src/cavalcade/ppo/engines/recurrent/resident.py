"""The recurrent engine with games on its own device: a step of act, draw and play is one CUDA graph.

The host knows when episodes end and never waits for a step; it reads once per update. On the CPU the same code runs
without graphs, which is how it is tested.
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.core.launch import Launcher
from cavalcade.ppo.engines.cuda.ops import Ops
from cavalcade.ppo.engines.recurrent.engine import RecurrentEngine
from cavalcade.ppo.engines.recurrent.experience import CollectedResults
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
        self._graph: Any = None  # False: to be captured in the next step
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
        self.timer.skip()
        for t in range(steps):
            rows, at = e.rows(t, everyone)
            if at == 0:
                keep = ~self._fresh.unsqueeze(-1)
                for stored, s in zip(e.state, self._memory, strict=True):
                    stored[:, rows] = s * keep
            e.begins[rows, at] = self._begins if at else False
            e.observation[rows, at] = games.tokens
            self._run_step()
            e.value[rows, at], e.log_prob[rows, at], e.action[rows, at] = self._value, self._log_prob, games.actions
            r.reward[0, t] = games.reward
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

    def _run_step(self) -> None:
        """Runs a step: eagerly at first, then as a CUDA graph."""
        if self._graph is None:
            self._step_games()
            if self._graphs:
                self._graph = False  # kernels are compiled now
        elif self._graph is False:
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._step_games()
            self._graph = graph
            graph.replay()
        else:
            self._graph.replay()

    def _step_games(self) -> None:
        """Act, draw, play; everything is in tensors that stay in place."""
        g, n = self.games, self.env.spec.num_envs
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
        """Copies games and counters to the device; a graph of the old arrays is dropped."""
        self._graph = None
        self.games.push()
        self._totals.copy_(self.state.episode_return[0])
        self._running.copy_(self.state.return_sum)
        self._clock.fill_(self.state.clock)
        self._fresh.copy_(torch.from_numpy(self._begins))


_NO_ENDS = np.zeros((1, 1), np.bool_)
