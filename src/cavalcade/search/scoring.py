"""Scores of a search: greedy evaluation on fresh games, task reward only."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.envs.cage2.device_games import DeviceCage2
from cavalcade.policy.mlp import MlpSpec
from cavalcade.ppo.engines.cuda.runner import greedy_episode_stats
from cavalcade.ppo.runner import PolicyRunner
from cavalcade.search.config import SearchConfig
from cavalcade.search.domains import domain_of, make_environment
from cavalcade.search.members import SEARCHING, Member
from cavalcade.workflow.compliance import EPISODE_STATS
from cavalcade.workflow.orders import Order
from cavalcade.workflow.summary import episode_means
from cavalcade.workflow.tracking import WorkflowEnvironment

_FIRST_SEED = 1 << 30  # of the games; `cavalcade evaluate` uses others
_MOST = 1 << 16  # environments per batch on the CPU


class Score(NamedTuple):
    """Score of a policy over fresh games."""

    mean: float
    error: float  # standard error of the mean
    means: dict[str, float]  # of episode statistics, see `episode_means`


class Policies(NamedTuple):
    spec: MlpSpec
    weights: Tensor  # (P, D), on the device where they were trained
    shift: NDArray  # (P, O), how observations are normalised
    scale: NDArray  # (P, O)


class Scorer(Protocol):
    """Plays one game per environment; search and confirmation use separate streams of games."""

    def score(self, policies: Policies, members: Sequence[Member]) -> list[Score]:
        """Scores of members' policies; all members of one purpose play the same games."""
        ...

    def close(self) -> None: ...


class CpuScorer:
    """Plays on the CPU, or in CybORG."""

    def __init__(self, config: SearchConfig, orders: Sequence[Order], threads: int):
        self._config, self._orders, self._threads = config, orders, threads
        self._envs: dict[tuple[str, int], WorkflowEnvironment] = {}

    def close(self) -> None:
        for env in self._envs.values():
            env.close()

    def score(self, policies: Policies, members: Sequence[Member]) -> list[Score]:
        """Scores of members' policies, computed in batches."""
        most = 1 if domain_of(self._config).hosted else max(1, _MOST // self._config.score_episodes)
        found: dict[int, Score] = {}
        for stream in ("evaluate", "heldout"):
            mine = [i for i, member in enumerate(members) if stream_of(member) == stream]
            for start in range(0, len(mine), most):
                part = mine[start : start + most]
                found |= zip(part, self._batch(policies, [members[i] for i in part], part, stream), strict=True)
        return [found[i] for i in range(len(members))]

    def _batch(self, p: Policies, members: list[Member], rows: list[int], stream: str) -> list[Score]:
        n, many = self._config.score_episodes, len(members)
        if (stream, many) not in self._envs:
            made = make_environment(self._config, many * n, stream=stream, threads=self._threads)
            self._envs[stream, many] = made
        env = self._envs[stream, many]
        assign(env, self._config, self._orders, members)
        weights = p.weights[rows].cpu().numpy().copy()
        player = PolicyRunner(p.spec, weights, np.zeros((many, 0)), p.shift[rows], p.scale[rows])
        episode_stats, over = np.full((many * n, len(env.episode_stat_names)), np.nan), np.zeros(many * n, np.bool_)
        for _ in range(self._config.task.horizon):
            buffers = env.step(player(env))
            new = (buffers.terminated | buffers.truncated) & ~over
            if new.any():
                assert env.episode_stats is not None
                episode_stats[new] = env.episode_stats[new]
                over |= new
            if over.all():
                break
        return scores(episode_stats, env.episode_stat_names, many)


class GpuScorer:
    """Plays on the GPU that trained the policies, all at once."""

    def __init__(self, config: SearchConfig, orders: Sequence[Order]):
        self._config, self._orders = config, orders

    def close(self) -> None:
        pass

    def score(self, policies: Policies, members: Sequence[Member]) -> list[Score]:
        found: dict[int, Score] = {}
        for stream in ("evaluate", "heldout"):
            rows = [i for i, member in enumerate(members) if stream_of(member) == stream]
            if rows:
                env = make_environment(self._config, len(rows) * self._config.score_episodes, stream=stream)
                assign(env, self._config, self._orders, [members[i] for i in rows])
                weights = policies.weights[torch.as_tensor(rows, device=policies.weights.device)]
                games: Any = DeviceCage2(env, weights.device)  # pyright: ignore[reportArgumentType]
                episode_stats = greedy_episode_stats(games, policies.spec, weights)
                found |= zip(rows, scores(episode_stats, env.episode_stat_names, len(rows)), strict=True)
        return [found[i] for i in range(len(members))]


def stream_of(member: Member) -> str:
    """Stream of games that a member is scored on."""
    return "evaluate" if member.purpose == SEARCHING else "heldout"


def assign(env: WorkflowEnvironment, config: SearchConfig, orders: Sequence[Order], members: Sequence[Member]) -> None:
    """Assigns the same games to each member, with its order enforced as in training."""
    n = config.score_episodes
    for i, member in enumerate(members):
        env.assign(
            slice(i * n, (i + 1) * n),
            order=orders[member.order] if member.order >= 0 else None,
            seed=_FIRST_SEED + config.seed,
            shown=member.shown,
            mask=config.workflow.binding["mask"] if member.bound_by_order else "none",
        )


def scores(episode_stats: NDArray, names: tuple[str, ...], policies: int) -> list[Score]:
    """Scores from the statistics of the same number of episodes of each policy."""
    n = len(episode_stats) // policies
    means = episode_means(episode_stats, names, np.repeat(np.arange(policies), n), policies)
    task = episode_stats[:, EPISODE_STATS.index("task")].reshape(policies, n)
    errors = task.std(axis=1, ddof=1) / n**0.5
    return [
        Score(float(task[p].mean()), float(errors[p]), {name: float(column[p]) for name, column in means.items()})
        for p in range(policies)
    ]
