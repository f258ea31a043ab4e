"""The experience between two updates, and the episodes that ended in it."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cavalcade.envs.contract import Environment
from cavalcade.policy.heads import Head


@dataclass
class Rollout:
    """Samples of T steps of N environments for each of P policies: (P, T, N, …), so that a policy's are contiguous."""

    action: Tensor  # int32, or float: (P, T, N, …)
    log_prob: Tensor
    value: Tensor
    reward: Tensor  # float32
    ended: Tensor  # bool: the episode ended in this step …
    bootstrap: Tensor  # … and this is the value of what would have come, 0 if nothing
    mask: Tensor  # (P, T, N, A) bool
    last_value: Tensor  # (P, N): value of the observation after the last step
    advantage: Tensor
    returns: Tensor
    observation: Tensor  # (P, T, N, O), empty where rows stand for observations
    row: Tensor  # int32: the distinct observation of a sample, empty in plain mode
    mask_words: Tensor  # (P, T, N, V) int64, likewise

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
        """Buffers for one rollout; distinct rows need no observations of their own."""
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


class Ended(NamedTuple):
    """Episodes that ended, in order; arrays of the same length."""

    policy: np.ndarray
    environment: np.ndarray  # index within the policy
    label: np.ndarray  # what kind of episode it was, an index into the environment's labels
    total: np.ndarray  # return
    length: np.ndarray
    figures: np.ndarray  # (n, F): what else the environment measures about an episode


@dataclass
class EpisodeLog:
    """Gathers the episodes that end during a rollout."""

    num_figures: int = 0  # F
    parts: dict[tuple[int, int], Ended] = field(default_factory=dict)  # by step and first environment

    def add(self, t: int, start: int, ended: Ended) -> None:
        """Episodes that ended in step t of the environments from start on."""
        self.parts[t, start] = ended

    def take(self) -> Ended:
        """All gathered so far, by step and environment; the log is empty afterwards."""
        parts = [self.parts[key] for key in sorted(self.parts)]
        self.parts.clear()
        if not parts:
            empty = np.zeros(0, np.int64)
            return Ended(empty, empty, empty, np.zeros(0), empty, np.zeros((0, self.num_figures)))
        return Ended(*(np.concatenate(column) for column in zip(*parts, strict=True)))
