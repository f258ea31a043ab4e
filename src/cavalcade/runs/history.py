"""The history of a run: what it started from, and every setting that changed when it was resumed.

history.jsonl has a row per event: `date`, `update`, and either `changes` (setting: [old, new]) or `init` (the source of
the initial weights). config.yaml, which holds the current settings, is written first: a process killed between the two
leaves a run that resumes with the new settings, and the next resume finds and records the change.
"""

import json
import time
from pathlib import Path
from shlex import quote
from typing import Any

from cavalcade.config.base import RunConfig
from cavalcade.config.io import flat, from_dict, listed
from cavalcade.core.errors import ConfigError, RunError
from cavalcade.core.files import plain_json, read_text
from cavalcade.runs.checkpoint import Checkpoint
from cavalcade.runs.directory import RunDirectory, write_whole
from cavalcade.runs.files import HISTORY


def read_history(path: Path) -> list[dict[str, Any]]:
    """The events of a run, oldest first; empty if its settings never changed."""
    file = path / HISTORY
    try:
        return [plain_json(row) for row in read_text(file).splitlines()] if file.exists() else []
    except (OSError, ValueError) as error:
        raise RunError(f"{file} cannot be read ({type(error).__name__}); restore it") from None


def add_event(path: Path, update: int, **event: Any) -> None:
    """Adds an event, atomically."""
    row = {"date": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "update": update, **event}
    write_whole(path / HISTORY, "".join(f"{json.dumps(one)}\n" for one in (*read_history(path), row)))


def check_changes(run: RunDirectory[Any], config: RunConfig) -> None:
    """Raises `ConfigError` if a resumed run is given a setting that cannot change."""
    before, now = flat(run.config()), flat(config)
    for name in now:
        if before[name] != now[name] and not listed(name, config.may_change()):
            option = name.rpartition(".")[2]
            instead = "begin a new run" if listed(option, config.shaping) else config.instead
            raise ConfigError(
                f"{option} is {_said(now[name])}; in {run} it is {_said(before[name])} and cannot change, "
                f"{instead}{f' {quote(str(run))}' if instead.endswith('--init') else ''}"
            )


def check_budget(run: RunDirectory[Any], config: RunConfig, checkpoint: Checkpoint | None) -> None:
    """Raises `ConfigError` if a run has already trained more than its new budget."""
    done = checkpoint.snapshot.counters.updates if checkpoint else 0
    if done > config.updates:
        name, budget = budget_of(config)
        raise ConfigError(f"{name} is {budget}, {config.updates} updates; {run} has already made {done}, give more")


def budget_of(config: RunConfig) -> tuple[str, int]:
    """Name and value of the setting that limits a training."""
    name = next(name for name in ("episodes", "steps") if hasattr(config, name))
    return name, getattr(config, name)


def record_changes(run: RunDirectory[Any], config: RunConfig, checkpoint: Checkpoint | None) -> list[str]:
    """Makes config.yaml hold the settings of a resumed run, and records those that changed; returns them in words."""
    update = int(checkpoint.info["update"]) if checkpoint else 0
    file, now = flat(run.config()), flat(config)
    before = _recorded(run, checkpoint, update) if checkpoint else file
    free = config.free_to_change
    changes = {
        name: [(file if listed(name, free) else before).get(name), value]
        for name, value in now.items()
        if (file if listed(name, free) else before).get(name) != value
    }
    if file != now:
        run.write_config(config)
    if changes:
        add_event(run.path, update, changes=changes)
    return [f"{name} {_said(a)} → {_said(b)} from update {update}" for name, (a, b) in changes.items()]


def _recorded(run: RunDirectory[Any], checkpoint: Checkpoint, update: int) -> dict[str, Any]:
    """The settings as the checkpoint and later events have them."""
    found = flat(from_dict(run.kind, checkpoint.info["config"]))
    for event in read_history(run.path):
        if event["update"] >= update:
            found |= {name: new for name, (_, new) in event.get("changes", {}).items()}
    return found


def _said(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
