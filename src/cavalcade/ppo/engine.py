"""What a learner is: it acts in an environment, remembers a rollout, and learns from it.

Two of them share state and results: `TorchLearner`, plain torch with everything, the reference; and
`fused.FusedLearner`, compiled kernels for the CPU.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numba
import numpy as np
import torch
from gymnasium.spaces import Box
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.config import PPOConfig
from cavalcade.envs.contract import Environment
from cavalcade.errors import ConfigError
from cavalcade.policy.heads import Head, head_for
from cavalcade.policy.mlp import MlpSpec
from cavalcade.ppo.collect import collect
from cavalcade.ppo.keys import environment_keys, policy_keys
from cavalcade.ppo.population import Hyper, LearnerState
from cavalcade.ppo.ranks import ALONE, Ranks
from cavalcade.ppo.rollout import Ended, EpisodeLog, Rollout
from cavalcade.ppo.threads import few_threads
from cavalcade.ppo.timer import Timer


class Learner(ABC):
    """Policies that learn in a batch of environments: the first N belong to policy 0, and so on."""

    name: str

    def __init__(
        self,
        env: Environment,
        config: PPOConfig,
        seeds: Sequence[int],
        *,
        hyper: Hyper | None = None,
        context: NDArray | None = None,
        distinct: bool = False,
        dtype: torch.dtype = torch.float32,
        ranks: Ranks = ALONE,
    ):
        if env.spec.num_envs != len(seeds) * config.num_envs:
            raise ConfigError(
                f"the batch has {env.spec.num_envs} environments; {len(seeds)} policies × {config.num_envs} need "
                f"{len(seeds) * config.num_envs}"
            )
        if len(seeds) > 1 and len(env.groups) > 1:
            raise ConfigError(
                f"{len(seeds)} policies in {len(env.groups)} groups of environments; one of them must be 1"
            )
        self.env, self.config, self.seeds, self.dtype = env, config, tuple(seeds), dtype
        self.hyper = hyper or Hyper.of(config, len(seeds))
        self.context = np.zeros((len(seeds), 0)) if context is None else np.asarray(context, np.float64)
        self.head, self.spec = network_for(env, config, self.context.shape[1])
        self.state = LearnerState.fresh(self.spec, seeds, config.num_envs, dtype)
        self.rollout = Rollout.allocate(env, self.head, len(seeds), config.update_steps, distinct=distinct, dtype=dtype)
        self.timer = Timer()
        self.episodes = EpisodeLog(len(env.figure_names))
        self.ranks = ranks  # who shares the learning
        if ranks.size > 1 and len(seeds) > 1:
            raise ConfigError(
                f"{len(seeds)} policies on {ranks.size} ranks; ranks share the environments of one policy"
            )
        self.action_keys = environment_keys(seeds, config.num_envs, ranks.rank * config.num_envs)
        self.shuffle_keys = policy_keys(seeds)

    @property
    def policies(self) -> int:
        """P."""
        return len(self.seeds)

    def collect(self) -> Ended:
        """Plays T steps into the rollout; returns the episodes that ended."""
        with few_threads() if self.env.elsewhere else nullcontext():
            collect(self.env, self, self.rollout, self.state, self.episodes, self.config.horizon_ends, self.timer)
        return self.episodes.take()

    @abstractmethod
    def act(self, t: int, group: slice) -> NDArray:
        """Actions for the observations of some environments, booked as step t of the rollout."""

    @abstractmethod
    def values(self, wanted: NDArray[np.bool_], ended_at: int | None = None) -> NDArray:
        """Values (P, N) of wanted environments: of current observations, or of those that ended episodes in a step."""

    @abstractmethod
    def update(self, progress: float | NDArray) -> dict[str, NDArray]:
        """Learns from the rollout, at a given share of the run, one for all or (P,); metrics by name, (P,) each."""

    @abstractmethod
    def restore(self) -> None:
        """To be called after the state was loaded from outside."""

    def set_threads(self, threads: int) -> None:
        """CPU threads of learning."""
        numba.set_num_threads(threads)

    def network(self) -> dict[str, Any]:
        """What a checkpoint says of the networks."""
        s = self.spec
        shape = {"inputs": s.inputs, "actions": s.actions, "hidden": s.hidden, "context": s.context}
        return shape | {"head": self.head.kind, "sizes": self.head.sizes, "contexts": self.context.tolist()}

    def before_change(self) -> None:  # noqa: B027 — most have nothing to bring back
        """To be called before games are changed from outside."""

    def forget_games(self) -> None:
        """The games in progress are gone: new ones begin."""
        self.state.forget_games()

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What a checkpoint holds: the policies' weights by name, and everything else that learning changes."""
        rest = {name: tensor for name, tensor in self.state.tensors().items() if name != "weights"}
        return self.spec.parameters(self.state.weights), rest | self.memory()

    def load_tensors(self, policy: Mapping[str, Tensor], rest: Mapping[str, Tensor]) -> None:
        """Takes over what a checkpoint holds; nothing changes if it does not fit."""
        weights = self.spec.weights_from(policy, self.policies, self.dtype)
        self.state.load({"weights": weights, **rest})
        self.load_memory(rest)
        self.restore()

    def memory(self) -> dict[str, Tensor]:
        """What the learner remembers besides its state."""
        return {}

    def load_memory(self, saved: Mapping[str, Tensor]) -> None:  # noqa: B027 — most remember nothing
        """Takes over what was remembered."""

    def rates(self, progress: float | NDArray) -> NDArray:
        """Learning rates (P,) at a given share of the run."""
        return self.hyper.learning_rate * (1 - progress if self.config.schedule == "linear" else 1)


def network_for(env: Environment, config: PPOConfig, context: int = 0) -> tuple[Head, MlpSpec]:
    """The head and the networks that fit an environment."""
    observations, actions = env.spec.observation_space, env.spec.action_space
    head = head_for(actions)
    if not isinstance(observations, Box) or len(observations.shape) != 1 or head is None:
        raise ConfigError(
            f"{env.spec.name} has {observations} and {actions}; policies here take a flat Box, and give Discrete, "
            "MultiDiscrete or a flat Box"
        )
    return head, MlpSpec(observations.shape[0], head.outputs, config.hidden, context, head.deviations)
