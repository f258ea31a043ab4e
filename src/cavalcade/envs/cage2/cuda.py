"""The same rules on a GPU: kernels around the functions of `game`, one thread per game.

Without a GPU the kernels run in Numba's simulator of CUDA (NUMBA_ENABLE_CUDASIM=1, with NUMBA_DISABLE_JIT=1): slowly,
but the same code.
"""

from typing import Any

import numpy as np

from cavalcade.cuda import check_device, cuda, gpu_kernel
from cavalcade.envs.cage2 import game, observe, workflow
from cavalcade.envs.cage2.env import Cage2
from cavalcade.envs.cage2.game import Outputs
from cavalcade.envs.cage2.scenario import NUM_ACTIONS
from cavalcade.envs.cage2.state import State
from cavalcade.envs.contract import Buffers
from cavalcade.errors import StateError
from cavalcade.rng import index_below, step_key, word

THREADS = 128  # per block
_BLUE = 1 << 19  # purpose of draws of a random Blue, which no game has


@gpu_kernel
def step_all(s, p, actions, out):
    """One step of every game with all its outputs."""
    e = cuda.grid(1)
    if e < actions.size:
        game.advance(s, p, e, np.int64(actions[e]), out)


@gpu_kernel
def step_packed(count, s, p, actions, out):
    """One step of every game with observation and mask as integers only."""
    e = cuda.grid(1)
    if e < count:
        game.advance_packed(s, p, e, np.int64(actions[e]), out)


@gpu_kernel
def step_workflow(count, s, p, actions, out, t, c, figures):
    """The same for games with orders."""
    e = cuda.grid(1)
    if e < count:
        workflow.advance_packed(s, p, e, np.int64(actions[e]), out, t, c, figures)


@gpu_kernel
def unpack(count, p, more, words, values):
    """Observations as one value per bit."""
    i = cuda.grid(1)
    if i < count:
        observe.unpack(i, p, more, words, values)


@gpu_kernel
def draw_random(s, actions):
    """Uniform random actions, counted like every draw."""
    e = cuda.grid(1)
    if e < actions.size:
        bits = word(step_key(s.key[e], s.episode[e], s.step[e]), _BLUE)
        actions[e] = index_below(bits, NUM_ACTIONS)


def blocks(num_envs: int) -> int:
    """Blocks that a launch needs."""
    return -(-num_envs // THREADS)


def moved(record: Any) -> Any:
    """A record of arrays on the GPU."""
    return type(record)(*(cuda.to_device(np.ascontiguousarray(array)) for array in record))


class CudaGames:
    """The games of a batch, moved to the GPU: they go on there from where they were, without ever coming back.

    `step` launches on the current stream of `stream`, a Numba stream; state and outputs stay on the device.
    """

    def __init__(self, env: Cage2):
        check_device()
        self.params, self.num_envs = env.params, env.spec.num_envs
        self.state: State = moved(env.state)
        self.outputs: Outputs = moved(env._outputs)
        self.actions: Any = cuda.to_device(np.zeros(self.num_envs, np.int32))

    def step(self, stream: Any = 0, *, packed: bool = True) -> None:
        """One step with the actions in `actions`."""
        grid = (blocks(self.num_envs), THREADS, stream)
        packing, plain = step_packed, step_all
        if packed:
            packing[grid](self.num_envs, self.state, self.params, self.actions, self.outputs)
        else:
            plain[grid](self.state, self.params, self.actions, self.outputs)

    def draw(self, stream: Any = 0) -> None:
        """Uniform random actions."""
        kernel: Any = draw_random
        kernel[blocks(self.num_envs), THREADS, stream](self.state, self.actions)


class CudaCage2(Cage2):
    """`Cage2` whose steps are taken on the GPU and copied back: to compare, not to be fast."""

    def recv(self) -> Buffers:
        """Plays the actions sent."""
        if not self._sent:
            raise StateError("recv without actions; call send(actions) first")
        check_device()
        self._sent = False
        state, outputs = moved(self.state), moved(self._outputs)
        kernel: Any = step_all
        kernel[blocks(self.spec.num_envs), THREADS](state, self.params, cuda.to_device(self._actions), outputs)
        for here, there in ((self.state, state), (self._outputs, outputs)):
            for mine, theirs in zip(here, there, strict=True):
                mine[...] = theirs.copy_to_host()
        return self.buffers
