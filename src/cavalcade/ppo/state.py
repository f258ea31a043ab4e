"""Hyper-parameters and training state of a population, one row per policy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cavalcade.config.ppo import CommonPPOConfig
from cavalcade.core.errors import ConfigError, StateError


@dataclass(frozen=True)
class HyperParams:
    """Hyper-parameters, one value per policy: (P,) float64 each."""

    learning_rate: np.ndarray
    gamma: np.ndarray
    gae_lambda: np.ndarray
    clip: np.ndarray
    value_coef: np.ndarray
    value_clip: np.ndarray
    entropy_coef: np.ndarray
    grad_clip: np.ndarray
    target_kl: np.ndarray

    @classmethod
    def of(cls, config: CommonPPOConfig, policies: int, **given: Sequence[float]) -> "HyperParams":
        """The values of the configuration for all policies, except those given per policy."""
        names = [f.name for f in fields(cls)]
        for name, values in given.items():
            if name not in names:
                raise ConfigError(f"{name!r} is not a hyper-parameter of a policy; there are {', '.join(names)}")
            if len(values) != policies:
                raise ConfigError(f"{name} has {len(values)} values for {policies} policies")
        return cls(**{n: np.array(given.get(n, [getattr(config, n)] * policies), np.float64) for n in names})


# Running moments that belong to the weights: what a policy has learnt depends on them.
MOMENTS = tuple(f"{what}_{part}" for what in ("observation", "return") for part in ("count", "mean", "square"))


class SavedTensors:
    """Base of dataclasses of tensors that are saved in a checkpoint, with counters and episodes in progress."""

    return_sum: Tensor
    return_count: Tensor
    return_mean: Tensor
    return_square: Tensor
    episode_return: Tensor
    episode_length: Tensor
    counters: Tensor  # (P, 2) int64: steps of each environment, updates

    def tensors(self) -> dict[str, Tensor]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # pyright: ignore[reportArgumentType]

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Copies saved tensors, in place; nothing changes if they do not fit."""
        load_into(self.tensors(), saved)

    def forget_games(self) -> None:
        """Clears the statistics of episodes in progress."""
        for tensor in (self.return_sum, self.episode_return, self.episode_length):
            tensor.zero_()

    @property
    def clock(self) -> int:
        """Steps per environment so far, the maximum over policies."""
        return int(self.counters[:, 0].max())

    @property
    def updates(self) -> int:
        """Updates so far, the maximum over policies."""
        return int(self.counters[:, 1].max())


@dataclass
class EngineState(SavedTensors):
    """Everything that training changes and a checkpoint holds; one row per policy."""

    weights: Tensor  # (P, D)
    first_moment: Tensor  # (P, D)
    second_moment: Tensor  # (P, D)
    adam_steps: Tensor  # (P,) int64
    return_sum: Tensor  # (P, N) float64: discounted sum of rewards so far in each environment …
    return_count: Tensor  # (P,) float64: … and its running moments
    return_mean: Tensor  # (P,) float64
    return_square: Tensor  # (P,) float64
    observation_count: Tensor  # (P,) float64: running moments of observations
    observation_mean: Tensor  # (P, O) float64
    observation_square: Tensor  # (P, O) float64
    episode_return: Tensor  # (P, N) float64: of the episode in progress
    episode_length: Tensor  # (P, N) int64
    counters: Tensor  # (P, 2) int64: steps of each environment, updates

    @classmethod
    def fresh(cls, spec: Any, seeds: Sequence[int], num_envs: int, dtype: torch.dtype = torch.float32) -> "EngineState":
        """The state before the first update."""
        policies = len(seeds)
        weights = spec.initial_weights(list(seeds), dtype)

        def zeros(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
            return torch.zeros(shape, dtype=dtype)

        return cls(
            weights=weights,
            first_moment=torch.zeros_like(weights),
            second_moment=torch.zeros_like(weights),
            adam_steps=zeros(policies, dtype=torch.int64),
            return_sum=zeros(policies, num_envs),
            return_count=zeros(policies),
            return_mean=zeros(policies),
            return_square=zeros(policies),
            observation_count=zeros(policies),
            observation_mean=zeros(policies, spec.inputs),
            observation_square=zeros(policies, spec.inputs),
            episode_return=zeros(policies, num_envs),
            episode_length=zeros(policies, num_envs, dtype=torch.int64),
            counters=zeros(policies, 2, dtype=torch.int64),
        )


def observation_scaling(state: EngineState, normalise: bool) -> tuple[np.ndarray, np.ndarray]:
    """Shift and scale that normalise observations, x ↦ (x − shift) · scale, (P, O) each."""
    moments = (state.observation_count, state.observation_mean, state.observation_square)
    return scaling_from(*(x.cpu().numpy() for x in moments), normalise=normalise)


def scaling_from(
    count: np.ndarray, mean: np.ndarray, square: np.ndarray, *, normalise: bool
) -> tuple[np.ndarray, np.ndarray]:
    """As `observation_scaling`, from running moments; the identity for a policy without any."""
    known = (count > 0)[:, None] & normalise
    deviation = np.sqrt(square / np.maximum(count, 1)[:, None] + 1e-8)
    return np.where(known, mean, 0.0), np.where(known, 1 / np.maximum(deviation, 1e-3), 1.0)


def merge_moments(count: Tensor, mean: Tensor, square: Tensor, n: np.ndarray, m: np.ndarray, s: np.ndarray) -> None:
    """Adds n samples of mean m and sum of squared deviations s to running moments, per policy, in place (Chan)."""
    n_, m_, s_ = (torch.as_tensor(x, dtype=torch.float64) for x in (n, m, s))
    total = count + n_
    delta = m_ - mean
    ratio = (n_ / total).unsqueeze(-1)
    square += s_ + delta**2 * count.unsqueeze(-1) * ratio
    mean += delta * ratio
    count.copy_(total)


def load_into(mine: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    """Copies saved tensors into tensors of the same names; nothing changes if any does not fit."""
    for name, tensor in mine.items():
        if name not in saved:
            raise StateError(f"the checkpoint lacks {name}; it was written by another version or is incomplete")
        if saved[name].shape != tensor.shape or saved[name].dtype != tensor.dtype:
            raise StateError(
                f"{name} of the checkpoint is {saved[name].dtype} {tuple(saved[name].shape)}; "
                f"this run needs {tensor.dtype} {tuple(tensor.shape)}"
            )
    with torch.no_grad():
        for name, tensor in mine.items():
            tensor.copy_(saved[name])
