"""Trained policies from disk: a run's newest checkpoint, or any checkpoint."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.config import Cage2Task, GymTrainConfig, SearchConfig, TrainConfig, training_kind
from cavalcade.config_mettagrid import MettagridTrainConfig
from cavalcade.envs.cage2.order_mask import OrderMask
from cavalcade.envs.cage2.orders import CAGE2
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
    config: TrainConfig | GymTrainConfig | SearchConfig
    update: int
    head: Head
    spec: MlpSpec
    weights: NDArray  # (P, D)
    context: NDArray  # (P, C)
    shift: NDArray  # (P, O)
    scale: NDArray  # (P, O)
    order: str = ""  # that they follow, if any

    @property
    def task(self) -> Cage2Task:
        """The game of CAGE-2 that the policies were trained for."""
        if isinstance(self.config, GymTrainConfig):
            raise RunError(f"{self.path} was trained on {self.config.target}, not on CAGE-2")
        return self.config.task

    @property
    def order_mask(self) -> OrderMask | None:
        """What the order leaves the policies to do; none without an order, or where it does not bind by a mask."""
        if not self.order or isinstance(self.config, GymTrainConfig):
            return None
        w = self.config.workflow
        mask = w.binding["mask"]
        return OrderMask(CAGE2.parse(self.order), mask, w.open_until) if mask != "none" else None

    @property
    def policies(self) -> int:
        """P."""
        return len(self.weights)

    def player(self, policy: int | None = None, *, greedy: bool = True, seed: int = 0) -> Player | TorchPlayer:
        """Acts for one policy, or for all of them side by side; the mask of their order is applied to what they see."""
        if policy is not None and not 0 <= policy < self.policies:
            raise ConfigError(f"policy is {policy}; {self.path} has {self.policies}, numbered from 0")
        which = slice(None) if policy is None else slice(policy, policy + 1)
        parts = (self.weights[which], self.context[which], self.shift[which], self.scale[which])
        seeds = [seed + p for p in range(len(parts[0]))]
        if isinstance(self.head, Choice):
            return Player(self.spec, *parts, greedy=greedy, seeds=seeds, mask=self.order_mask)
        return TorchPlayer(self.head, self.spec, *parts, greedy=greedy, seeds=seeds)


def load_policy(path: str | Path) -> SavedPolicy:
    """The policies in a run's newest checkpoint, or in the checkpoint given."""
    path = checkpoint_in(Path(path))
    checkpoint = load_checkpoint(path)
    if "slots" in checkpoint.info:
        raise RunError(f"{path} is of a search; name the run itself, and an order of it")
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
    order = config.order if isinstance(config, TrainConfig) else ""
    return SavedPolicy(path, config, int(checkpoint.info["update"]), head, spec, weights, context, shift, scale, order)
