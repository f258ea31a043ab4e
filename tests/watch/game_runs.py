"""A folder of small runs to look at games of."""

import shutil
from pathlib import Path

import cavalcade

TINY = {"num_envs": 8, "hidden": (8,), "threads": 1, "progress": False, "minibatches": 1}
GAME = {"horizon": 12, "rollout_steps": 12, "episodes": 16}


_made: list[Path] = []


def folder_of_runs(tmp_path_factory, data: Path) -> Path:
    """The folder, made once per process: trainings take a while."""
    if not _made:
        _made.append(make_runs(tmp_path_factory.mktemp("runs"), data))
    return _made[0]


def make_runs(folder: Path, data: Path) -> Path:
    """Two policies that see extras, one with memory, a run without checkpoint, recorded episodes, damaged ones."""
    cavalcade.train("cage2", red="meander", extras=("scans", "time"), policies=2, **GAME, **TINY, run=folder / "two")
    cavalcade.train("cage2", memory="lstm", bptt_horizon=4, **GAME, **TINY, run=folder / "deep" / "lstm")
    (folder / "young").mkdir()
    shutil.copy(folder / "two" / "config.yaml", folder / "young")
    recording = next(path for path in sorted(data.glob("*T30*.npz")) or sorted(data.glob("*.npz")))
    shutil.copy(recording, folder / "games.npz")
    (folder / "cut.npz").write_bytes(recording.read_bytes()[:2000])
    (folder / "notes.npz").write_text("no archive at all")
    return folder
