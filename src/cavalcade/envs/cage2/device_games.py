"""CAGE-2 that stays on one device: games and outputs in its memory, one kernel per step, nothing copied back.

The games of an ordinary batch are moved there and can be fetched again. On the CPU the same functions run in a loop:
that is for tests, `Cage2` is the fast one there.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from cavalcade.envs.cage2 import game, observe, workflow
from cavalcade.envs.cage2.env import Cage2
from cavalcade.envs.cage2.workflow import ORDER_BITS, WorkflowCage2
from cavalcade.jit import kernel
from cavalcade.launch import Launcher


@kernel
def step_packed(count, s, p, actions, out):
    """One step of every game with observation and mask as integers only."""
    for e in range(count):
        game.advance_packed(s, p, e, np.int64(actions[e]), out)


@kernel
def step_workflow(count, s, p, actions, out, t, c, figures):
    """The same for games with orders."""
    for e in range(count):
        workflow.advance_packed(s, p, e, np.int64(actions[e]), out, t, c, figures)


@kernel
def unpack(count, p, more, words, values):
    """Observations as one value per bit."""
    for i in range(count):
        observe.unpack(i, p, more, words, values)


class ResidentCage2:
    """The games of a batch on a device. Tensors are views of where its kernels write, (N, …)."""

    def __init__(self, env: Cage2, device: torch.device):
        self.host, self.device = env, device
        self.launch = Launcher(device, __name__, "cavalcade.envs.cage2.cuda")
        self.num_envs, self.horizon = env.spec.num_envs, env.params.horizon
        self._tracked = isinstance(env, WorkflowCage2)
        self._more = 0  # values of the order, behind the others
        self.actions = torch.zeros(self.num_envs, dtype=torch.int32, device=device)
        self._ahead = False  # of the batch that they came from
        move = self.launch.moved
        self._state, self._out = move(env.state), move(env._outputs)
        self._track: Any = ()
        bits = observe.MASK_BITS
        if isinstance(env, WorkflowCage2):
            self._more, bits = ORDER_BITS * env.settings.show_order, workflow.MASK_BITS
            self._track = (move(env.track), env.settings, move(env.figures))
        self.mask_bits = torch.from_numpy(bits).to(device)  # (A,): which bit of the mask words allows an action
        self.words, self.mask_words, self.final_words, self.reward, self.truncated, self.red = (
            torch.as_tensor(getattr(self._out, name), device=self.device)
            for name in ("words", "mask_words", "final_words", "reward", "truncated", "final_red")
        )
        self.figures: Tensor | None = torch.as_tensor(self._track[2], device=self.device) if self._tracked else None

    def push(self) -> None:
        """Takes over the games of the batch as they are now, in place."""
        self._ahead = False
        env, copy = self.host, self.launch.copy
        copy(env.state, self._state)
        copy(env._outputs, self._out)
        if isinstance(env, WorkflowCage2):
            copy(env.track, self._track[0])

    def push_weights(self) -> None:
        """Takes over the weights of alignment alone."""
        assert isinstance(self.host, WorkflowCage2)
        self.launch.copy(self.host.track.weight, self._track[0].weight)

    def pull(self) -> None:
        """Brings the games back into the batch, unless they are there already."""
        if not self._ahead:
            return
        self._ahead = False
        env, back = self.host, self.launch.back
        back(env.state, self._state)
        back(env._outputs, self._out)
        if isinstance(env, WorkflowCage2):
            back(env.track, self._track[0])
        env._shown(np.arange(self.num_envs))

    def played(self) -> None:
        """To be called after steps, also those of a graph: the batch does not know of them."""
        self._ahead = True

    def step(self) -> None:
        """One step with the actions in `actions`; see `played`."""
        name = "step_workflow" if self._tracked else "step_packed"
        self.launch(name, self.num_envs, self._state, self.host.params, self.actions, self._out, *self._track)

    def observe(self, words: Tensor, x: Tensor) -> None:
        """Writes observations (P, b, W) as values, feature by feature: (P, O, b)."""
        count = words.shape[0] * words.shape[1]
        self.launch("unpack", count, self.host.params, self._more, words, x.transpose(1, 2))
