"""Loads trained policies: from a run's newest checkpoint, any checkpoint, a policy file or a shipped model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cavalcade.core.archives import DAMAGED
from cavalcade.core.errors import CavalcadeError, RunError
from cavalcade.models import is_model, model_file
from cavalcade.policy.module import MakeModule
from cavalcade.runs.checkpoint import load_checkpoint
from cavalcade.runs.directory import checkpoint_in, target_of
from cavalcade.runs.policy_file import SUFFIX, read_header, read_policy_file
from cavalcade.targets import target_named
from cavalcade.targets.base import Saved


def load_policy(
    path: str | Path, network: MakeModule | None = None, check: Callable[[dict[str, Any]], None] | None = None
) -> Any:
    """The policies of a run's newest checkpoint, of a checkpoint, a policy file or a model (`model:NAME`).

    network: factory of a user-defined network; check: raises if a policy with these settings is not to be loaded.
    """
    path = Path(path)
    if is_file(path):
        saved = read_policy(path, network)
    else:
        saved = _in_checkpoint(checkpoint_in(path), network)
    if check:
        check(saved.config)
    if network is not None:  # an error may be that of the user's network
        return _policy(saved)
    try:
        return _policy(saved)
    except CavalcadeError:
        raise
    except DAMAGED as error:  # a header that is JSON, but of something else
        raise RunError(f"{path} does not describe a policy ({type(error).__name__}: {error}); restore it") from None


def _policy(saved: Saved) -> Any:
    return target_named(str(saved.config.get("target", ""))).policy(saved)


def read_policy(path: Path, network: MakeModule | None = None) -> Saved:
    """Contents of a policy file or a model."""
    return read_policy_file(_file_of(path), network)._replace(path=path)


def _in_checkpoint(path: Path, network: MakeModule | None) -> Saved:
    checkpoint = load_checkpoint(path)
    if "slots" in checkpoint.info:
        raise RunError(f"{path} belongs to a search; give the directory of the search and one of its orders")
    return Saved(path, checkpoint.snapshot, checkpoint.info["network"], checkpoint.info["config"], network)


def is_file(path: Path) -> bool:
    """Whether a path stands for a single policy: a policy file or a shipped model."""
    return is_model(path) or (path.suffix == SUFFIX and path.is_file())


def _file_of(path: Path) -> Path:
    return model_file(path) if is_model(path) else path


def is_saved(path: str | Path) -> bool:
    """Whether there is anything to load a policy from."""
    return is_model(path) or Path(path).exists()


def trained_on(path: Path) -> str:
    """Target of a run, a checkpoint, a policy file or a model; empty if unknown."""
    if not is_file(path):
        return target_of(path)
    return str(read_header(_file_of(path))["config"].get("target", ""))
