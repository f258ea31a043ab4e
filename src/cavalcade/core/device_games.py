"""Games that stay on one device: the interface between an environment and an engine on a GPU."""

from typing import Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor


class DeviceGames(Protocol):
    """The games of a batch on a device. Tensors are views of the arrays that its kernels write, (N, …)."""

    device: torch.device
    num_envs: int  # N
    horizon: int  # length of every episode
    mask_bits: Tensor  # (A,): the bit of the mask words that allows an action; −1 if it is always allowed
    value_places: Tensor  # (O, 2) int32: a bit of the words and 0, or a word's first bit and what it is divided by
    actions: Tensor  # int32: input of `step`
    words: Tensor  # (N, W) int64: observations
    mask_words: Tensor  # (N, V) int64
    final_words: Tensor  # (N, W): valid in rows whose episode ended in the latest step
    reward: Tensor
    truncated: Tensor
    kind: Tensor  # of the episode that ended in the latest step
    episode_stats: Tensor | None  # (N, F)

    @property
    def steps(self) -> NDArray:
        """Steps taken in the current episode of each game, as of the latest `pull`."""
        ...

    def push(self) -> None:
        """Copies the games of the batch to the device, in place."""
        ...

    def push_weights(self) -> None:
        """Copies only the weights of alignment rewards to the device."""
        ...

    def pull(self) -> None:
        """Copies the games back into the batch, unless it is up to date."""
        ...

    def played(self) -> None:
        """Marks the batch as out of date; call it after steps, including those of a replayed CUDA graph."""
        ...

    def step(self) -> None:
        """Steps every game with the actions in `actions`."""
        ...
