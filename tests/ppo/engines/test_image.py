"""The engine for images against plain torch: gradients, draws, and results that do not depend on threads."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cavalcade.config import PPOConfig, WorkerConfig
from cavalcade.ppo.engine import Convolutional
from cavalcade.ppo.engines import image
from cavalcade.ppo.engines.image import ImageEngine
from cavalcade.ppo.engines.torch import TorchEngine
from cavalcade.vector.hosted import Hosted
from cavalcade.vector.source import gym_source
from tests.vector.test_hosted import game

PPO = PPOConfig(num_envs=4, rollout_steps=8, minibatches=2, epochs=2, learning_rate=0.01)
SOURCES = {
    "choice": lambda: gym_source("cavalcade/Catch-v0", {"cells": 8, "balls": 3}),
    "low": lambda: gym_source("cavalcade/Catch-v0", {"cells": 12, "zoom": 3, "balls": 3}),  # the large trunk
    "choices": lambda: game("Paddled", continuous=False, balls=3),
    "point": lambda: game("Paddled", balls=3),
}


def learner(kind="choice", seeds=(0,), dtype=torch.float32, half=False, **ppo):
    source = SOURCES[kind]()
    config = replace(PPO, **ppo)
    env = Hosted(source, config.num_envs * len(seeds), WorkerConfig(backend="serial"), seed=list(seeds))
    env.reset()
    network = Convolutional(source.shapes.image, 16, half)
    return ImageEngine(env, config, list(seeds), network=network, dtype=dtype)


@pytest.fixture
def parts(monkeypatch):
    """Small batches are computed in parts, too."""
    for name in ("_LEAST", "_ALONE", "_LARGE", "_WEIGHTS"):
        monkeypatch.setattr(image, name, 1 if name != "_WEIGHTS" else 1000)


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("pieces", [1, 2])
def test_gradients_are_those_of_plain_torch(parts, kind, pieces):
    one = learner(kind, (0, 1) if kind == "choice" else (0,), torch.float64, grad_accum=pieces, value_clip=0.1)
    one.collect()
    one.prepare(0.0)
    one.state.weights += 0.05 * torch.randn(one.state.weights.shape, generator=torch.Generator().manual_seed(1))
    active = torch.ones(one.policies, dtype=torch.bool)
    for batch in one.minibatches(0):
        metrics, mine = one.gradient(batch, active), one._gradient.clone()
        one._gradients = lambda piece, share: TorchEngine._gradients(one, piece, share)
        expected, theirs = one.gradient(batch, active), one._gradient
        del one._gradients
        assert (mine - theirs).norm() <= 1e-10 * theirs.norm()
        torch.testing.assert_close(metrics, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("half", [False, True])
def test_the_number_of_threads_changes_nothing(parts, half):
    found = []
    for threads in (1, 3):
        one = learner(half=half)
        one._threads.use(threads)
        for update in range(2):
            one.collect()
            one.update(update / 2)
        found.append((one.state.weights, one.rollout.action, one.rollout.log_prob, one.rollout.value))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)


def test_the_parts_of_a_batch_depend_on_its_size():
    one = learner()
    assert one._parts(100, 10**6) == [slice(0, 100)]
    parts = one._parts(1001, 10**6)
    assert len(parts) == 10
    assert [x for part in parts for x in range(part.start, part.stop)] == list(range(1001))
    assert len(one._parts(10**6, 10**6)) == 16
    assert len(one._parts(3, 10**12)) == 3


def test_actions_and_their_probabilities_are_those_of_the_head():
    one, other = learner(), learner()
    one.collect()
    other.act = lambda t, group: TorchEngine.act(other, t, group)
    other.collect()
    r, plain = one.rollout, other.rollout
    for name in ("observation", "mask", "action", "reward", "ended", "value"):
        torch.testing.assert_close(getattr(r, name), getattr(plain, name), rtol=0, atol=0)
    torch.testing.assert_close(r.log_prob, plain.log_prob, rtol=1e-5, atol=1e-6)
    assert len(np.unique(r.action)) == 3


def test_masked_images_are_drawn_within_their_masks():
    one = learner()
    one.env.buffers.action_mask[:, 1] = False  # of environments that show no mask of their own it stays
    one.collect()
    assert not (one.rollout.action == 1).any()
    assert torch.isfinite(one.rollout.log_prob).all()
