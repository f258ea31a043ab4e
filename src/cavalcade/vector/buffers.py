"""One block of shared memory for a batch; anonymous, so that no file can be left behind.

Rows are environments. The parent writes actions and reads everything else; a worker does the opposite in its rows.
Workers serve chunks of rows; a chunk has work to do while `asked` differs from `finished`.
"""

import mmap
import os
import tempfile
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from cavalcade.vector.source import Shapes

_ALIGN = 64
Place = tuple[str, tuple[int, ...], str, int]  # name, shape, type, offset


class SharedBuffers(NamedTuple):
    """Views into the block: N environments, W workers with C chunks each."""

    observation: np.ndarray  # (N, O)
    final_observation: np.ndarray  # (N, O)
    reward: np.ndarray  # (N,) float32
    terminated: np.ndarray  # (N,) bool
    truncated: np.ndarray  # (N,) bool
    action_mask: np.ndarray  # (N, A) bool
    action: np.ndarray  # (N, …)
    episode_stats: np.ndarray  # (N, F) float64: of the episode that ended
    true_state: np.ndarray  # (N, S)
    episodes: np.ndarray  # (N,) int64: episodes begun so far, across restarts of workers
    wanted: np.ndarray  # (N,) bool: rows to reset
    seed: np.ndarray  # (N,) int64: (seed, index, episodes) seeds a reset
    index: np.ndarray  # (N,) int64
    ready: np.ndarray  # (W,) bool: the worker has made its environments
    asked: np.ndarray  # (W, C) int64
    finished: np.ndarray  # (W, C) int64
    command: np.ndarray  # (W, C) uint8
    asleep: np.ndarray  # (W + 1,) bool: processes that have to be woken, the parent last
    busy: np.ndarray  # (W,) float64: seconds of work


def layout(num_envs: int, shapes: Shapes, workers: int, chunks: int) -> tuple[list[Place], int]:
    """The place of each view, and the size of the block in bytes."""
    n, actions = num_envs, shapes.actions
    fields = {
        "observation": ((n, shapes.observation), shapes.observation_type),
        "final_observation": ((n, shapes.observation), shapes.observation_type),
        "reward": ((n,), "float32"),
        "terminated": ((n,), "bool"),
        "truncated": ((n,), "bool"),
        "action_mask": ((n, actions.masks), "bool"),
        "action": ((n, *actions.shape), str(actions.dtype)),
        "episode_stats": ((n, len(shapes.episode_stats)), "float64"),
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
    return places_of({name: fields[name] for name in SharedBuffers._fields})


def places_of(fields: Mapping[str, tuple[tuple[int, ...], str]]) -> tuple[list[Place], int]:
    """Places of arrays of given shapes and dtypes one after the other, and the size of the block in bytes."""
    places, at = [], 0
    for name, (shape, kind) in fields.items():
        places.append((name, shape, kind, at))
        at += -(-int(np.prod(shape)) * np.dtype(kind).itemsize // _ALIGN) * _ALIGN
    return places, at


def buffers_over(buffer: mmap.mmap | bytearray, places: list[Place]) -> SharedBuffers:
    """Views into a block."""
    return SharedBuffers(**{name: np.ndarray(shape, kind, buffer, at) for name, shape, kind, at in places})


def anonymous_file(size: int) -> int:
    """A file descriptor of unnamed memory that children can inherit."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("cavalcade")
    else:
        handle, path = tempfile.mkstemp()
        os.unlink(path)
    os.ftruncate(handle, size)
    return handle
