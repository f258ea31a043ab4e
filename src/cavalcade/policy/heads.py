"""Action distributions over the actor's outputs: categorical, several categoricals, or a diagonal Gaussian.

A head turns outputs (…, outputs) into a distribution over actions. The caller passes the random numbers, uniform, one
for each part of an action. Masks (…, A) apply to categorical heads only: A is the number of outputs.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space
from torch import Tensor

_IMPOSSIBLE = -1e30  # logit of a masked action: its probability is 0
_HALF_LOG_2PI = 0.5 * float(np.log(2 * np.pi))
_SMALLEST = 2.0**-54  # keeps a uniform draw away from 0 and 1


class Head(ABC):
    """A distribution over actions."""

    kind: str
    integral = True  # whether actions are integers

    def __init__(self, sizes: Sequence[int], parts: tuple[int, ...], deviations: int = 0):
        self.sizes = tuple(sizes)
        self.outputs = sum(self.sizes)  # columns of the actor's last layer
        self.parts = parts  # shape of one action
        self.draws = parts[0] if parts else 1  # uniform numbers per action
        self.deviations = deviations  # log standard deviations: parameters of the actor besides its layers

    @abstractmethod
    def sample(self, logits: Tensor, mask: Tensor, uniform: Tensor) -> Tensor:
        """Actions (…, *parts) from uniform numbers (…, draws)."""

    @abstractmethod
    def greedy(self, logits: Tensor, mask: Tensor) -> Tensor:
        """The most probable actions, (…, *parts)."""

    @abstractmethod
    def evaluate(self, logits: Tensor, mask: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities of the actions and entropies, (…) each."""

    @abstractmethod
    def probabilities(self, logits: Tensor, mask: Tensor) -> Tensor:
        """Probabilities of all actions, those of each part after the other, (…, outputs); of a Gaussian, the means."""


def masked_log_probs(logits: Tensor, mask: Tensor) -> Tensor:
    """Log-probabilities of all actions, about −1e30 for masked ones; (…, A)."""
    return torch.log_softmax(logits.masked_fill(~mask, _IMPOSSIBLE), dim=-1)


class Choice(Head):
    """Categorical: one of A actions."""

    kind = "choice"

    def __init__(self, actions: int):
        super().__init__((actions,), ())

    def sample(self, logits: Tensor, mask: Tensor, uniform: Tensor) -> Tensor:
        """By inversion of the cumulative distribution."""
        cumulative = masked_log_probs(logits, mask).double().exp().cumsum(-1)
        target = uniform * cumulative[..., -1:]
        return torch.searchsorted(cumulative, target, right=True).clamp(max=self.outputs - 1).squeeze(-1)

    def greedy(self, logits: Tensor, mask: Tensor) -> Tensor:
        return logits.masked_fill(~mask, _IMPOSSIBLE).argmax(-1)

    def evaluate(self, logits: Tensor, mask: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = masked_log_probs(logits, mask)
        chosen = log_probs.gather(-1, action.long().unsqueeze(-1)).squeeze(-1)
        return chosen, -(log_probs.exp() * log_probs).sum(-1)

    def probabilities(self, logits: Tensor, mask: Tensor) -> Tensor:
        return masked_log_probs(logits, mask).exp()


class Choices(Head):
    """Several categoricals, independent given the observation: log-probabilities and entropies add up."""

    kind = "choices"

    def __init__(self, *sizes: int):
        super().__init__(sizes, (len(sizes),))

    def _each(self, logits: Tensor, mask: Tensor) -> list[tuple[Choice, Tensor, Tensor]]:
        cut = zip(logits.split(self.sizes, -1), mask.split(self.sizes, -1), strict=True)
        return [(Choice(size), *pair) for size, pair in zip(self.sizes, cut, strict=True)]

    def sample(self, logits: Tensor, mask: Tensor, uniform: Tensor) -> Tensor:
        each = enumerate(self._each(logits, mask))
        return torch.stack([one.sample(x, m, uniform[..., i : i + 1]) for i, (one, x, m) in each], -1)

    def greedy(self, logits: Tensor, mask: Tensor) -> Tensor:
        return torch.stack([one.greedy(x, m) for one, x, m in self._each(logits, mask)], -1)

    def evaluate(self, logits: Tensor, mask: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        each = enumerate(self._each(logits, mask))
        found = [one.evaluate(x, m, action[..., i]) for i, (one, x, m) in each]
        chosen, entropy = (torch.stack(column).sum(0) for column in zip(*found, strict=True))
        return chosen, entropy

    def probabilities(self, logits: Tensor, mask: Tensor) -> Tensor:
        return torch.cat([one.probabilities(x, m) for one, x, m in self._each(logits, mask)], -1)


class Point(Head):
    """Diagonal Gaussian over D dimensions; `logits` are D means and D log standard deviations."""

    kind = "point"
    integral = False

    def __init__(self, size: int):
        super().__init__((size,), (size,), deviations=size)

    def sample(self, logits: Tensor, mask: Tensor, uniform: Tensor) -> Tensor:
        """By inversion of the normal distribution."""
        mean, log_deviation = logits.chunk(2, -1)
        normal = torch.special.ndtri(uniform.clamp(_SMALLEST, 1 - 2 * _SMALLEST)).to(mean.dtype)
        return mean + log_deviation.exp() * normal

    def greedy(self, logits: Tensor, mask: Tensor) -> Tensor:
        return logits.chunk(2, -1)[0]

    def evaluate(self, logits: Tensor, mask: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_deviation = logits.chunk(2, -1)
        distance = (action - mean) / log_deviation.exp()
        density = (-0.5 * distance**2 - log_deviation - _HALF_LOG_2PI).sum(-1)
        return density, (0.5 + _HALF_LOG_2PI + log_deviation).sum(-1)

    def probabilities(self, logits: Tensor, mask: Tensor) -> Tensor:
        return self.greedy(logits, mask)


def head_for(space: Space) -> Head | None:
    """The head for an action space, or None if the space is not supported."""
    if isinstance(space, Discrete):
        return Choice(int(space.n))
    if isinstance(space, MultiDiscrete) and space.nvec.ndim == 1:
        return Choices(*(int(n) for n in space.nvec))
    if isinstance(space, Box) and len(space.shape) == 1 and np.issubdtype(space.dtype, np.floating):  # pyright: ignore
        return Point(int(space.shape[0]))
    return None


def head_from(kind: str, sizes: Sequence[int]) -> Head:
    """A head from its kind and sizes, as stored in a checkpoint."""
    return next(head for head in (Choice, Choices, Point) if head.kind == kind)(*sizes)
