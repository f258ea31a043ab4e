"""The trainers and hosts we are measured beside really train and play."""

import numpy as np
import pytest
import torch

from cavalcade.cli.bench import train
from cavalcade.cli.bench.hosting import LoopHost, PipeHost, SharedHost
from cavalcade.cli.bench.single_file import BatchGames, single_file_ppo
from cavalcade.envs.cage2 import Cage2


def test_the_single_file_trainer_learns():
    torch.manual_seed(0)
    rewards = []

    class Watched(BatchGames):
        def step(self, actions):
            found = super().step(actions)
            rewards.append(float(found[1].mean()))
            return found

    update = single_file_ppo(Watched(Cage2(20, dtype="float32")), learning_rate=2e-3)
    for _ in range(60):
        update()
    assert sum(rewards[-500:]) > 0.8 * sum(rewards[:500])  # rewards are negative


def test_stable_baselines3_makes_an_update(monkeypatch):
    monkeypatch.setattr(train, "ENVS", 8)
    train.stable_baselines3("bline")()


@pytest.mark.parametrize("kind", [LoopHost, PipeHost, lambda n: PipeHost(n, true_states=True), SharedHost])
def test_hosts_play_the_same_games(kind):
    host, single = kind(3), LoopHost(3)
    rng = np.random.default_rng(0)
    for _ in range(120):
        actions = rng.integers(145, size=3)
        for one, other in zip(host.step(actions), single.step(actions), strict=True):
            np.testing.assert_array_equal(one, other)
    host.close()
