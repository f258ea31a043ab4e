"""Small runs, and what two of them have in common."""

import json
from pathlib import Path

import numpy as np
from safetensors.torch import load_file

from cavalcade.config import PPOConfig
from cavalcade.runs.checkpoint import checkpoints
from cavalcade.runs.directory import RunDirectory, open_run
from cavalcade.runs.training import Outcome, Training
from cavalcade.targets.cage2.config import Cage2Config

SMALL = [
    "train", "cage2", "--num-envs", "10", "--rollout-steps", "25", "--hidden", "16", "--episodes", "100",
    "--checkpoint-every", "10", "--threads", "1",
]  # fmt: skip
SMALL_CONFIG = Cage2Config(
    ppo=PPOConfig(num_envs=10, rollout_steps=25, hidden=(16,)), episodes=100, checkpoint_every=10
)  # 40 updates


def train(path: Path, config: Cage2Config = SMALL_CONFIG, *, stop_at: int | None = None, resume=False) -> Outcome:
    """Trains in this process; as if a signal had come after update `stop_at`."""
    run = open_run(path) if resume else RunDirectory(path, type(config))
    with run.locked():
        training = Training(
            run, run.config() if resume else config, resume=resume, threads=0 if resume else 1, quiet=True
        )
        update = training.learner.update

        def watched(progress):
            found = update(progress)
            if training.learner.counters.updates == stop_at:
                import os
                import signal

                os.kill(os.getpid(), signal.SIGTERM)
            return found

        training.learner.update = watched  # pyright: ignore
        return training.train()


def left_behind(path: Path) -> dict:
    """All that a run has left, wall-clock aside."""
    newest = checkpoints(path / "checkpoints")[-1]
    info = json.loads((newest / "state.json").read_text())
    with np.load(newest / "state.npz") as archive:
        games = {name: archive[name].tobytes() for name in archive.files}
    rows = [json.loads(row) for row in (path / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        del row["seconds"]
    return {
        "tensors": {
            f"{file}/{name}": (str(tensor.dtype), tensor.numpy().tobytes())
            for file in ("policy", "optimizer")
            for name, tensor in load_file(newest / f"{file}.safetensors").items()
        },
        "games": games,
        "counters": {name: info[name] for name in ("update", "steps", "episodes")},
        "metrics": rows,
        "episodes": (path / "episodes.csv").read_text(),
    }
