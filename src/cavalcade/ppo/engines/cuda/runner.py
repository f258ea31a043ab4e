"""Greedy play that stays on a device: many policies, one game per environment, nothing read before the end."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.envs.cage2.resident import ResidentCage2
from cavalcade.envs.contract import Environment
from cavalcade.launch import Launcher
from cavalcade.policy.mlp import NETS, MlpSpec
from cavalcade.ppo.resident.network import Network

_HERE = "cavalcade.ppo.resident"


@torch.no_grad()
def greedy_figures(env: Environment, spec: MlpSpec, weights: Tensor) -> NDArray[np.float64]:
    """What is known of the next episode of every environment, (N, F): all of CAGE-2 end with the horizon.

    weights: (P, D), on the device to play on; equal shares of the environments belong to each policy. Products are in
    full single precision.
    """
    games: Any = env
    there = ResidentCage2(games, weights.device)
    policies, n = len(weights), env.spec.num_envs // len(weights)
    launch = Launcher(weights.device, f"{_HERE}.loops", f"{_HERE}.kernels")
    network = Network(spec, weights.contiguous(), n)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        for _ in range(there.horizon):
            there.observe(there.words.view(policies, n, -1), network.x)
            logits = network.forward(NETS[0])
            launch("greedy", there.num_envs, there.mask_bits, spec.actions, logits, there.mask_words, there.actions)
            there.step()
    finally:
        torch.set_float32_matmul_precision(before)
    assert there.figures is not None
    return there.figures.cpu().numpy().copy()
