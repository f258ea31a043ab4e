"""Scores of a search: greedy play on fresh games, the task's reward alone."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cavalcade.config import SearchConfig
from cavalcade.ppo.player import Player
from cavalcade.search.domains import make_environment
from cavalcade.search.members import SEARCH, Member
from cavalcade.workflow.compliance import FIGURES
from cavalcade.workflow.orders import Order


class Score(NamedTuple):
    """Figures of a policy over fresh games."""

    mean: float
    error: float  # standard error of the mean
    compliance: float  # over games in which it is defined, not a number if there is none
    chance: float
    counted: float  # share of games in which it is defined


class Scorer:
    """Plays one game per environment; the search on one stream of games, its confirmation on another."""

    def __init__(self, config: SearchConfig, orders: Sequence[Order], threads: int):
        self._config, self._orders = config, orders
        self._envs = {
            stream: make_environment(config, config.score_episodes, stream=stream, threads=threads)
            for stream in ("evaluate", "heldout")
        }

    def close(self) -> None:
        """Ends the environments."""
        for env in self._envs.values():
            env.close()

    def score(self, player: Player, member: Member) -> Score:
        """The score of a member's policy; every member of a purpose plays the same games."""
        env = self._envs["evaluate" if member.purpose == SEARCH else "heldout"]
        n = self._config.score_episodes
        order = self._orders[member.order] if member.order >= 0 else None
        env.assign(slice(0, n), order=order, seed=self._config.seed, shown=member.shown)
        figures, over = np.full((n, len(FIGURES)), np.nan), np.zeros(n, np.bool_)
        for _ in range(self._config.task.horizon):
            buffers = env.step(player(env))
            new = (buffers.terminated | buffers.truncated) & ~over
            if new.any():
                assert env.figures is not None
                figures[new] = env.figures[new]
                over |= new
            if over.all():
                break
        task, compliance, chance = (figures[:, FIGURES.index(name)] for name in ("task", "compliance", "chance"))
        defined = ~np.isnan(compliance)
        return Score(
            float(task.mean()),
            float(task.std(ddof=1) / n**0.5),
            float(compliance[defined].mean()) if defined.any() else float("nan"),
            float(chance[~np.isnan(chance)].mean()) if (~np.isnan(chance)).any() else float("nan"),
            float(defined.mean()),
        )
