"""The trainers we are measured beside really train."""

import torch

from cavalcade.bench import peers


def test_the_single_file_trainer_learns(monkeypatch):
    monkeypatch.setattr(peers, "ENVS", 20)
    torch.manual_seed(0)
    rewards = []

    class Watched(peers.Cage2):
        def step(self, actions):
            buffers = super().step(actions)
            rewards.append(float(buffers.reward.mean()))
            return buffers

    monkeypatch.setattr(peers, "Cage2", Watched)
    update = peers.single_file_ppo("bline", compiled=False, learning_rate=2e-3)
    for _ in range(60):
        update()
    assert sum(rewards[-500:]) > 0.8 * sum(rewards[:500])  # rewards are negative


def test_stable_baselines3_makes_an_update(monkeypatch):
    monkeypatch.setattr(peers, "ENVS", 8)
    peers.stable_baselines3("bline")()
