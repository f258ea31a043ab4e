"""One block of memory for a batch, shared by processes: anonymous, so that nothing named can be left behind.

Rows are environments. The learner writes actions and reads everything else; a worker does the opposite in its rows.
Workers serve chunks of rows; a chunk has work to do while `asked` is not `finished`.
"""

import mmap
import os
import tempfile
from typing import NamedTuple

import numpy as np

from cavalcade.vector.source import Shapes

_ALIGN = 64
Place = tuple[str, tuple[int, ...], str, int]  # name, shape, type, offset


class Slab(NamedTuple):
    """Views into the block: N environments, W workers with C chunks each."""

    observation: np.ndarray  # (N, O)
    final_observation: np.ndarray  # (N, O)
    reward: np.ndarray  # (N,) float32
    terminated: np.ndarray  # (N,) bool
    truncated: np.ndarray  # (N,) bool
    action_mask: np.ndarray  # (N, A) bool
    action: np.ndarray  # (N, …)
    figures: np.ndarray  # (N, F) float64: what is told of the episode that ended
    true_state: np.ndarray  # (N, S)
    episodes: np.ndarray  # (N,) int64: begun so far, over restarts of workers
    wanted: np.ndarray  # (N,) bool: rows that a reset is for
    seed: np.ndarray  # (N,) int64: with index and episodes, what a reset is seeded with
    index: np.ndarray  # (N,) int64
    ready: np.ndarray  # (W,) bool: the worker has made its environments
    asked: np.ndarray  # (W, C) int64
    finished: np.ndarray  # (W, C) int64
    command: np.ndarray  # (W, C) uint8
    asleep: np.ndarray  # (W + 1,) bool: who has to be woken, the parent last
    busy: np.ndarray  # (W,) float64: seconds that a worker has worked


def layout(num_envs: int, shapes: Shapes, workers: int, chunks: int) -> tuple[list[Place], int]:
    """Where each view lies, and the size of the block."""
    n, actions = num_envs, shapes.actions
    fields = {
        "observation": ((n, shapes.observation), shapes.observation_type),
        "final_observation": ((n, shapes.observation), shapes.observation_type),
        "reward": ((n,), "float32"),
        "terminated": ((n,), "bool"),
        "truncated": ((n,), "bool"),
        "action_mask": ((n, actions.masks), "bool"),
        "action": ((n, *actions.shape), str(actions.dtype)),
        "figures": ((n, len(shapes.figures)), "float64"),
        "true_state": ((n, shapes.true_state), shapes.true_state_type),
        "episodes": ((n,), "int64"),
        "wanted": ((n,), "bool"),
        "seed": ((n,), "int64"),
        "index": ((n,), "int64"),
        "ready": ((workers,), "bool"),
        "asked": ((workers, chunks), "int64"),
        "finished": ((workers, chunks), "int64"),
        "command": ((workers, chunks), "uint8"),
        "asleep": ((workers + 1,), "bool"),
        "busy": ((workers,), "float64"),
    }
    places, at = [], 0
    for name in Slab._fields:
        shape, kind = fields[name]
        places.append((name, shape, kind, at))
        at += -(-int(np.prod(shape)) * np.dtype(kind).itemsize // _ALIGN) * _ALIGN
    return places, at


def slab_over(buffer: mmap.mmap | bytearray, places: list[Place]) -> Slab:
    """Views into a block."""
    return Slab(**{name: np.ndarray(shape, kind, buffer, at) for name, shape, kind, at in places})


def anonymous_file(size: int) -> int:
    """A descriptor of memory that has no name and that children can inherit."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("cavalcade")
    else:
        handle, path = tempfile.mkstemp()
        os.unlink(path)
    os.ftruncate(handle, size)
    return handle
