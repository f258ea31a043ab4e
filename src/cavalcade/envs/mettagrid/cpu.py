"""Kernels that step arenas on the CPU, in place; threads take equal shares of the arenas."""

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from cavalcade.core.jit import kernel, rule
from cavalcade.core.shared import address, record_at
from cavalcade.envs.mettagrid.mersenne import seed_words
from cavalcade.envs.mettagrid.rules import act, begin, cover, describe, look, pay
from cavalcade.envs.mettagrid.using import holders

_NONE = np.uint32(0xFFFFFF)  # a token that is none


class Outputs(NamedTuple):
    """What a step writes, and its scratch memory. G = N · A rows, T tokens."""

    observation: NDArray[np.uint8]  # (G, 3·T)
    by_four: NDArray[np.uint32]  # (G, 3·T / 4): the same, if T is a multiple of 4, else empty
    length: NDArray[np.int32]  # (G,): tokens in use
    reward: NDArray[np.float32]  # (G,)
    over: NDArray[np.bool_]  # (N,): episodes that reached their time limit
    overflow: NDArray[np.int32]  # (N,): most tokens of an observation that did not fit
    visible: NDArray[np.uint32]  # (N, H, M): what others see of an agent, or of an object that holds resources
    visible_count: NDArray[np.int32]  # (N, H)
    lines: NDArray[np.uint32]  # (threads, T + 1): one observation as words


@kernel(parallel=True)
def step(state, tables, actions, outputs, threads):
    """Steps all arenas."""
    game = address((state, tables, actions, outputs))
    for part in numba.prange(threads):
        _step_part(game, part, threads)


@kernel(parallel=True)
def show(state, tables, wanted, outputs, threads):
    """Writes the observations of the wanted arenas, (N,) bool."""
    game = address((state, tables, wanted, outputs))
    for part in numba.prange(threads):
        _show_part(game, part, threads)


@kernel
def start(state, tables, arenas, seeds):
    """Begins episodes in the given arenas, whose maps are set; seeds: of their random generators."""
    for i in range(len(arenas)):
        _start(state, tables, arenas[i], seeds[i])


@rule
def _start(state, tables, e, seed):
    seed_words(state.words, state.position, e, seed)
    begin(state, tables, e)


@rule
def _step_part(game, part, parts):
    state, tables, actions, outputs = record_at(game)
    arenas, agents = state.place.shape
    for e in range(arenas * part // parts, arenas * (part + 1) // parts):
        state.step[e] += 1
        act(state, tables, actions, e)
        for a in range(agents):
            cover(state, tables, e, a)
        _show_arena(state, tables, outputs, part, e)
        for a in range(agents):
            outputs.reward[e * agents + a] = pay(state, tables, e, a)
        outputs.over[e] = tables.max_steps > 0 and state.step[e] >= tables.max_steps


@rule
def _show_part(game, part, parts):
    state, tables, wanted, outputs = record_at(game)
    arenas = state.place.shape[0]
    for e in range(arenas * part // parts, arenas * (part + 1) // parts):
        if wanted[e]:
            _show_arena(state, tables, outputs, part, e)


@rule
def _show_arena(state, tables, outputs, part, e):
    agents = state.place.shape[1]
    for h in range(holders(state, e)):
        describe(state, tables, outputs.visible, outputs.visible_count, e, h)
    for a in range(agents):
        count = look(state, tables, outputs.visible, outputs.visible_count, outputs.lines, part, e, a)
        if count > tables.tokens:
            outputs.overflow[e] = max(outputs.overflow[e], count)
            count = tables.tokens
        if outputs.by_four.shape[1] > 0:
            _write_fours(outputs, part, e * agents + a, count)
        else:
            _write_bytes(outputs, part, e * agents + a, count)


@rule
def _write_bytes(outputs, part, g, count):
    """An observation as bytes; clears what is left of a longer one."""
    for i in range(count):
        word = outputs.lines[part, i]
        outputs.observation[g, 3 * i] = word & np.uint32(255)
        outputs.observation[g, 3 * i + 1] = (word >> np.uint32(8)) & np.uint32(255)
        outputs.observation[g, 3 * i + 2] = (word >> np.uint32(16)) & np.uint32(255)
    for i in range(3 * count, 3 * outputs.length[g]):
        outputs.observation[g, i] = 255
    outputs.length[g] = count


@rule
def _write_fours(outputs, part, g, count):
    """As `_write_bytes`, four tokens in three words at a time."""
    groups = (count + 3) // 4
    for i in range(count, 4 * groups):
        outputs.lines[part, i] = _NONE
    for i in range(groups):
        a, b = outputs.lines[part, 4 * i], outputs.lines[part, 4 * i + 1]
        c, d = outputs.lines[part, 4 * i + 2], outputs.lines[part, 4 * i + 3]
        outputs.by_four[g, 3 * i] = a | b << np.uint32(24)
        outputs.by_four[g, 3 * i + 1] = b >> np.uint32(8) | c << np.uint32(16)
        outputs.by_four[g, 3 * i + 2] = c >> np.uint32(16) | d << np.uint32(8)
    for i in range(3 * groups, 3 * ((outputs.length[g] + 3) // 4)):
        outputs.by_four[g, i] = np.uint32(0xFFFFFFFF)
    outputs.length[g] = count
