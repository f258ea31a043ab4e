"""The base classes of engines: an engine acts in an environment, stores a rollout and learns from it.

Engines differ in how they compute, never in what: `optimise` in `algorithm` is the update of all of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from gymnasium.spaces import Box
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.config.ppo import CommonPPOConfig, PPOConfig
from cavalcade.core.contract import Environment
from cavalcade.core.errors import ConfigError
from cavalcade.core.images import ImageLayout
from cavalcade.core.timer import Timer
from cavalcade.policy.cnn import CnnSpec
from cavalcade.policy.heads import Head, head_for
from cavalcade.policy.mlp import MlpSpec
from cavalcade.policy.module import MakeModule, ModuleSpec
from cavalcade.policy.weights import weights_from
from cavalcade.ppo.algorithm import learning_rates, named, optimise
from cavalcade.ppo.distributed import ALONE, Ranks
from cavalcade.ppo.keys import environment_keys, policy_keys
from cavalcade.ppo.rollout import Episodes
from cavalcade.ppo.snapshot import Counters, Snapshot
from cavalcade.ppo.state import MOMENTS, EngineState, HyperParams, SavedTensors, load_into


class Engine(ABC):
    """Policies that learn in a batch of environments: the first N belong to policy 0, and so on."""

    name: str
    leaves_early = True
    config: CommonPPOConfig
    state: SavedTensors

    def __init__(self, env: Environment, hyper: HyperParams, policies: int, ranks: Ranks = ALONE):
        self.env, self.hyper, self.policies, self.ranks = env, hyper, policies, ranks
        self.timer = Timer()
        self.notes: list[str] = []  # e.g. fallbacks; the recorder logs and clears them

    @property
    def num_envs(self) -> int:
        """Number of environments of all policies and ranks."""
        return self.env.spec.num_envs * self.ranks.size

    @property
    def episode_kind_names(self) -> tuple[str, ...]:
        return self.env.episode_kind_names

    @property
    def episode_stat_names(self) -> tuple[str, ...]:
        """Names of episode statistics besides return and length."""
        return self.env.episode_stat_names

    @property
    def counters(self) -> Counters:
        """Steps and updates so far."""
        return Counters(self.state.clock, self.state.updates)

    @abstractmethod
    def collect(self) -> Episodes:
        """Plays T steps into the rollout; returns the episodes that ended."""

    def update(self, progress: float | NDArray) -> dict[str, NDArray]:
        """Learns from the rollout; returns metrics (P,) by name.

        progress: completed share of the run, one for all policies or (P,).
        """
        self.timer.skip()
        self.prepare(progress)
        self.timer.lap("advantage")
        rates = learning_rates(self, progress)
        means, norms = optimise(self, self.array(rates), self.array(self.hyper.target_kl))
        found = named(*self.on_host(means, norms), rates) | self.finish()
        self.timer.lap("update")
        return found

    @abstractmethod
    def array(self, values: NDArray) -> Any:
        """Values (P,) as an array or tensor of the engine."""

    @abstractmethod
    def on_host(self, means: Any, norms: Any) -> tuple[NDArray, NDArray]:
        """The results of `optimise` as NumPy arrays."""

    @abstractmethod
    def prepare(self, progress: float | NDArray) -> None:
        """Computes advantages and value targets of the rollout."""

    @abstractmethod
    def minibatches(self, epoch: int) -> Iterable[Any]:
        """The minibatches of an epoch."""

    @abstractmethod
    def gradient(self, batch: Any, active: Any) -> Any:
        """Computes the gradient of a minibatch; returns its `METRICS`, (M, P), 0 for policies that are not active."""

    def operations(self, share: float) -> float:
        """Floating-point operations of matrix products per environment step; share: fraction of samples computed."""
        raise NotImplementedError(f"{self.name} does not count its operations")

    def all_reduce(self, metrics: Any) -> None:
        """All-reduces gradient and metrics over ranks, in place."""
        raise NotImplementedError(f"{self.name} runs on one rank")

    @abstractmethod
    def step(self, rates: Any, active: Any) -> Any:
        """One optimiser step of the active policies; returns gradient norms (P,), 0 for the others."""

    @abstractmethod
    def finish(self) -> dict[str, NDArray]:
        """Ends the update: counts it, recomputes what depends on the weights; returns further metrics."""

    def set_threads(self, threads: int) -> None:
        """Sets the CPU threads of training."""
        numba.set_num_threads(threads)

    @abstractmethod
    def network(self) -> dict[str, Any]:
        """The network architecture as plain data, for a checkpoint."""

    def snapshot(self) -> Snapshot:
        """A copy of policy, learner, games and counters as they are now."""
        self.fetch_games()
        policy, learner = ({name: tensor.clone() for name, tensor in part.items()} for part in self.tensors())
        return Snapshot(policy, learner, self.env.save_state(), self.counters)

    def restore(self, snapshot: Snapshot) -> None:
        """Loads a snapshot; games that are not resumable begin anew. Nothing changes if the tensors do not fit."""
        self.load_tensors(snapshot.policy, snapshot.learner)
        self.env.load_state(dict(snapshot.games))
        if not self.env.resumable:
            self.forget_games()
        self.refresh()

    def start_from(self, source: Snapshot) -> None:
        """Takes over weights and running moments of trained policies; optimiser, counters and games stay fresh."""
        _, fresh = self.tensors()
        moments = {name: source.learner[name] for name in MOMENTS if name in fresh}
        self.load_tensors(source.policy, fresh | moments)
        self.refresh()

    def push_reward_weights(self) -> None:  # noqa: B027
        """Copies changed weights of alignment rewards from the batch to where games are played."""

    def fetch_games(self) -> None:  # noqa: B027 — most engines play in the batch itself
        """Copies games that are played outside the batch back into it."""

    def refresh(self) -> None:  # noqa: B027
        """Recomputes derived state; call it after state, keys or games were changed from outside."""

    def forget_games(self) -> None:
        """Clears the statistics of episodes in progress, which were replaced by new ones."""
        self.state.forget_games()

    @abstractmethod
    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Weights by name, and all other tensors that training changes."""

    @abstractmethod
    def load_tensors(self, policy: Mapping[str, Tensor], learner: Mapping[str, Tensor]) -> None:
        """Loads weights and the other tensors; nothing changes if they do not fit."""


class Convolutional(NamedTuple):
    """Convolutional networks for observations that are images."""

    image: ImageLayout
    features: int = 0  # width of the dense layer, see `CnnSpec`
    half: bool = False  # compute in bfloat16, see `CnnSpec`


class PopulationEngine(Engine):
    """An engine of P perceptrons with weights in one tensor (P, D)."""

    config: PPOConfig
    state: EngineState

    def __init__(
        self,
        env: Environment,
        config: PPOConfig,
        seeds: Sequence[int],
        *,
        hyper: HyperParams | None = None,
        context: NDArray | None = None,
        network: MakeModule | Convolutional | None = None,
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
        if ranks.size > 1 and len(seeds) > 1:
            raise ConfigError(
                f"{len(seeds)} policies on {ranks.size} ranks; ranks share the environments of one policy"
            )
        super().__init__(env, hyper or HyperParams.of(config, len(seeds)), len(seeds), ranks)
        self.config, self.seeds, self.dtype = config, tuple(seeds), dtype
        self.context = np.zeros((len(seeds), 0)) if context is None else np.asarray(context, np.float64)
        self.head, self.spec = network_for(env, config, self.context.shape[1], network)
        self.state = EngineState.fresh(self.spec, seeds, config.num_envs, dtype)
        self.action_keys = environment_keys(seeds, config.num_envs, ranks.rank * config.num_envs)
        self.shuffle_keys = policy_keys(seeds)

    def blindfold(self, gradient: Any) -> None:
        """Clears the gradient (P, D) of actors with respect to what only critics see."""
        if self.env.critic_values:
            gradient[:, self.spec.unseen] = 0

    def operations(self, share: float) -> float:
        return share * (self.spec.forward_operations + self.config.epochs * self.spec.gradient_operations)

    def network(self) -> dict[str, Any]:
        s = self.spec
        shape = {"inputs": s.inputs, "actions": s.actions, "hidden": s.hidden, "context": s.context}
        shape |= {"head": self.head.kind, "sizes": self.head.sizes, "contexts": self.context.tolist()}
        return shape | s.described()

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        rest = {name: tensor.cpu() for name, tensor in self.state.tensors().items() if name != "weights"}
        return self.spec.parameters(self.state.weights.cpu()), rest | self.memory()

    def load_tensors(self, policy: Mapping[str, Tensor], learner: Mapping[str, Tensor]) -> None:
        weights = weights_from(self.spec, policy, self.policies, self.dtype)
        self.state.load({"weights": weights, **learner})
        self.load_memory(learner)

    def restore_rows(self, part: Snapshot, policies: int) -> None:
        """Loads a snapshot of fewer policies into the first rows."""
        self.fetch_games()  # those of the other policies
        here = {name: tensor[:policies] for name, tensor in self.state.tensors().items()}
        weights = weights_from(self.spec, part.policy, policies, self.dtype)
        load_into(here, {"weights": weights, **part.learner})
        if policies:
            self.env.load_state(dict(part.games), np.arange(policies * self.config.num_envs))
        if not self.env.resumable:
            self.forget_games()
        self.refresh()

    def memory(self) -> dict[str, Tensor]:
        """Tensors to save besides the state, e.g. replayed rollouts."""
        return {}

    def load_memory(self, saved: Mapping[str, Tensor]) -> None:
        """Loads the tensors of `memory`."""


def head_of(env: Environment) -> Head:
    """The head of an environment; raises `ConfigError` if its spaces are not supported."""
    observations, actions = env.spec.observation_space, env.spec.action_space
    head = head_for(actions)
    if not isinstance(observations, Box) or len(observations.shape) != 1 or head is None:
        raise ConfigError(
            f"{env.spec.name} has {observations} and {actions}; observations must be a flat Box, and actions Discrete, "
            "MultiDiscrete or a flat Box"
        )
    return head


def network_for(
    env: Environment, config: PPOConfig, context: int = 0, network: MakeModule | Convolutional | None = None
) -> tuple[Head, Any]:
    """The head and the network spec of an environment: perceptrons, convolutions, or modules that `network` makes."""
    observations, head = env.spec.observation_space, head_of(env)
    assert isinstance(observations, Box)
    if network is not None and env.critic_values:
        raise ConfigError(
            f"{env.spec.name} has {env.critic_values} values for the critic alone; only perceptrons support that"
        )
    if isinstance(network, Convolutional):
        return head, CnnSpec(network.image, head.outputs, head.deviations, network.features, network.half)
    if network is not None:
        return head, ModuleSpec(network, observations.shape[0], head.outputs, head.deviations)
    sizes = (observations.shape[0], head.outputs, config.hidden, context, head.deviations)
    return head, MlpSpec(*sizes, critic_values=env.critic_values)
