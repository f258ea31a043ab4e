"""Greedy evaluation on a device: many policies, one episode per environment, nothing read before the end."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.core.device import matmul_precision
from cavalcade.core.device_games import DeviceGames
from cavalcade.policy.mlp import MlpSpec
from cavalcade.ppo.engines.cuda.network import Network
from cavalcade.ppo.engines.cuda.ops import Ops


@torch.no_grad()
def greedy_episode_stats(games: DeviceGames, spec: MlpSpec, weights: Tensor) -> NDArray[np.float64]:
    """Plays one episode in every environment with greedy actions; returns its statistics, (N, F).

    weights: (P, D), on the device; each policy has an equal share of the environments. Matrix products are in full
    single precision. All episodes end at the horizon.
    """
    policies, n = len(weights), games.num_envs // len(weights)
    ops, network = Ops(weights.device), Network(spec, weights.contiguous(), n, weights.dtype)
    with matmul_precision(tf32=False):
        for _ in range(games.horizon):
            ops.unpack(games.words.view(policies, n, -1), games.value_places, network.x)
            logits, _ = network.forward()
            ops.greedy(
                games.num_envs, games.mask_bits, spec.actions, logits.flatten(0, 1), games.mask_words, games.actions
            )
            games.step()
    assert games.episode_stats is not None
    return games.episode_stats.cpu().numpy().copy()
