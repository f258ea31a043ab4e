"""The recurrent engine on rows of values or pixels: values are normalised by their running moments if so configured."""

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.config.recurrent import MachineConfig, RecurrentPPOConfig
from cavalcade.core.contract import Environment
from cavalcade.policy.rows import RowPolicy
from cavalcade.ppo.engines.recurrent.engine import RecurrentEngine
from cavalcade.ppo.engines.recurrent.state import RecurrentState
from cavalcade.ppo.state import merge_moments, scaling_from


@dataclass
class RowState(RecurrentState):
    """As `RecurrentState`, and running moments of observations."""

    observation_count: Tensor  # (1,) float64
    observation_mean: Tensor  # (1, O) float64
    observation_square: Tensor  # (1, O) float64


class RowEngine(RecurrentEngine):
    """Trains one recurrent policy on rows."""

    state: RowState
    policy: RowPolicy

    def __init__(
        self,
        env: Environment,
        policy: RowPolicy,
        config: RecurrentPPOConfig,
        *,
        normalise: bool,
        device: torch.device,
        precision: str = "fp32",
        **options: Any,
    ):
        machine = MachineConfig(
            precision="bf16" if precision == "bf16" else "fp32"
        )  # tf32 is torch's default for cores
        super().__init__(env, policy, config, machine=machine, device=device, **options)
        self._convolutions = policy.layout.image is not None
        self._normalise = normalise and not self._convolutions

    def set_threads(self, threads: int) -> None:
        """Sets the threads of games in this process, and of the network unless its results depend on them."""
        numba.set_num_threads(threads)
        if not self._convolutions:
            torch.set_num_threads(threads)

    def fresh_state(self, agents: int) -> RowState:
        inputs, real = self.layout.shape[0], torch.float64
        plain = RecurrentState.fresh(agents).tensors()
        zeros = (torch.zeros(1, dtype=real), torch.zeros(1, inputs, dtype=real), torch.zeros(1, inputs, dtype=real))
        return RowState(**plain, observation_count=zeros[0], observation_mean=zeros[1], observation_square=zeros[2])

    def network(self) -> dict[str, Any]:
        return super().network() | {"head": self.head.kind, "sizes": self.head.sizes}

    def refresh(self) -> None:
        s = self.state
        moments = (s.observation_count, s.observation_mean, s.observation_square)
        shift, scale = scaling_from(*(x.numpy() for x in moments), normalise=self._normalise)
        self.policy.normalise(torch.from_numpy(shift[0]), torch.from_numpy(scale[0]))

    def finish(self) -> dict[str, NDArray]:
        """As in `RecurrentEngine`; updates the moments of observations if they are normalised."""
        found = super().finish()
        del found["tokens_dropped"]
        if self._normalise:
            s, x = self.state, self.experience.observation.flatten(0, 1).cpu().double()
            mean = x.mean(0, keepdim=True)
            count, square = np.array([float(len(x))]), ((x - mean) ** 2).sum(0, keepdim=True)
            moments = self.ranks.moments(count, mean.numpy(), square.numpy())
            merge_moments(s.observation_count, s.observation_mean, s.observation_square, *moments)
            self.refresh()
        return found
