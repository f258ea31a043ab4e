"""Checkpoints. They are written aside and then renamed, so that there is never a partial one.

    checkpoints/<update>/policy.safetensors      weights, by name
                         optimizer.safetensors   all other state of the engine
                         state.npz               environments
                         state.json              counters, log sizes, a hash of each of the other files

Loading a checkpoint executes no code.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from cavalcade.core.archives import DAMAGED, read_arrays
from cavalcade.core.errors import RunError
from cavalcade.core.files import check_file, plain_json, read_text
from cavalcade.ppo.snapshot import Counters, Snapshot
from cavalcade.runs.durable import to_disk
from cavalcade.runs.files import STATE

FORMAT = 1
POLICY, OPTIMIZER, ENVIRONMENT = "policy.safetensors", "optimizer.safetensors", "state.npz"
_HASHED = (POLICY, OPTIMIZER, ENVIRONMENT)
_NEEDED = ("sha256", "config", "network", "update", "logs")
_OWN = "hash"  # of state.json itself, in it
_ASIDE, _OLD = ".writing-", ".old-"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was read and verified."""

    path: Path
    policy: dict[str, Tensor]
    learner: dict[str, Tensor]
    environment: dict[str, NDArray]
    info: dict[str, Any]

    @property
    def snapshot(self) -> Snapshot:
        """State of the engine at the checkpoint."""
        clock, updates = (int(x) for x in self.learner["counters"].amax(0)) if "counters" in self.learner else (0, 0)
        return Snapshot(self.policy, self.learner, self.environment, Counters(clock, updates))


def save_checkpoint(folder: Path, update: int, snapshot: Snapshot, info: Mapping[str, Any], keep: int) -> Path:
    """Writes checkpoint `update` and removes all but the newest `keep`."""
    target, aside = checkpoint_path(folder, update), folder / f"{_ASIDE}{update:08d}"
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        save_file({name: tensor.contiguous() for name, tensor in snapshot.policy.items()}, aside / POLICY)
        save_file({name: tensor.contiguous() for name, tensor in snapshot.learner.items()}, aside / OPTIMIZER)
        np.savez(aside / ENVIRONMENT, **snapshot.games)  # pyright: ignore[reportArgumentType]
        hashes = {name: _hash(aside / name) for name in _HASHED}
        plain = json.loads(json.dumps({"format": FORMAT, "sha256": hashes, **info}))
        (aside / STATE).write_text(json.dumps(plain | {_OWN: _hash_of(plain)}, indent=1))
        for path in (*(aside / name for name in (*_HASHED, STATE)), aside):
            to_disk(path)
        if target.exists():
            target.rename(folder / f"{_OLD}{target.name}")  # until the new one is in place
        aside.rename(target)
        to_disk(folder)
        to_disk(folder.parent)  # names of the folder itself, of logs and settings
        shutil.rmtree(folder / f"{_OLD}{target.name}", ignore_errors=True)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise RunError(
            f"checkpoint {update} cannot be written to {folder}: {error}; earlier ones are untouched"
        ) from None
    for old in checkpoints(folder)[:-keep]:
        _discard(old)
    return target


def _discard(path: Path) -> None:
    """Removes a checkpoint; renamed first, so that a process killed in between leaves none in part."""
    aside = path.with_name(f"{_ASIDE}{path.name}")
    with suppress(OSError):
        path.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def checkpoint_path(folder: Path, update: int) -> Path:
    """Where checkpoint `update` is."""
    return folder / f"{update:08d}"


def checkpoints(folder: Path) -> list[Path]:
    """All checkpoints of a run, oldest first."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_dir() and path.name.isdecimal())


def clear_aside(folder: Path) -> None:
    """Removes what a killed process left half written, and restores what it was about to replace."""
    if folder.is_dir():
        for path in folder.glob(f"{_ASIDE}*"):
            shutil.rmtree(path, ignore_errors=True)
        for path in folder.glob(f"{_OLD}*"):
            target = folder / path.name.removeprefix(_OLD)
            if target.exists():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.rename(target)


def load_checkpoint(path: Path) -> Checkpoint:
    """Reads a checkpoint; raises `RunError` if it is incomplete or damaged."""
    try:
        info = plain_json(read_text(path / STATE))
        if info.get("format") != FORMAT:
            raise RunError(f"{path} is of format {info.get('format')}; this version reads format {FORMAT}")
        if missing := [name for name in _NEEDED if name not in info]:
            raise RunError(f"{path / STATE} lacks {', '.join(missing)}; {_ADVICE}")
        if _OWN in info and info[_OWN] != _hash_of(info):
            raise RunError(f"{path / STATE} is damaged: its content does not match its hash; {_ADVICE}")
        for name in _HASHED:
            if _hash(path / name) != info["sha256"][name]:
                raise RunError(f"{path / name} is damaged: its content does not match its hash; {_ADVICE}")
        environment = read_arrays(path / ENVIRONMENT, most=1 << 40)  # its hash was compared
        return Checkpoint(path, load_file(path / POLICY), load_file(path / OPTIMIZER), environment, info)
    except FileNotFoundError as error:
        raise RunError(
            f"{path} is not a complete checkpoint: {Path(error.filename).name} is missing; {_ADVICE}"
        ) from None
    except (*DAMAGED, SafetensorError) as error:
        raise RunError(f"{path} cannot be read ({type(error).__name__}); {_ADVICE}") from None


_ADVICE = "remove it to resume from the one before, or restore it"


def _hash(path: Path) -> str:
    check_file(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hash_of(info: Mapping[str, Any]) -> str:
    """Hash of what state.json has besides it."""
    rest = {name: value for name, value in info.items() if name != _OWN}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
