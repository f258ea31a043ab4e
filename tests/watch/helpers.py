"""Run directories without a training: the files that a run writes."""

import fcntl
import json
import os
from contextlib import contextmanager
from pathlib import Path

CONFIG = """\
target: cage2
seed: 0
task:
  red: meander
  horizon: 100
ppo:
  num_envs: 50
  rollout_steps: 100
  learning_rate: 0.002
episodes: {episodes}
policies: {policies}
"""


def row(update: int, policies: int = 2, value: float | None = None) -> str:
    returns = [-300.0 / update - p if value is None else value for p in range(policies)]
    plain = {
        "update": update, "steps": 5000 * policies * update, "episodes": 50 * policies * update, "return": returns,
        "entropy": [4.0 / update] * policies, "seconds": 0.5 * update,
    }  # fmt: skip
    return json.dumps(plain) + "\n"


def make_run(
    path: Path, updates: int = 20, planned: int = 100, policies: int = 2, checkpoint: int | None = None
) -> Path:
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(CONFIG.format(episodes=50 * planned, policies=policies))
    (path / "meta.json").write_text(json.dumps({"cavalcade": "0.2", "threads": 2, "engine": "cpu"}))
    (path / "metrics.jsonl").write_text("".join(row(u + 1, policies) for u in range(updates)))
    (path / ".lock").touch()
    if checkpoint is not None:
        folder = path / "checkpoints" / f"{checkpoint:08d}"
        folder.mkdir(parents=True)
        state = {"steps": 5000 * checkpoint, "seconds": 1.0, "phases": {"collect": 3.0, "update": 1.0}}
        (folder / "state.json").write_text(json.dumps(state))
    return path


@contextmanager
def held(path: Path):
    """Holds the lock of a run, as a training does."""
    handle = os.open(path / ".lock", os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(handle)
