"""Compiles the kernels that most tests use, once and on two processes, before several workers would each do so."""

import tempfile
from pathlib import Path

import numpy as np
import torch

import cavalcade
from cavalcade.envs.mettagrid.arenas import Arenas
from cavalcade.envs.mettagrid.device import DeviceArenas
from cavalcade.envs.mettagrid.games import forage
from cavalcade.policy.recurrent import TokenPolicy
from cavalcade.policy.tokens import TokenLayout


def main() -> None:
    """Trains for a moment."""
    arenas = Arenas(forage(agents=2, size=7, max_steps=2, tokens=80), 4)
    arenas.reset()
    arenas.step(np.zeros(4, int))
    games = DeviceArenas(arenas, 20, torch.device("cpu"))
    games.launch()
    games.begin(np.arange(2))
    layout = TokenLayout(3, 3, ("tag",), (1.0,), 2, 4)
    out, _ = TokenPolicy(layout, 2, core="none", width=16)(torch.zeros(1, 1, 4, 3).byte(), (), np.zeros((1, 1), bool))
    out.values.sum().backward()
    with tempfile.TemporaryDirectory() as folder:
        for red, policies in (("bline", 1), ("mixed", 2)):
            run = Path(folder, red)
            cavalcade.train(
                "cage2", red=red, policies=policies, num_envs=8, rollout_steps=10, episodes=8, device="cpu", run=run
            )


if __name__ == "__main__":
    main()
