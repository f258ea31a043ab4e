"""Experience in segments: h steps of one agent each, with the recurrent state at their start.

Segment s·N + i holds steps s·h … s·h + h − 1 of agent i and is contiguous: a minibatch is a set of segments.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.policy.heads import Head
from cavalcade.policy.recurrent import ObservationLayout, State


class Segments(NamedTuple):
    """A minibatch: b segments of h steps, time first."""

    observation: Tensor  # (h, b, …)
    mask: Tensor  # (h, b, A) bool
    action: Tensor  # (h, b, …)
    log_prob: Tensor  # when collected
    value: Tensor  # when collected
    advantage: Tensor
    returns: Tensor
    state: State  # at the start, (L, b, H) each
    begins: NDArray[np.bool_]  # (h, b): where an episode begins, on the host
    index: Tensor  # (b,): numbers of the segments


@dataclass
class CollectedResults:
    """The results that `collect` records: on the host, in its shapes with one policy."""

    reward: Tensor  # (1, T, N)
    ended: Tensor
    bootstrap: Tensor
    last_value: Tensor  # (1, N)


class Experience:
    """Buffers for T = S·h steps of N agents."""

    def __init__(
        self,
        agents: int,
        steps: int,
        horizon: int,
        layout: ObservationLayout,
        head: Head,
        state: State,
        device: torch.device,
        *,
        masks: int,
        offload: bool = False,
    ):
        self.agents, self.steps, self.horizon, self.device = agents, steps, horizon, device
        self.segments = steps // horizon * agents
        home = torch.device("cpu") if offload else device

        def zeros(*more: int, of: torch.dtype = torch.float32) -> Tensor:
            made = torch.zeros(self.segments, horizon, *more, dtype=of, device=home)
            return made.pin_memory() if offload and device.type == "cuda" else made

        self.observation = zeros(*layout.shape, of=layout.dtype)
        self.mask = zeros(masks, of=torch.bool)
        self.action = zeros(*head.parts, of=torch.int32 if head.integral else torch.float32)
        self.log_prob, self.value, self.advantage, self.returns = zeros(), zeros(), zeros(), zeros()
        self.state = tuple(torch.zeros(len(s), self.segments, s.shape[-1], device=home) for s in state)
        self.scale = 1.0  # factor of rewards
        shape = (1, steps, agents)
        self.begins = np.zeros((self.segments, horizon), np.bool_)
        self.results = CollectedResults(
            torch.zeros(shape), torch.zeros(shape, dtype=torch.bool), torch.zeros(shape), torch.zeros(1, agents)
        )

    def rows(self, t: int, group: slice) -> tuple[slice, int]:
        """The segments of a group of agents at step t, and the step within them."""
        first = t // self.horizon * self.agents
        return slice(first + group.start, first + group.stop), t % self.horizon

    def by_time(self, x: Tensor) -> Tensor:
        """A field as (1, T, N)."""
        return x.view(-1, self.agents, self.horizon).transpose(1, 2).reshape(1, self.steps, self.agents).contiguous()

    def by_segment(self, x: Tensor) -> Tensor:
        """(1, T, N) as a field."""
        return x.view(-1, self.horizon, self.agents).transpose(1, 2).reshape(self.segments, self.horizon).contiguous()

    def take(
        self, index: Tensor, begins: NDArray[np.bool_] | None = None, *, without_observations: bool = False
    ) -> Segments:
        """The segments with the given numbers, on the device of the network; begins: (h, b), if already known."""
        here = index.to(self.observation.device)

        def pick(x: Tensor) -> Tensor:
            return x.index_select(0, here).to(self.device, non_blocking=True).transpose(0, 1)

        state = tuple(s.index_select(1, here).to(self.device, non_blocking=True) for s in self.state)
        observation = self.observation[:0] if without_observations else pick(self.observation)
        mask, action, log_prob, value, advantage, returns = map(pick, self._fields)
        if begins is None:
            begins = self.begins[index.cpu().numpy()].T
        return Segments(observation, mask, action, log_prob, value, advantage, returns, state, begins, index)

    @property
    def _fields(self) -> tuple[Tensor, ...]:
        return (self.mask, self.action, self.log_prob, self.value, self.advantage, self.returns)
