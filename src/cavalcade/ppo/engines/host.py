"""Engines that step an environment from the host and keep the rollout in its memory: torch and cpu."""

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.config.ppo import PPOConfig
from cavalcade.core.contract import Environment
from cavalcade.core.threads import few_threads
from cavalcade.ppo.collect import collect
from cavalcade.ppo.engine import PopulationEngine
from cavalcade.ppo.rollout import EpisodeLog, Episodes, Rollout


class HostEngine(PopulationEngine):
    """A population whose rollout is filled by the loop in `ppo.collect`."""

    def __init__(
        self, env: Environment, config: PPOConfig, seeds: Sequence[int], *, distinct: bool = False, **options: Any
    ):
        super().__init__(env, config, seeds, **options)
        self.rollout = Rollout.allocate(
            env, self.head, len(seeds), config.rollout_steps, distinct=distinct, dtype=self.dtype
        )
        self.episodes = EpisodeLog(len(env.episode_stat_names))

    def collect(self) -> Episodes:
        terminal = self.config.timeout_is_terminal
        with few_threads() if self.env.out_of_process else nullcontext():
            collect(self.env, self, self.rollout, self.state, self.episodes, terminal, self.timer)
        return self.episodes.take()

    @abstractmethod
    def act(self, t: int, group: slice) -> NDArray:
        """Actions for the current observations of a group, recorded as step t of the rollout."""

    @abstractmethod
    def values(self, wanted: NDArray[np.bool_], ended_at: int | None = None) -> NDArray:
        """Values (P, N) of the wanted environments: of current observations, or of final ones of step `ended_at`."""
