"""Loads trained policies: from a run's newest checkpoint, or from any checkpoint."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cavalcade.core.errors import RunError
from cavalcade.policy.module import MakeModule
from cavalcade.runs.checkpoint import load_checkpoint
from cavalcade.runs.directory import checkpoint_in
from cavalcade.targets import target_named
from cavalcade.targets.base import Saved


def load_policy(
    path: str | Path, network: MakeModule | None = None, check: Callable[[dict[str, Any]], None] | None = None
) -> Any:
    """The policies of a run's newest checkpoint, or of a checkpoint.

    network: factory of a user-defined network; check: raises if a policy with these settings is not to be loaded.
    """
    path = checkpoint_in(Path(path))
    checkpoint = load_checkpoint(path)
    if "slots" in checkpoint.info:
        raise RunError(f"{path} belongs to a search; give the directory of the search and one of its orders")
    config = checkpoint.info["config"]
    if check:
        check(config)
    saved = Saved(path, checkpoint.snapshot, checkpoint.info["network"], config, network)
    return target_named(str(config.get("target", ""))).policy(saved)
