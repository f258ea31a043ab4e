"""Kickstarting (Schmitt et al. 2018): imitates a trained policy at first, with a weight that decays to 0."""

import numpy as np
import torch
from torch import Tensor

from cavalcade.policy.recurrent import Output, State, TokenPolicy
from cavalcade.ppo.engines.recurrent.auxiliary_loss import AuxiliaryLoss
from cavalcade.ppo.engines.recurrent.experience import Experience, Segments

_FALLS = 0.65  # the weight decays over this last share of its steps


class Kickstart(AuxiliaryLoss):
    """Adds the cross-entropy to a teacher's actions and the squared distance to its values.

    The teacher sees every observation once per update, in order and with its own recurrent state. scale: the factor by
    which its training multiplied rewards, since its values are in that scale.
    """

    def __init__(self, teacher: TokenPolicy, scale: float, action: float, value: float, steps: int, batch: int):
        self.teacher, self._scale, self._batch, self._steps = teacher.eval(), scale, batch, steps
        self._action, self._value = action, value
        self._memory: State = ()
        self._logits, self._values = torch.zeros(0), torch.zeros(0)
        self._over = np.zeros(0, np.bool_)
        self._to_mine = 1.0
        self.weight = 1.0

    @torch.no_grad()
    def begin(self, experience: Experience, update: int, progress: float) -> None:
        """Computes the teacher's logits and values for the whole experience."""
        done = update * self._batch / self._steps
        self.weight = float(np.clip((1 - done) / _FALLS, 0.0, 1.0))
        if not self.weight:
            self._logits = self._values = torch.zeros(0)
            return
        e = experience
        self._to_mine = e.scale / self._scale
        ended = e.results.ended[0].numpy()
        if not len(self._over):
            self._memory, self._over = self.teacher.initial_state(e.agents), np.zeros(e.agents, np.bool_)
        begins = np.concatenate([self._over[None], ended[:-1]])
        said = []
        for s in range(e.steps // e.horizon):
            seen = e.observation[s * e.agents : (s + 1) * e.agents].to(e.device).transpose(0, 1)
            out, self._memory = self.teacher(seen, self._memory, begins[s * e.horizon : (s + 1) * e.horizon])
            said.append((out.logits.float().transpose(0, 1), out.values.float().transpose(0, 1)))
        self._logits, self._values = (torch.cat(column) for column in zip(*said, strict=True))
        self._over = ended[-1].copy()

    def loss(self, batch: Segments, out: Output) -> tuple[Tensor, dict[str, Tensor]]:
        """The weighted distance to the teacher on these segments."""
        if not self.weight:
            return super().loss(batch, out)
        index = batch.index.to(self._logits.device)
        wanted = torch.softmax(self._logits[index].transpose(0, 1), -1)
        action = -(wanted * torch.log_softmax(out.logits.float(), -1)).sum(-1).mean()
        value = (out.values.float() - self._to_mine * self._values[index].T).square().mean()
        loss = self.weight * (self._action * action + self._value * value)
        return loss, {"kickstart_action": action.detach(), "kickstart_value": value.detach()}

    def end(self, model: torch.nn.Module, update: int) -> dict[str, Tensor]:
        return {"kickstart_weight": torch.tensor(self.weight)}
