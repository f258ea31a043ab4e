"""One policy in one file, to share: its weights, the moments of its observations, and its settings.

The file is safetensors; the settings are JSON in its header, with a hash of settings and tensors. Reading one executes
no code.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from cavalcade.core.errors import RunError
from cavalcade.core.files import check_file, plain_json
from cavalcade.policy.mlp import ACTS_ONLY, MlpSpec
from cavalcade.policy.module import MakeModule
from cavalcade.ppo.snapshot import Counters, Snapshot
from cavalcade.ppo.state import MOMENTS
from cavalcade.runs.checkpoint import load_checkpoint
from cavalcade.runs.durable import replacing
from cavalcade.targets.base import Saved

SUFFIX = ".safetensors"
FORMAT = 1
_HEADER = "cavalcade"  # its entry in the header
_HASH = "sha256"  # of all else, in the header; earlier files have none
_POLICY, _LEARNER = "policy.", "learner."  # prefixes of tensors


def write_policy_file(path: Path, checkpoint: Path, member: int) -> None:
    """Writes one policy of a checkpoint."""
    found = load_checkpoint(checkpoint)
    network, config = dict(found.info["network"]), dict(found.info["config"])
    rows = slice(None)
    if "contexts" in network:  # a population: tensors have a leading axis
        rows = slice(member, member + 1)
        network["contexts"] = network["contexts"][rows]
        config |= {"policies": 1, "seed": config["seed"] + member} if "policies" in config else {}
    moments = {name: found.learner[name] for name in MOMENTS if name in found.learner}
    policy = found.policy
    if "critic_values" in network:
        policy, moments, network = _acting(policy, moments, network)
    tensors = {_POLICY + name: tensor[rows].contiguous() for name, tensor in policy.items()}
    tensors |= {_LEARNER + name: tensor[rows].contiguous() for name, tensor in moments.items()}
    header = {"format": FORMAT, "config": config, "network": network, "updates": found.snapshot.counters.updates}
    header = json.loads(json.dumps(header))
    try:
        with replacing(path) as aside:
            save_file(tensors, aside, {_HEADER: json.dumps(header | {_HASH: _hash_of(header, tensors)})})
    except (OSError, SafetensorError) as error:
        raise RunError(f"{path} cannot be written: {error}") from None


def _acting(
    policy: Mapping[str, Tensor], moments: Mapping[str, Tensor], network: Mapping[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Any]]:
    """What acting needs of policies whose critics saw the true state; nobody else could use their values."""
    names = ("inputs", "actions", "hidden", "context")
    spec = MlpSpec(*(network[name] for name in names), critic_values=network["critic_values"])
    seen = spec.inputs - spec.critic_values
    wide = [name for name, tensor in moments.items() if tensor.dim() > 1]
    described = {name: value for name, value in network.items() if name != "critic_values"}
    return (
        spec.acting(policy),
        dict(moments) | {name: moments[name][:, :seen] for name in wide},
        described | {"inputs": seen, ACTS_ONLY: True},
    )


def read_policy_file(path: Path, network: MakeModule | None = None) -> Saved:
    """Reads a policy; network: factory of a user-defined network."""
    header = read_header(path)
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 — it is not a mapping
        if _HASH in header and header[_HASH] != _hash_of(header, tensors):
            raise RunError(f"{path} is damaged: its content does not match its hash; restore it")
        counters = Counters(0, int(header["updates"]))
        policy, learner = (
            {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
            for prefix in (_POLICY, _LEARNER)
        )
        return Saved(path, Snapshot(policy, learner, {}, counters), header["network"], header["config"], network)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise _damaged(path, error) from None


def read_header(path: Path) -> dict[str, Any]:
    """Settings in the header of a policy file: config, network, updates."""
    try:
        check_file(path)
        with safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get(_HEADER)
        header = plain_json(text) if text else {}
        version = header.get("format")
    except (OSError, SafetensorError, ValueError, AttributeError) as error:
        raise _damaged(path, error) from None
    if version != FORMAT:
        raise RunError(
            f"{path} is not a policy file of format {FORMAT}; write one with: cavalcade export RUN --file FILE"
        )
    if not all(isinstance(header.get(name), dict) for name in ("config", "network")):
        raise RunError(f"{path} cannot be read: its header has no settings; restore it")
    return header


def _hash_of(header: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    """Hash of all that a policy file has besides it."""
    rest = {name: value for name, value in header.items() if name != _HASH}
    digest = hashlib.sha256(json.dumps(rest, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _damaged(path: Path, error: Exception) -> RunError:
    return RunError(f"{path} cannot be read ({type(error).__name__}); restore it")
