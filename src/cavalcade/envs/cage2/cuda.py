"""The same rules on a GPU: kernels around the functions of `game`, one thread per game.

Without a GPU the same code runs, slowly, in Numba's CUDA simulator (NUMBA_ENABLE_CUDASIM=1 with NUMBA_DISABLE_JIT=1).
"""

from functools import cache
from typing import Any

import numpy as np

from cavalcade.core.contract import Buffers
from cavalcade.core.cuda import check_device, cuda, gpu_kernel
from cavalcade.core.errors import ConfigError, StateError
from cavalcade.core.rng import index_below, step_key, word
from cavalcade.envs.cage2 import game, observe, workflow
from cavalcade.envs.cage2.env import Cage2
from cavalcade.envs.cage2.game import Outputs
from cavalcade.envs.cage2.red_choice import choice_of
from cavalcade.envs.cage2.scenario import NUM_ACTIONS
from cavalcade.envs.cage2.state import State

THREADS = 128  # per block
_BLUE = 1 << 19  # purpose of a random Blue's draws, not used by games


@gpu_kernel
def step_all(s, p, actions, out):
    """Steps every game; writes all outputs."""
    e = cuda.grid(1)
    if e < actions.size:
        game.advance(s, p, e, np.int64(actions[e]), out)


@gpu_kernel
def step_packed(count, s, p, actions, out):
    """Steps every game; writes observation and mask as packed integers only."""
    e = cuda.grid(1)
    if e < count:
        game.advance_packed(s, p, e, np.int64(actions[e]), out)


@gpu_kernel
def step_workflow(count, s, p, actions, out, t, c, episode_stats):
    """As `step_packed`, for games with orders."""
    e = cuda.grid(1)
    if e < count:
        workflow.advance_packed(s, p, e, np.int64(actions[e]), out, t, c, episode_stats)


@gpu_kernel
def unpack(count, p, more, words, values):
    """Unpacks observations into one value per bit."""
    i = cuda.grid(1)
    if i < count:
        observe.unpack(i, p, more, words, values)


@gpu_kernel
def draw_random(s, actions):
    """Uniform random actions from the counter-based generator."""
    e = cuda.grid(1)
    if e < actions.size:
        bits = word(step_key(s.key[e], s.episode[e], s.step[e]), _BLUE)
        actions[e] = index_below(bits, NUM_ACTIONS)


@cache
def red_kernel(function: Any) -> Any:
    """The kernel that asks a compiled Red of the user's in all games; not cached on disk."""
    choice = choice_of(function)

    @cuda.jit
    def choose_all(games, k, keys, episodes, reds, number):
        e = cuda.grid(1)
        if e < games and reds[e] == number:
            choice(k, keys, episodes, e)

    return choose_all


def blocks(num_envs: int) -> int:
    """Number of blocks of a launch."""
    return -(-num_envs // THREADS)


def moved(record: Any) -> Any:
    """A named tuple of arrays, copied to the GPU."""
    return type(record)(*(cuda.to_device(np.ascontiguousarray(array)) for array in record))


class CudaGames:
    """The games of a batch, copied to the GPU; they continue there and are never copied back.

    `step` launches on `stream`, a Numba stream; state and outputs stay on the device.
    """

    def __init__(self, env: Cage2):
        check_device()
        if env._choices:
            raise ConfigError(f"red is {env._choices.reds[0].label}; CudaGames plays the challenge's Reds only")
        self.params, self.num_envs = env.params, env.spec.num_envs
        self.state: State = moved(env.state)
        self.outputs: Outputs = moved(env._outputs)
        self.actions: Any = cuda.to_device(np.zeros(self.num_envs, np.int32))

    def step(self, stream: Any = 0, *, packed: bool = True) -> None:
        """Steps every game with the actions in `actions`."""
        grid = (blocks(self.num_envs), THREADS, stream)
        packing, plain = step_packed, step_all
        if packed:
            packing[grid](self.num_envs, self.state, self.params, self.actions, self.outputs)
        else:
            plain[grid](self.state, self.params, self.actions, self.outputs)

    def draw(self, stream: Any = 0) -> None:
        """Writes uniform random actions to `actions`."""
        kernel: Any = draw_random
        kernel[blocks(self.num_envs), THREADS, stream](self.state, self.actions)


class CudaCage2(Cage2):
    """`Cage2` that steps on the GPU and copies everything back; for comparison, not for speed."""

    def recv(self) -> Buffers:
        if not self._sent:
            raise StateError("recv without actions; call send(actions) first")
        check_device()
        self._choose_red()
        state, outputs = moved(self.state), moved(self._outputs)
        kernel: Any = step_all
        kernel[blocks(self.spec.num_envs), THREADS](state, self.params, cuda.to_device(self._actions), outputs)
        for here, there in ((self.state, state), (self._outputs, outputs)):
            for mine, theirs in zip(here, there, strict=True):
                mine[...] = theirs.copy_to_host()
        return self.buffers
