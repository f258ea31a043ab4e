"""Runs over data-parallel ranks: the first rank reads settings and checkpoints and broadcasts them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save

from cavalcade.config.base import RunConfig
from cavalcade.config.io import as_dict, from_dict
from cavalcade.ppo.distributed import Ranks, TorchRanks
from cavalcade.runs.checkpoint import Checkpoint
from cavalcade.runs.directory import RunDirectory, open_run
from cavalcade.targets import target_named

_PARTS, _INFO = ("policy", "learner", "environment"), "info"


def begun_everywhere(run: RunDirectory[Any], config: RunConfig, ranks: Ranks) -> tuple[RunDirectory[Any], RunConfig]:
    """A new run and its configuration, broadcast by the first rank; recipes and clocks of machines may differ."""
    if not isinstance(ranks, TorchRanks):
        return run, config
    said = json.loads(ranks.broadcast(json.dumps({"path": str(run.path), "config": as_dict(config)}).encode()))
    kind: Any = type(config)
    return RunDirectory(Path(said["path"]), kind), from_dict(kind, said["config"])


def run_everywhere(path: Path, ranks: Ranks) -> tuple[RunDirectory[Any], RunConfig]:
    """An existing run and its configuration, read and broadcast by the first rank."""
    run = open_run(path) if ranks.first else None
    config = run.config() if run else None
    if isinstance(ranks, TorchRanks):
        plain = json.loads(ranks.broadcast(json.dumps(as_dict(config)).encode() if config else b""))
        kind: Any = target_named(plain["target"]).Config
        run, config = run or RunDirectory(path, kind), config or from_dict(kind, plain)
    assert run is not None
    assert config is not None
    return run, config


def checkpoint_everywhere(run: RunDirectory, config: RunConfig, ranks: Ranks) -> Checkpoint | None:
    """The newest checkpoint, read and broadcast by the first rank."""
    return broadcast_checkpoint(run.path, run.checkpoint_for(config) if ranks.first else None, ranks)


def broadcast_checkpoint(path: Path, found: Checkpoint | None, ranks: Ranks) -> Checkpoint | None:
    """A checkpoint that the first rank has read, on every rank."""
    if not isinstance(ranks, TorchRanks):
        return found
    content = ranks.broadcast(_packed(found) if found else b"")
    return found or (_unpacked(path, content) if content else None)


def _packed(checkpoint: Checkpoint) -> bytes:
    """A checkpoint as safetensors; loading it executes no code."""
    games = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in checkpoint.environment.items()}
    parts = zip(_PARTS, (checkpoint.policy, checkpoint.learner, games), strict=True)
    tensors = {f"{part}/{name}": t.contiguous() for part, named in parts for name, t in named.items()}
    info = bytearray(json.dumps(checkpoint.info).encode())
    return save(tensors | {_INFO: torch.frombuffer(info, dtype=torch.uint8)})


def _unpacked(path: Path, content: bytes) -> Checkpoint:
    parts: dict[str, dict[str, torch.Tensor]] = {part: {} for part in _PARTS}
    tensors = load(content)
    info = json.loads(tensors.pop(_INFO).numpy().tobytes())
    for name, tensor in tensors.items():
        part, _, rest = name.partition("/")
        parts[part][rest] = tensor
    games = {name: tensor.numpy() for name, tensor in parts["environment"].items()}
    return Checkpoint(path, parts["policy"], parts["learner"], games, info)
