"""CAGE-2 games that stay on one device: games and outputs in its memory, one kernel per step, nothing copied back.

The games of a `Cage2` batch are copied to the device and can be fetched again. On the CPU the same functions run in a
loop, for tests only: `Cage2` is faster there.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.core.jit import kernel
from cavalcade.core.launch import Launcher
from cavalcade.envs.cage2 import game, observe, workflow
from cavalcade.envs.cage2.env import Cage2
from cavalcade.envs.cage2.own_red import knowledge
from cavalcade.envs.cage2.red_choice import OwnRed, loops_of
from cavalcade.envs.cage2.scenario import OWN
from cavalcade.envs.cage2.workflow import ORDER_BITS, WorkflowCage2


@kernel
def step_packed(count, s, p, actions, out):
    """Steps every game; writes observation and mask as packed integers only."""
    for e in range(count):
        game.advance_packed(s, p, e, np.int64(actions[e]), out)


@kernel
def step_workflow(count, s, p, actions, out, t, c, episode_stats):
    """As `step_packed`, for games with orders."""
    for e in range(count):
        workflow.advance_packed(s, p, e, np.int64(actions[e]), out, t, c, episode_stats)


class DeviceCage2:
    """The games of a batch on a device, see `core.device_games`."""

    def __init__(self, env: Cage2, device: torch.device):
        self.host, self.device = env, device
        self.launch = Launcher(device)
        self._step, self._lanes = _function(self.launch.on_gpu, isinstance(env, WorkflowCage2), env.spec.num_envs)
        self.num_envs, self.horizon = env.spec.num_envs, env.params.horizon
        self._tracked = isinstance(env, WorkflowCage2)
        self.actions = torch.zeros(self.num_envs, dtype=torch.int32, device=device)
        self._ahead = False  # the games are ahead of the batch they came from
        move = self.launch.moved
        self._state, self._out = move(env.state), move(env._outputs)
        self._track: Any = ()
        self._red_memory = move(env._red_memory)
        self._reds = _red_functions(self.launch.on_gpu, env._choices.reds if env._choices else ())
        more, bits = 0, observe.MASK_BITS
        if isinstance(env, WorkflowCage2):
            more, bits = ORDER_BITS * env.settings.show_order, workflow.MASK_BITS
            self._track = (move(env.track), env.settings, move(env.episode_stats))
        self.mask_bits = torch.from_numpy(bits).to(device)  # (A,): the bit of the mask words that allows an action
        places = observe.value_places(env.params.extras, env.params.horizon, more)
        self.value_places = torch.from_numpy(places).to(device)
        self.words, self.mask_words, self.final_words, self.reward, self.truncated, self.kind = (
            torch.as_tensor(getattr(self._out, name), device=self.device)
            for name in ("words", "mask_words", "final_words", "reward", "truncated", "final_red")
        )
        self.episode_stats: Tensor | None = (
            torch.as_tensor(self._track[2], device=self.device) if self._tracked else None
        )

    @property
    def steps(self) -> NDArray:
        return self.host.state.step

    def push(self) -> None:
        self._ahead = False
        env, copy = self.host, self.launch.copy
        copy(env.state, self._state)
        copy(env._outputs, self._out)
        copy(env._red_memory, self._red_memory)
        if isinstance(env, WorkflowCage2):
            copy(env.track, self._track[0])

    def push_weights(self) -> None:
        assert isinstance(self.host, WorkflowCage2)
        self.launch.copy(self.host.track.weight, self._track[0].weight)

    def pull(self) -> None:
        if not self._ahead:
            return
        self._ahead = False
        env, back = self.host, self.launch.back
        back(env.state, self._state)
        back(env._outputs, self._out)
        back((env._red_memory,), (self._red_memory,))
        if isinstance(env, WorkflowCage2):
            back(env.track, self._track[0])
        env._shown(np.arange(self.num_envs))

    def played(self) -> None:
        self._ahead = True

    def step(self) -> None:
        s = self._state
        for i, choose in enumerate(self._reds):
            k = knowledge(s, self._red_memory)
            self.launch(choose, self.num_envs, k, s.key, s.episode, s.red, OWN + i)
        track = self._track
        self.launch(
            self._step, self.num_envs, self._state, self.host.params, self.actions, self._out, *track, lanes=self._lanes
        )


def _red_functions(on_gpu: bool, reds: Sequence[OwnRed]) -> list[Any]:
    """The functions that ask user-defined Reds: kernels on a GPU, loops on the CPU."""
    for red in reds:
        red.check_gpu()
    if not on_gpu:
        return [partial(loops_of(red.function)[0], 0) for red in reds]
    from cavalcade.envs.cage2 import cuda

    return [cuda.red_kernel(red.function) for red in reds]


def _function(on_gpu: bool, tracked: bool, num_envs: int) -> tuple[Any, int]:
    """The function that steps all games, a kernel on a GPU and a loop above on the CPU, and its threads per game."""
    if not on_gpu:
        return step_workflow if tracked else step_packed, 1
    from cavalcade.envs.cage2 import cuda

    return cuda.step_workflow if tracked else cuda.step_packed, cuda.lanes(num_envs)
