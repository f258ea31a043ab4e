"""The recurrent engine on a GPU with games on the host: observations travel from pinned memory while the GPU acts.

Each group of environments has buffers of its own, in pinned memory and on the device. Nothing waits before the actions
of a group are read, so that another group whose results have arrived is uploaded and launched meanwhile; network and
draw of a group are one CUDA graph. On the CPU the same code runs without graphs, which is how it is tested.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.core.recorded import Recorded
from cavalcade.ppo.draws import uniform_draws
from cavalcade.ppo.engines.recurrent.engine import RecurrentEngine

_EAGER = 2  # steps of a group before its graph is captured: kernels are compiled in them


class Pending:
    """Actions on their way to the host; to read them is to wait."""

    def __init__(self, actions: Tensor, arrived: Any):
        self._actions, self._arrived = actions, arrived

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        if self._arrived is not None:
            self._arrived.synchronize()
        return np.asarray(self._actions.numpy(), dtype)


class Slot:
    """Inputs of a group in pinned memory and on the device, and its actions in pinned memory.

    The buffers are written again in the group's next step, after its actions were read: the copies are done by then.
    """

    def __init__(self, inputs: tuple[Tensor, ...], device: torch.device, graphs: bool):
        self._on_gpu = device.type == "cuda"
        self._host = tuple(torch.empty_like(x, pin_memory=self._on_gpu) for x in inputs)
        self.device = tuple(torch.empty_like(x, device=device) for x in inputs)
        self._actions = torch.empty(0)
        self._recorded = Recorded(graphs and self._on_gpu, _EAGER)

    def upload(self, inputs: tuple[Tensor, ...]) -> None:
        """Begins to copy inputs to the device."""
        for host, device, x in zip(self._host, self.device, inputs, strict=True):
            device.copy_(host.copy_(x), non_blocking=True)

    def run(self, compute: Callable[..., tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """Outputs of a function of the inputs, as a CUDA graph once its kernels are compiled."""
        return self._recorded(lambda: compute(*self.device))

    def download(self, actions: Tensor) -> Pending:
        """Begins to copy actions to the host."""
        if not self._on_gpu:
            return Pending(actions, None)
        if self._actions.shape != actions.shape:
            self._actions = torch.empty_like(actions, device="cpu", pin_memory=True)
        self._actions.copy_(actions, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record()
        return Pending(self._actions, arrived)


class StagedEngine(RecurrentEngine):
    """Trains one recurrent policy on a GPU, on games in this process or in workers."""

    def __init__(self, *args: Any, graphs: bool = True, **options: Any):
        super().__init__(*args, **options)
        self._graphs = graphs
        self._slots: dict[int, Slot] = {}  # by the first row of a group

    @torch.no_grad()
    def act(self, t: int, group: slice) -> Pending:  # pyright: ignore[reportIncompatibleMethodOverride] — an array
        e, count = self.experience, group.stop - group.start
        begins = self._begins[group] if t == 0 else e.results.ended[0, t - 1, group].numpy()
        draws = np.zeros((count, self.head.draws))
        uniform_draws(self._keys, np.array([self.state.clock + t]), group.start, draws)
        arrays = (self.env.buffers.action_mask[group], draws, ~begins)
        self._count_dropped(self.env.buffers.observation[group])
        inputs = (self._shown(group), *map(torch.from_numpy, arrays))
        if group.start not in self._slots:
            self._slots[group.start] = Slot(inputs, self.device, self._graphs)
        slot = self._slots[group.start]
        slot.upload(inputs)
        observation, mask, _, keep = slot.device
        rows, at = e.rows(t, group)
        if at == 0:
            for stored, s in zip(e.state, self._memory, strict=True):
                stored[:, rows] = (s[:, group] * keep.unsqueeze(-1)).to(stored.device)
        e.begins[rows, at] = begins if at else False  # the stored state at a segment's start is already reset
        e.observation[rows, at] = observation.to(e.observation.device)
        e.mask[rows, at] = mask.to(e.mask.device)
        value, log_prob, action = slot.run(lambda *given: self._outputs(group, *given))
        e.value[rows, at], e.log_prob[rows, at] = value.to(e.value), log_prob.to(e.log_prob)
        e.action[rows, at] = action.to(e.action)
        return slot.download(action)

    def _outputs(self, group: slice, observation: Tensor, mask: Tensor, draws: Tensor, keep: Tensor):
        """Values, log-probabilities and actions of a group; its recurrent state moves on in place."""
        memory = tuple(s[:, group] * keep.unsqueeze(-1) for s in self._memory)
        with self._autocast():
            out, after = self.policy(observation.unsqueeze(0), memory, np.zeros((1, len(keep)), np.bool_))
        for mine, s in zip(self._memory, after, strict=True):
            mine[:, group] = s
        logits = out.logits[0].float()
        action = self.head.sample(logits, mask, draws)
        return out.values[0], self.head.evaluate(logits, mask, action)[0], action
