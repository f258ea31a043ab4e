"""Scores of a search: greedy play on fresh games, the task's reward alone."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.config import SearchConfig
from cavalcade.policy.mlp import MlpSpec
from cavalcade.ppo.player import Player
from cavalcade.ppo.resident.player import greedy_figures
from cavalcade.search.domains import make_environment
from cavalcade.search.members import SEARCH, Member
from cavalcade.workflow.compliance import FIGURES
from cavalcade.workflow.orders import Order
from cavalcade.workflow.summary import episode_means
from cavalcade.workflow.tracking import WorkflowEnvironment

_FIRST_SEED = 1 << 30  # of the games: those of `cavalcade evaluate` are others
_MOST = 1 << 16  # environments of a batch on the CPU


class Score(NamedTuple):
    """What a policy got over fresh games."""

    mean: float
    error: float  # standard error of the mean
    means: dict[str, float]  # of what is known of an episode, see `episode_means`


class Policies(NamedTuple):
    """Trained policies."""

    spec: MlpSpec
    weights: Tensor  # (P, D), on the device where they were trained
    shift: NDArray  # (P, O), how observations are normalised
    scale: NDArray  # (P, O)


class Scorer(Protocol):
    """Plays one game per environment; the search on one stream of games, its confirmation on another."""

    def score(self, policies: Policies, members: Sequence[Member]) -> list[Score]:
        """The scores of members' policies; every member of a purpose plays the same games."""
        ...

    def close(self) -> None:
        """Ends the environments."""
        ...


class CpuScorer:
    """Plays on the CPU, or in CybORG."""

    def __init__(self, config: SearchConfig, orders: Sequence[Order], threads: int):
        self._config, self._orders, self._threads = config, orders, threads
        self._envs: dict[tuple[str, int], WorkflowEnvironment] = {}

    def close(self) -> None:
        """Ends the environments."""
        for env in self._envs.values():
            env.close()

    def score(self, policies: Policies, members: Sequence[Member]) -> list[Score]:
        """The scores of members' policies, a batch of them at a time."""
        most = 1 if self._config.target == "cyborg" else max(1, _MOST // self._config.score_episodes)
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
        player = Player(p.spec, weights, np.zeros((many, 0)), p.shift[rows], p.scale[rows])
        figures, over = np.full((many * n, len(env.figure_names)), np.nan), np.zeros(many * n, np.bool_)
        for _ in range(self._config.task.horizon):
            buffers = env.step(player(env))
            new = (buffers.terminated | buffers.truncated) & ~over
            if new.any():
                assert env.figures is not None
                figures[new] = env.figures[new]
                over |= new
            if over.all():
                break
        return scores(figures, env.figure_names, many)


class GpuScorer:
    """Plays on the GPU where the policies were trained, all of them at once."""

    def __init__(self, config: SearchConfig, orders: Sequence[Order]):
        self._config, self._orders = config, orders

    def close(self) -> None:
        """Nothing is held."""

    def score(self, policies: Policies, members: Sequence[Member]) -> list[Score]:
        """The scores of members' policies."""
        found: dict[int, Score] = {}
        for stream in ("evaluate", "heldout"):
            rows = [i for i, member in enumerate(members) if stream_of(member) == stream]
            if rows:
                env = make_environment(self._config, len(rows) * self._config.score_episodes, stream=stream)
                assign(env, self._config, self._orders, [members[i] for i in rows])
                weights = policies.weights[torch.as_tensor(rows, device=policies.weights.device)]
                figures = greedy_figures(env, policies.spec, weights)
                found |= zip(rows, scores(figures, env.figure_names, len(rows)), strict=True)
        return [found[i] for i in range(len(members))]


def stream_of(member: Member) -> str:
    """The stream of games that a member is scored on."""
    return "evaluate" if member.purpose == SEARCH else "heldout"


def assign(env: WorkflowEnvironment, config: SearchConfig, orders: Sequence[Order], members: Sequence[Member]) -> None:
    """Gives each member as many games, the same ones, with its order as it binds there."""
    n = config.score_episodes
    for i, member in enumerate(members):
        env.assign(
            slice(i * n, (i + 1) * n),
            order=orders[member.order] if member.order >= 0 else None,
            seed=_FIRST_SEED + config.seed,
            shown=member.shown,
            mask=config.workflow.binding["mask"] if member.bound_by_order else "none",
        )


def scores(figures: NDArray, names: tuple[str, ...], policies: int) -> list[Score]:
    """Scores from what is known of as many episodes of each policy."""
    n = len(figures) // policies
    means = episode_means(figures, names, np.repeat(np.arange(policies), n), policies)
    task = figures[:, FIGURES.index("task")].reshape(policies, n)
    errors = task.std(axis=1, ddof=1) / n**0.5
    return [
        Score(float(task[p].mean()), float(errors[p]), {name: float(column[p]) for name, column in means.items()})
        for p in range(policies)
    ]
