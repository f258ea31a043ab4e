"""The samples between two updates, and the episodes that ended in them."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cavalcade.core.contract import Environment
from cavalcade.policy.heads import Head


@dataclass
class Rollout:
    """Samples of T steps of N environments for each of P policies, (P, T, N, …): those of a policy are contiguous."""

    action: Tensor  # int32, or float: (P, T, N, …)
    log_prob: Tensor
    value: Tensor
    reward: Tensor  # float32
    ended: Tensor  # bool: the episode ended in this step
    bootstrap: Tensor  # where it ended: value of the final observation if truncated, 0 if terminated
    mask: Tensor  # (P, T, N, A) bool
    last_value: Tensor  # (P, N): value of the observation after the last step
    advantage: Tensor
    returns: Tensor
    observation: Tensor  # (P, T, N, O), empty with deduplication
    row: Tensor  # int32: index of a sample's distinct observation, empty without deduplication
    mask_words: Tensor  # (P, T, N, V) int64, empty without deduplication

    @classmethod
    def allocate(
        cls,
        env: Environment,
        head: Head,
        policies: int,
        steps: int,
        *,
        distinct: bool,
        dtype: torch.dtype = torch.float32,
    ) -> "Rollout":
        """Buffers for one rollout; with `distinct`, observations are not stored per sample."""
        n = env.spec.num_envs // policies
        shape = (policies, steps, n)
        observation = env.buffers.observation
        words = env.packed.action_mask.shape[1] if distinct and env.packed else 0

        def zeros(*more: int, of: torch.dtype = dtype) -> Tensor:
            return torch.zeros((*shape, *more), dtype=of)

        return cls(
            action=zeros(*head.parts, of=torch.int32 if head.integral else dtype),
            log_prob=zeros(),
            value=zeros(),
            reward=zeros(of=torch.float32),
            ended=zeros(of=torch.bool),
            bootstrap=zeros(),
            mask=zeros(env.buffers.action_mask.shape[1], of=torch.bool),
            last_value=torch.zeros(policies, n, dtype=dtype),
            advantage=zeros(),
            returns=zeros(),
            observation=zeros(
                0 if distinct else observation.shape[1], of=torch.from_numpy(np.zeros(0, observation.dtype)).dtype
            ),
            row=zeros(of=torch.int32) if distinct else torch.zeros(0, dtype=torch.int32),
            mask_words=zeros(words, of=torch.int64),
        )


class Episodes(NamedTuple):
    """Episodes that ended, in order; arrays of the same length."""

    policy: np.ndarray
    environment: np.ndarray  # index within the policy
    kind: np.ndarray  # index into the environment's episode_kind_names
    total: np.ndarray  # return
    length: np.ndarray
    episode_stats: np.ndarray  # (n, F): statistics beyond return and length


@dataclass
class EpisodeLog:
    """Collects the episodes that end during a rollout."""

    num_stats: int = 0  # F
    parts: dict[tuple[int, int], Episodes] = field(default_factory=dict)  # by step and first environment

    def add(self, t: int, start: int, ended: Episodes) -> None:
        """Adds episodes that ended in step t of the environments from start on."""
        self.parts[t, start] = ended

    def take(self) -> Episodes:
        """Returns all episodes so far, by step and environment, and clears the log."""
        parts = [self.parts[key] for key in sorted(self.parts)]
        self.parts.clear()
        if not parts:
            empty = np.zeros(0, np.int64)
            return Episodes(empty, empty, empty, np.zeros(0), empty, np.zeros((0, self.num_stats)))
        return Episodes(*(np.concatenate(column) for column in zip(*parts, strict=True)))
