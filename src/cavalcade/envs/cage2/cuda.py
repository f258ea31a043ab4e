"""The same rules on a GPU: kernels around the functions of `game`, one thread per game.

Without a GPU the same code runs, slowly, in Numba's CUDA simulator (NUMBA_ENABLE_CUDASIM=1 with NUMBA_DISABLE_JIT=1).
"""

from functools import cache
from typing import Any

import numpy as np

from cavalcade.core.contract import Buffers
from cavalcade.core.cuda import check_device, cuda, gpu_kernel
from cavalcade.core.errors import ConfigError, StateError
from cavalcade.core.jit import rule
from cavalcade.core.rng import index_below, step_key, word
from cavalcade.envs.cage2 import game, workflow
from cavalcade.envs.cage2.env import Cage2
from cavalcade.envs.cage2.game import Outputs
from cavalcade.envs.cage2.red_choice import choice_of
from cavalcade.envs.cage2.scenario import NUM_ACTIONS, NUM_DECOYS, NUM_HOSTS
from cavalcade.envs.cage2.state import State

THREADS = 128  # per block
_ROOM = 1 << 14  # threads that a GPU runs at once without sharing its units
_NEVER = -(1 << 20)  # what `fetch` never returns
_WARP = 32
_BLUE = 1 << 19  # purpose of a random Blue's draws, not used by games


def lanes(num_envs: int) -> int:
    """Threads per game of `step_packed`, of which the first plays.

    Games of a warp wait for each other wherever they differ; while a GPU has room, each warp has fewer of them.
    """
    count = 1
    while count < _WARP and 2 * count * num_envs <= _ROOM:
        count *= 2
    return count


@cuda.jit(device=True)
def _game(count):
    """The game that this thread plays, or `count`."""
    i, share = cuda.grid(1), cuda.gridsize(1) // count
    return i // share if i % share == 0 else count


@rule
def fetch(s, e):
    """Reads a game at once; returns a number of no meaning, more than −100.

    A game reads its state as its rules need it, one field after the other, and each read of the memory of a GPU takes
    as long as hundreds of instructions. After this the fields are in the cache.
    """
    d, h = NUM_DECOYS * e, NUM_HOSTS * e
    known = s.red_success[e] + s.addresses[e] + s.hostnames[e] + s.subnets[e] + s.scanned[e] + s.ot_known[e]
    network = s.user[e] + s.flagged[e] + s.privileged[e] + s.malware[e] + s.mail_fixed[e] + s.decoys[d] + s.ports[h]
    services = s.ot_running[e] + s.ot_stoppable[e] + s.decoys[d + NUM_DECOYS - 1] + s.ports[h + NUM_HOSTS - 1]
    line = s.line_state[e] + s.line_target[e] + s.line_at_server[e] + s.scan_empty[e] + s.red_setting[e] + s.red[e]
    lists = s.meander_swept[e] + s.meander_scanned[e] + s.meander_exploited[e] + s.meander_escalated[e]
    more = s.meander_owned[e] + s.meander_last_exploit[e] + s.meander_last_host[e]
    blue = s.seen_scanned[e] + s.seen_latest[e] + s.blue_action[e] + s.blue_success[e] + s.green_target[e]
    latest = s.red_action[e] + s.red_target[e] + s.red_exploit[e]
    clocks = (s.episode[e] & 1) + (s.step[e] & 1) + (s.total[e] & 1)
    words = np.int64(s.key[e] & np.uint64(1)) + (s.table[e] & 1)
    return known + network + services + line + lists + more + blue + latest + clocks + words


@gpu_kernel
def step_all(s, p, actions, out):
    """Steps every game; writes all outputs."""
    e = cuda.grid(1)
    if e < actions.size:
        game.advance(s, p, e, np.int64(actions[e]), out)


@gpu_kernel
def step_packed(count, s, p, actions, out):
    """Steps every game; writes observation and mask as packed integers only."""
    e = _game(count)
    if e < count and fetch(s, e) != _NEVER:
        game.advance_packed(s, p, e, np.int64(actions[e]), out)


@gpu_kernel
def step_workflow(count, s, p, actions, out, t, c, episode_stats):
    """As `step_packed`, for games with orders."""
    e = _game(count)
    if e < count and fetch(s, e) != _NEVER:
        workflow.advance_packed(s, p, e, np.int64(actions[e]), out, t, c, episode_stats)


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
