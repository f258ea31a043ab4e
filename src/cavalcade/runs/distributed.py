"""Runs over several ranks: what each must know of a checkpoint that only the first may be able to read."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save

from cavalcade.config import AnyTrainConfig, CyborgTrainConfig, GymTrainConfig, TrainConfig, training_kind
from cavalcade.config_mettagrid import MettagridTrainConfig
from cavalcade.errors import ConfigError
from cavalcade.plain import as_dict, from_dict
from cavalcade.ppo.ranks import Ranks, TorchRanks
from cavalcade.runs.checkpoint import Checkpoint
from cavalcade.runs.directory import RunDirectory, open_run
from cavalcade.vector.hosted import cores

_PARTS = ("policy", "learner", "environment")


def check_parallel(config: AnyTrainConfig) -> None:
    """Refuses what ranks cannot share."""
    if isinstance(config, CyborgTrainConfig):
        raise ConfigError("target is cyborg on several ranks; cage2, mettagrid and gym: can be shared by ranks")
    if not isinstance(config, MettagridTrainConfig) and config.ppo.replay:
        raise ConfigError(f"replay is {config.ppo.replay} on several ranks; each would remember its own, take 0")
    if isinstance(config, GymTrainConfig) and config.host.backend == "ray":
        raise ConfigError("backend is ray on several ranks; ranks host their environments themselves, take async")
    if isinstance(config, MettagridTrainConfig) and (config.extras.priority_alpha or config.extras.contrastive_coef):
        raise ConfigError("priority_alpha or contrastive_coef on several ranks; both compare what is on one, take 0")
    if isinstance(config, TrainConfig):
        if config.device == "cuda":
            raise ConfigError("device is cuda on several ranks; ranks learn on CPUs, leave out --device")
        if config.policies > 1:
            raise ConfigError(f"policies is {config.policies} on several ranks; ranks share one policy's environments")


def share_of(config: AnyTrainConfig, ranks: Ranks) -> Any:
    """A rank's part of a training."""
    n = config.ppo.num_envs
    here = ranks.share(n, "num_envs")
    if isinstance(config, TrainConfig):
        return replace(config, ppo=replace(config.ppo, num_envs=here.stop - here.start))
    host = config.host
    if host.backend != "serial" and not host.workers:
        factor = host.async_factor if host.backend == "async" else 1
        most = max(1, min(cores() // ranks.local_size, (here.stop - here.start) // factor))
        host = replace(host, workers=most)
    sizes = ("num_envs",) if isinstance(config, GymTrainConfig) else ("num_envs", "batch_size", "minibatch_size")
    parts = {name: ranks.share(getattr(config.ppo, name), name) for name in sizes}
    ppo: Any = replace(config.ppo, **{name: part.stop - part.start for name, part in parts.items()})
    return replace(config, ppo=ppo, host=host)


def begun_everywhere(
    run: RunDirectory[Any], config: AnyTrainConfig, ranks: Ranks
) -> tuple[RunDirectory[Any], AnyTrainConfig]:
    """A new run and its configuration as the first rank has them: recipes and clocks of machines may differ."""
    if not isinstance(ranks, TorchRanks):
        return run, config
    said = json.loads(ranks.broadcast(json.dumps({"path": str(run.path), "config": as_dict(config)}).encode()))
    kind: Any = type(config)
    return RunDirectory(Path(said["path"]), kind), from_dict(kind, said["config"])


def run_everywhere(path: Path, ranks: Ranks) -> tuple[RunDirectory[Any], AnyTrainConfig]:
    """An existing run and its configuration, read by the first rank."""
    run = open_run(path) if ranks.first else None
    config = run.config() if run else None
    if isinstance(ranks, TorchRanks):
        plain = json.loads(ranks.broadcast(json.dumps(as_dict(config)).encode() if config else b""))
        kind: Any = training_kind(plain["target"])
        run, config = run or RunDirectory(path, kind), config or from_dict(kind, plain)
    assert run is not None
    assert config is not None
    return run, config


def checkpoint_everywhere(run: RunDirectory, config: AnyTrainConfig, ranks: Ranks) -> Checkpoint | None:
    """The newest checkpoint, read by the first rank."""
    if not isinstance(ranks, TorchRanks):
        return run.checkpoint_for(config)
    found = run.checkpoint_for(config) if ranks.first else None
    content = ranks.broadcast(_packed(found) if found else b"")
    return found or (_unpacked(run.path, content) if content else None)


def _packed(checkpoint: Checkpoint) -> bytes:
    """A checkpoint as bytes, nothing of which is executed when they are read."""
    games = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in checkpoint.environment.items()}
    parts = zip(_PARTS, (checkpoint.policy, checkpoint.learner, games), strict=True)
    return save({f"{part}/{name}": t.contiguous() for part, named in parts for name, t in named.items()})


def _unpacked(path: Path, content: bytes) -> Checkpoint:
    parts: dict[str, dict[str, torch.Tensor]] = {part: {} for part in _PARTS}
    for name, tensor in load(content).items():
        part, _, rest = name.partition("/")
        parts[part][rest] = tensor
    games = {name: tensor.numpy() for name, tensor in parts["environment"].items()}
    return Checkpoint(path, parts["policy"], parts["learner"], games, {})
