"""Training on images beside Stable-Baselines3: the same network, a ratio."""

import pytest

from cavalcade.cli.bench import images
from cavalcade.core.images import ImageLayout
from cavalcade.policy.cnn import CnnSpec

pytest.importorskip("stable_baselines3")


def test_both_train_the_same_network():
    import stable_baselines3  # noqa: F401

    extractor = images._small_extractor()
    from gymnasium.spaces import Box

    made = extractor(Box(0, 255, (3, 16, 16), "uint8"))
    spec = CnnSpec(ImageLayout((16, 16, 3)), 1)
    mine = {name: shape for name, shape in spec.shapes.items() if not name.startswith(("actor", "critic"))}
    assert [tuple(p.shape) for p in made.parameters()] == list(mine.values())


def test_it_prints_speeds_and_the_ratio(capsys, monkeypatch):
    monkeypatch.setattr(images, "PPO", images.PPOConfig(num_envs=4, rollout_steps=8, minibatches=2, epochs=1))
    images.run(["--sizes", "16", "--seconds", "0.01", "--rounds", "1", "--threads", "1"])
    lines = capsys.readouterr().out.splitlines()
    (peer,) = [line for line in lines if "Stable-Baselines3" in line]
    assert peer.endswith("1.00×")
    assert any("cavalcade, fp32" in line and line.endswith("×") for line in lines)
    assert any("bound, fp32" in line and line.endswith("×") for line in lines)


def test_the_bound_counts_every_layer(monkeypatch):
    """A forward pass for the rollout and, in each epoch, a forward and a backward pass."""
    monkeypatch.setattr(images, "product_rate", lambda _: 1e9)
    spec = CnnSpec(ImageLayout((16, 16, 3)), 3)
    convolutions, dense = 2 * (27 * 16 * 14**2 + 144 * 32 * 6**2), 2 * (32 * 6**2 * 128 + 128 * 4)
    forward = convolutions + dense
    assert spec.forward_operations == forward
    expected = forward + images.PPO.epochs * (3 * forward - 2 * 27 * 16 * 14**2)
    assert images.bounds({"cells": 16, "zoom": 1}, images.Options())["bound, fp32"] == pytest.approx(1e9 / expected)
