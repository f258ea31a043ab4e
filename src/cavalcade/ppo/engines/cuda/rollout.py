"""A rollout on a device: observations and masks packed into integers."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cavalcade.ppo.engines.cuda.choice import WORD


@dataclass
class PackedRollout:
    """Samples of T steps of N environments for each of P policies, (P, T, N, …)."""

    words: Tensor  # (P, T, N, W) int64
    mask: Tensor  # (P, T, N, ⌈A / WORD⌉) int32: a bit per action
    action: Tensor  # int32
    log_prob: Tensor
    value: Tensor
    reward: Tensor
    ended: Tensor  # bool
    bootstrap: Tensor
    advantage: Tensor
    returns: Tensor
    last_value: Tensor  # (P, N)
    finals: Tensor  # (P, ends, N): returns of episodes that ended
    kinds: Tensor  # (P, ends, N) int8: their kinds
    episode_stats: Tensor  # (P, ends, N, F): their statistics

    @classmethod
    def allocate(
        cls,
        policies: int,
        steps: int,
        n: int,
        words: int,
        actions: int,
        ends: int,
        episode_stats: int,
        device: torch.device,
        real: torch.dtype = torch.float32,
    ) -> "PackedRollout":
        shape, over = (policies, steps, n), (policies, ends, n)

        def zeros(*shape: int, of: torch.dtype = real) -> Tensor:
            return torch.zeros(shape, dtype=of, device=device)

        return cls(
            words=zeros(*shape, words, of=torch.int64),
            mask=zeros(*shape, -(-actions // WORD), of=torch.int32),
            action=zeros(*shape, of=torch.int32),
            log_prob=zeros(*shape),
            value=zeros(*shape),
            reward=zeros(*shape),
            ended=zeros(*shape, of=torch.bool),
            bootstrap=zeros(*shape),
            advantage=zeros(*shape),
            returns=zeros(*shape),
            last_value=zeros(policies, n),
            finals=zeros(*over, of=torch.float64),
            kinds=zeros(*over, of=torch.int8),
            episode_stats=zeros(*over, episode_stats, of=torch.float64),
        )
