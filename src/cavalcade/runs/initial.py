"""Starts a new run from trained weights: the policies of another run, with fresh optimiser, counters and games."""

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cavalcade.config.base import RunConfig
from cavalcade.config.io import as_dict
from cavalcade.core.errors import ConfigError, RunError
from cavalcade.models import is_model
from cavalcade.policy.mlp import ACTS_ONLY, FIRST_WEIGHT
from cavalcade.policy.module import MakeModule
from cavalcade.ppo.distributed import Ranks
from cavalcade.ppo.engine import Engine
from cavalcade.ppo.snapshot import select
from cavalcade.ppo.trainer import Trainable
from cavalcade.runs.checkpoint import Checkpoint, checkpoint_path, load_checkpoint, save_checkpoint
from cavalcade.runs.directory import RunDirectory, checkpoint_in
from cavalcade.runs.distributed import broadcast_checkpoint
from cavalcade.runs.files import EPISODES, HISTORY, METRICS
from cavalcade.runs.history import add_event
from cavalcade.runs.policies import is_file, load_policy, read_policy
from cavalcade.targets import target_named


class Source(NamedTuple):
    """Where the initial weights of a run come from."""

    path: Path  # of a checkpoint
    update: int
    text: str  # which of its policies, as text for the user

    @property
    def said(self) -> str:
        """The source, as text for the user."""
        return f"{self.path}, {self.text}" if self.text else str(self.path)


def start_from(engine: Engine, path: Path, config: RunConfig, ranks: Ranks, network: MakeModule | None) -> Source:
    """Loads the policies of a run or a checkpoint into an engine; one source policy for each, or the best for all."""
    found, text = _chosen(engine, path, config, network) if ranks.first else (None, "")
    found = broadcast_checkpoint(path, found, ranks)
    assert found is not None
    engine.start_from(found.snapshot)
    return Source(found.path, int(found.info.get("update", 0)), text)


def _chosen(engine: Engine, path: Path, config: RunConfig, network: MakeModule | None) -> tuple[Checkpoint, str]:
    found = _read(path)
    if "slots" in found.info:
        raise RunError(f"init is {path}, which belongs to a search; name a training run or one of its checkpoints")
    acts_only = found.info["network"].get(ACTS_ONLY, False)
    _check_fits(engine, path, found, config)
    count, text = len(found.info["network"].get("contexts", [0])), ""
    if count == engine.policies:
        text = f"{count} policies, one for each" if count > 1 else ""
    else:
        policy = load_policy(found.path, network)
        member = target_named(policy.config.target).member(policy)
        only = select(found.snapshot, [member.index] * engine.policies, np.zeros(0, np.int64))
        found = Checkpoint(found.path, dict(only.policy), dict(only.learner), {}, found.info)
        text = member.text or f"one policy for all {engine.policies}"
    if not acts_only:
        return found, text
    return _with_critic(engine, found), ", ".join([*filter(None, [text]), "the critic begins anew"])


def _read(path: Path) -> Checkpoint:
    """The checkpoint of a run, or a policy file or model as one."""
    if not is_file(path):
        return load_checkpoint(checkpoint_in(path))
    saved = read_policy(path)
    info = {"network": saved.network, "config": saved.config, "update": saved.snapshot.counters.updates}
    return Checkpoint(path, dict(saved.snapshot.policy), dict(saved.snapshot.learner), {}, info)


def _with_critic(engine: Engine, found: Checkpoint) -> Checkpoint:
    """Policies that were stored without critics, with those of a fresh engine and as many inputs."""
    fresh, learner = engine.tensors()
    seen, hidden = found.info["network"]["inputs"], engine.network().get("critic_values", 0)
    policy = {name: tensor.clone() for name, tensor in fresh.items()}
    for name, tensor in found.policy.items():
        if name == FIRST_WEIGHT:
            policy[name][:, :seen], policy[name][:, seen + hidden :] = tensor[:, :seen], tensor[:, seen:]
        else:
            policy[name].copy_(tensor)
    moments = {name: tensor for name, tensor in found.learner.items() if tensor.shape == learner[name].shape}
    unknown = {name: learner[name] for name in found.learner if name not in moments}  # of no use: not normalised
    return Checkpoint(found.path, policy, moments | unknown, {}, found.info)


def _check_fits(engine: Engine, path: Path, found: Checkpoint, config: RunConfig) -> None:
    """Raises `ConfigError` if networks or their inputs differ."""
    mine, theirs = json.loads(json.dumps(engine.network())), dict(found.info["network"])
    scaled = ("normalise_observations",)
    if theirs.pop(ACTS_ONLY, False):
        mine["inputs"] -= mine.pop("critic_values", 0)
        if found.info["config"]["ppo"]["normalise_observations"]:
            raise ConfigError(f"init is {path}, which has no moments of what its critic saw; name its run instead")
    for here, there, names in (
        (mine, theirs, [name for name in dict.fromkeys([*theirs, *mine]) if name not in ("contexts", "tokens")]),
        (as_dict(config).get("ppo", {}), found.info["config"].get("ppo", {}), scaled),
    ):
        for name in names:
            if here.get(name) != there.get(name):
                said = f"{name} {there.get(name, 'none')}; this run has {here.get(name, 'none')}"
                raise ConfigError(f"init is {path}, whose policies have {said}; they must be the same")


def begin_initial(run: RunDirectory[Any], config: RunConfig, learner: Trainable, source: Source | None) -> None:
    """Writes the initial weights as checkpoint 0 and their source into the history, before the run begins.

    A run that is killed before its next checkpoint resumes from these weights, wherever the source is by then. What a
    process that was killed before its run began has left is removed.
    """
    shutil.rmtree(checkpoint_path(run.checkpoint_folder, 0), ignore_errors=True)
    (run.path / HISTORY).unlink(missing_ok=True)
    if source is None:
        return
    info = {
        "config": as_dict(config), "network": learner.network(), "update": 0, "steps": 0, "episodes": 0, "seconds": 0.0,
        "logs": {METRICS: 0, EPISODES: 0},
    }  # fmt: skip
    save_checkpoint(run.checkpoint_folder, 0, learner.snapshot(), info, 1)
    path = source.path if is_model(source.path) else source.path.absolute()
    origin = {"path": str(path), "update": source.update, "policies": source.text}
    add_event(run.path, 0, init=origin)
