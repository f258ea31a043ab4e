"""Trained policies from disk: a run's newest checkpoint, or any checkpoint."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.config import Cage2Task, GymTrainConfig, TrainConfig, training_kind
from cavalcade.config_mettagrid import MettagridTrainConfig
from cavalcade.errors import ConfigError, RunError
from cavalcade.plain import from_dict
from cavalcade.policy.heads import Choice, Head, head_from
from cavalcade.policy.mlp import MlpSpec
from cavalcade.ppo.player import Player
from cavalcade.ppo.population import scaling_from
from cavalcade.ppo.torch_player import TorchPlayer
from cavalcade.runs.checkpoint import load_checkpoint
from cavalcade.runs.directory import checkpoint_in


@dataclass(frozen=True)
class SavedPolicy:
    """The policies of a run as they were at a checkpoint."""

    path: Path
    config: TrainConfig | GymTrainConfig
    update: int
    head: Head
    spec: MlpSpec
    weights: NDArray  # (P, D)
    context: NDArray  # (P, C)
    shift: NDArray  # (P, O)
    scale: NDArray  # (P, O)

    @property
    def task(self) -> Cage2Task:
        """The game of CAGE-2 that the policies were trained for."""
        if isinstance(self.config, GymTrainConfig):
            raise RunError(f"{self.path} was trained on {self.config.target}, not on CAGE-2")
        return self.config.task

    @property
    def policies(self) -> int:
        """P."""
        return len(self.weights)

    def player(self, policy: int | None = None, *, greedy: bool = True, seed: int = 0) -> Player | TorchPlayer:
        """One policy at play, or all of them side by side."""
        if policy is not None and not 0 <= policy < self.policies:
            raise ConfigError(f"policy is {policy}; {self.path} has {self.policies}, numbered from 0")
        which = slice(None) if policy is None else slice(policy, policy + 1)
        parts = (self.weights[which], self.context[which], self.shift[which], self.scale[which])
        seeds = [seed + p for p in range(len(parts[0]))]
        if isinstance(self.head, Choice):
            return Player(self.spec, *parts, greedy=greedy, seeds=seeds)
        return TorchPlayer(self.head, self.spec, *parts, greedy=greedy, seeds=seeds)


def load_policy(path: str | Path) -> SavedPolicy:
    """The policies in a run's newest checkpoint, or in the checkpoint given."""
    path = checkpoint_in(Path(path))
    checkpoint = load_checkpoint(path)
    if "slots" in checkpoint.info:
        raise RunError(f"{path} is of a search; its policies see an order, their scores are in its search.csv")
    plain, network = checkpoint.info["config"], checkpoint.info["network"]
    if plain["target"] == MettagridTrainConfig.target:
        raise RunError(f"{path} was trained on MettaGrid; it can be scored, replayed and played, nothing else")
    kind: Any = training_kind(plain["target"])
    config: TrainConfig | GymTrainConfig = from_dict(kind, plain)
    head = head_from(network.get("head", Choice.kind), network.get("sizes", [network["actions"]]))
    spec = MlpSpec(network["inputs"], network["actions"], tuple(network["hidden"]), network["context"], head.deviations)
    first = next(iter(checkpoint.policy.values()))
    weights = spec.weights_from(checkpoint.policy, len(first), first.dtype).numpy()
    moments = [checkpoint.learner[f"observation_{name}"].numpy() for name in ("count", "mean", "square")]
    shift, scale = scaling_from(*moments, normalise=config.ppo.normalise_observations)
    context = np.array(network["contexts"], np.float64).reshape(len(first), network["context"])
    return SavedPolicy(path, config, int(checkpoint.info["update"]), head, spec, weights, context, shift, scale)
