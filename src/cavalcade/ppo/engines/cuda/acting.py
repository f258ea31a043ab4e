"""Logits and values while acting: for every environment, or once per distinct observation of a rollout."""

from typing import Protocol

import torch
from torch import Tensor

from cavalcade.core.device_games import DeviceGames
from cavalcade.policy.mlp import NETS, MlpSpec
from cavalcade.ppo.engines.cuda.evaluate import MOST_VALUES, NONE, TILE
from cavalcade.ppo.engines.cuda.network import Network
from cavalcade.ppo.engines.cuda.ops import Ops
from cavalcade.ppo.engines.cuda.rollout import PackedRollout
from cavalcade.ppo.engines.cuda.sample import Returned


class Acting(Protocol):
    """What environments draw their actions from."""

    logits: Tensor  # (rows, A or more)
    values: Tensor  # (rows,)
    row: Tensor  # (P·N,): that of each environment

    def begin(self) -> None:
        """Begins a rollout: the weights may have changed."""
        ...

    def see(self, t: int, end: int, x: Returned) -> None:
        """Keeps what games return (`sample.keep`); computes logits and values of the observations of step t."""
        ...


class PlainActing:
    """The network runs for every environment."""

    def __init__(self, ops: Ops, games: DeviceGames, network: Network):
        self._ops, self._games, self._network = ops, games, network
        self.row = torch.arange(games.num_envs, dtype=torch.int32, device=games.device)

    def begin(self) -> None:
        pass

    def see(self, t: int, end: int, x: Returned) -> None:
        games, inputs = self._games, self._network.x
        self._ops.keep(games.num_envs, t, end, x)
        self._ops.unpack(games.words.view(len(inputs), -1, games.words.shape[1]), games.value_places, inputs)
        logits, values = self._network.forward()
        self.logits, self.values = logits.flatten(0, 1), values.flatten()


class DistinctActing:
    """The network runs once per distinct observation of a rollout, in single precision."""

    def __init__(self, ops: Ops, games: DeviceGames, spec: MlpSpec, weights: Tensor, rollout: PackedRollout):
        self._ops, self._games, self._weights = ops, games, weights
        policies, self._steps, n = rollout.action.shape
        device, total = games.device, rollout.action.numel()

        def integers(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int32, device=device)

        self._slots = integers(policies, 1 << (2 * self._steps * n - 1).bit_length())
        self._fresh, self._num_fresh = integers(policies, n), integers(self._steps, policies)
        self._words = games.words.view(policies, n, -1)
        self._blocks = policies * min(-(-n // TILE), -(-ops.blocks // policies))
        places = [[(y.weight, y.bias, y.fan_in, y.columns, y.fan_out) for y in spec.layers(net)] for net in NETS]
        self._layers = torch.tensor(places, dtype=torch.int64, device=device)
        self.logits = torch.zeros(total, spec.padded_actions, dtype=weights.dtype, device=device)
        self.values = torch.zeros(total, dtype=weights.dtype, device=device)
        self.row = integers(policies * n)

    @staticmethod
    def suits(spec: MlpSpec) -> bool:
        """Whether a tile of observations and layers fits into the memory of a block."""
        return max(spec.inputs, 2 * max(spec.hidden), spec.actions + 1) <= MOST_VALUES

    def begin(self) -> None:
        self._slots.fill_(NONE)
        self._num_fresh.zero_()

    def see(self, t: int, end: int, x: Returned) -> None:
        games, ops, num_fresh = self._games, self._ops, self._num_fresh[t]
        ops.find(games.num_envs, t, end, x, self._slots, self._fresh, num_fresh, self.row)
        ops.evaluate(
            self._blocks, self._layers, self._weights, self._words, games.value_places, t, self._steps, self._fresh,
            num_fresh, self.logits, self.values,
        )  # fmt: skip
