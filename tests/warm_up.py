"""Compiles the kernels that several test files use, on two processes, before each worker would do so for itself."""

import multiprocessing
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch

import cavalcade
from cavalcade.envs.mettagrid.arenas import Arenas
from cavalcade.envs.mettagrid.device import DeviceArenas
from cavalcade.envs.mettagrid.games import forage
from cavalcade.policy.recurrent import TokenPolicy
from cavalcade.policy.tokens import TokenLayout

TRAIN = {"num_envs": 8, "rollout_steps": 10, "episodes": 8, "hidden": (8,), "device": "cpu", "threads": 1}
SEARCH = {"num_envs": 8, "n_workflows": 2, "max_episodes": 1, "parallel_orders": 2, "score_episodes": 2, "confirm": 0}


def arenas() -> None:
    """MettaGrid's games and the token policy."""
    games = Arenas(forage(agents=2, size=7, max_steps=2, tokens=80), 4)
    games.reset()
    games.step(np.zeros(4, int))
    resident = DeviceArenas(games, 20, torch.device("cpu"))
    resident.launch()
    resident.begin(np.arange(2))
    layout = TokenLayout(3, 3, ("tag",), (1.0,), 2, 4)
    out, _ = TokenPolicy(layout, 2, core="none", width=16)(torch.zeros(1, 1, 4, 3).byte(), (), np.zeros((1, 1), bool))
    out.values.sum().backward()


def trainings() -> None:
    """CAGE-2: one policy and two, with and without deduplication, on both engines; searches."""
    with tempfile.TemporaryDirectory() as folder:
        for i, settings in enumerate((
            {"red": "bline"}, {"red": "mixed", "policies": 2}, {"dedup": "off"}, {"engine": "torch"},
        )):  # fmt: skip
            cavalcade.train("cage2", **TRAIN, **settings, run=Path(folder, str(i)), progress=False)
        for target in ("gridworld", "cage2"):
            cavalcade.search(target, **SEARCH, run=Path(folder, target), threads=1, progress=False)


def main() -> None:
    """Does all of it once."""
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        for started in [pool.submit(job) for job in (arenas, trainings)]:
            started.result()


if __name__ == "__main__":
    main()
