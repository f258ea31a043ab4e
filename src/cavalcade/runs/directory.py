"""Run directories: lock, configuration, metadata and checkpoints."""

import fcntl
import itertools
import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote
from typing import Any, Generic, TypeVar

import numba
import numpy as np
import torch
import yaml

from cavalcade.config.base import RunConfig
from cavalcade.config.io import as_dict, differences, from_dict
from cavalcade.config.presets import file_name
from cavalcade.core.errors import ConfigError, RunError
from cavalcade.core.files import check_file, plain_json, plain_yaml, read_text
from cavalcade.core.version import __version__
from cavalcade.runs.advice import resume_command
from cavalcade.runs.checkpoint import Checkpoint, checkpoints, clear_aside, load_checkpoint
from cavalcade.runs.durable import make_folder, replacing
from cavalcade.runs.files import CHECKPOINTS, CONFIG, LOCK, META, STATE
from cavalcade.targets import target_named

C = TypeVar("C", bound=RunConfig)
_MOST_THREADS = 1 << 16  # more are not a machine's


class RunDirectory(Generic[C]):
    """runs/<name>/ of a training or a search; kind: class of its configuration."""

    def __init__(self, path: Path, kind: type[C]):
        self.path, self.kind = path, kind
        self.checkpoint_folder = path / CHECKPOINTS

    def __str__(self) -> str:
        return str(self.path)

    @property
    def config_file(self) -> Path:
        return self.path / CONFIG

    def exists(self) -> bool:
        """Whether the directory contains a run."""
        return self.config_file.exists()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the directory for this process; the lock ends with the process, however it ends.

        If a run is refused, folders that were made for it are removed.
        """
        try:
            new = make_folder(self.path)
            handle = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise RunError(f"{self.path} cannot be created or written: {error.strerror}") from None
        if not _lock(handle):
            os.close(handle)
            raise RunError(f"{self.path} is in use by another process; wait for it, or choose another --run")
        try:
            yield
        except (ConfigError, RunError):
            if new and os.listdir(self.path) == [LOCK]:
                (self.path / LOCK).unlink()
                with suppress(OSError):  # another process has put something there
                    for folder in new:
                        folder.rmdir()
            raise
        finally:
            os.close(handle)

    def begin(self, config: C, meta: dict[str, Any]) -> None:
        """Writes metadata and configuration of a new run."""
        self.check_new()
        write_whole(self.path / META, json.dumps(meta, indent=1))
        self.write_config(config)

    def check_new(self) -> None:
        """Raises `RunError` if the directory already contains a run."""
        if self.exists():
            resume = f"resume with --resume {quote(str(self.path))}"
            raise RunError(f"{self.path} already contains a run; {resume}, or choose another --run")

    def check_files(self, *names: str) -> None:
        """Raises `RunError` if one that is to be written is there and is not a file: a folder, a pipe."""
        for path in (self.path / name for name in names):
            try:
                if path.exists():
                    check_file(path)
            except OSError as error:
                raise RunError(f"{path} cannot be written: {error.strerror}; remove it") from None

    def write_config(self, config: C) -> None:
        """Writes the configuration; from then on the directory contains a run."""
        write_whole(self.config_file, yaml.safe_dump(as_dict(config), sort_keys=False))

    def config(self) -> C:
        """Reads the configuration."""
        return from_dict(self.kind, read_yaml(self.config_file))

    def threads(self) -> int:
        """CPU threads that the run started with."""
        return int(self.meta()["threads"])

    def meta(self) -> dict[str, Any]:
        """Versions, machine, engine and threads that the run started with."""
        try:
            found = plain_json(read_text(self.path / META))
            if not 0 <= int(found["threads"]) <= _MOST_THREADS:
                raise ValueError
            version = str(found.get("cavalcade", ""))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise RunError(f"{self.path / META} cannot be read ({type(error).__name__}); restore it") from None
        if version.startswith("0.1."):
            raise RunError(
                f"{self.path} was begun by version {version}; resume it with that version, or begin a new run"
            )
        return found

    def checkpoint_for(self, config: C) -> Checkpoint | None:
        """The newest checkpoint, or None; raises `RunError` if settings that cannot change differ from its own."""
        checkpoint = self.latest()
        if checkpoint:
            if missing := missing_settings(checkpoint.info["config"], read_yaml(self.config_file)):
                raise RunError(
                    f"{self.config_file} has lost settings that {checkpoint.path.name} has: {', '.join(missing)}; "
                    "restore it"
                )
            before = from_dict(self.kind, checkpoint.info["config"])
            if changed := differences(before, config, besides=config.may_change()):
                raise RunError(
                    f"{self.config_file} was changed after {checkpoint.path.name} was written: {'; '.join(changed)}; "
                    f"restore it, or begin a new run with --recipe {self.config_file}"
                )
        return checkpoint

    def latest(self) -> Checkpoint | None:
        """The newest checkpoint, or None; removes what a killed process left half written."""
        clear_aside(self.checkpoint_folder)
        found = checkpoints(self.checkpoint_folder)
        return load_checkpoint(found[-1]) if found else None


def new_path(name: str) -> Path:
    """Default directory of a new run: runs/NAME-TIME, numbered if another run began in the same second."""
    first = Path("runs", f"{file_name(name)}-{time.strftime('%Y%m%d-%H%M%S')}")
    names = itertools.chain([first], (first.with_name(f"{first.name}-{k}") for k in itertools.count(2)))
    return next(path for path in names if not path.exists())


def _lock(handle: int) -> bool:
    """Takes the lock, unless another run has it; `watch` tests it for a moment, which is waited for."""
    for wait in (0.01, 0.1, 0.0):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(wait)
    return False


def open_run(path: Path) -> RunDirectory[Any]:
    """Opens an existing training run."""
    plain = settings_of(path, "train")
    return RunDirectory(path, target_named(str(plain.get("target", ""))).Config)


def is_search(path: Path) -> bool:
    """Whether a directory contains a search."""
    plain = read_yaml(path / CONFIG) if (path / CONFIG).exists() else None
    return isinstance(plain, dict) and "searcher" in plain


def target_of(path: Path) -> str:
    """Target of a run, or of the run of a checkpoint; empty if unknown."""
    for folder in (path, path.parent.parent):
        if (folder / CONFIG).exists():
            plain = read_yaml(folder / CONFIG)
            return str(plain.get("target", "")) if isinstance(plain, dict) else ""
    return ""


def checkpoint_in(path: Path) -> Path:
    """The newest checkpoint of a run, or the path itself if it is a checkpoint."""
    if (path / CONFIG).exists():
        found = checkpoints(path / CHECKPOINTS)
        if not found:
            raise RunError(f"{path} has no checkpoint yet")
        return found[-1]
    if not (path / STATE).exists():
        raise RunError(f"{path} is neither a run (no {CONFIG}) nor a checkpoint (no {STATE})")
    return path


def settings_of(path: Path, verb: str) -> dict[str, Any]:
    """Settings of a run as plain data; raises `RunError` unless `verb` (train or search) made it."""
    if not (path / CONFIG).exists():
        raise RunError(f"{path} is not a run directory: it has no {CONFIG}")
    plain = read_yaml(path / CONFIG)
    if not isinstance(plain, dict):
        raise ConfigError(f"{path / CONFIG} is not a mapping of settings")
    found = "search" if "searcher" in plain else "train"
    if found != verb:
        made = {"search": "search", "train": "training"}[found]
        raise RunError(f"{path} is the run of a {made}; resume with: {resume_command(found, path)}")
    return plain


def read_yaml(path: Path) -> Any:
    try:
        return plain_yaml(read_text(path))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not YAML: {error}") from None


def missing_settings(whole: Any, plain: Any, where: str = "") -> list[str]:
    """Names of settings that are not in `plain`: a file that was cut short may still be YAML."""
    if not isinstance(whole, dict):
        return []
    if not isinstance(plain, dict):
        return [where.rstrip(".")]
    found = [f"{where}{name}" for name in whole if name not in plain]
    return found + [
        lost
        for name in whole
        if name in plain
        for lost in missing_settings(whole[name], plain[name], f"{where}{name}.")
    ]


def write_whole(path: Path, content: str) -> None:
    """Writes a file atomically."""
    try:
        with replacing(path) as aside:
            aside.write_text(content)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror}") from None


def provenance() -> dict[str, Any]:
    """Versions and machine, for meta.json."""
    return {
        "cavalcade": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numba": numba.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
