"""Image observations: the encoder that is chosen, frames that are stacked, pixels that stay bytes, and learning."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch

import cavalcade
from cavalcade.config import PPOConfig, WorkerConfig
from cavalcade.config.encoder import EncoderConfig
from cavalcade.core.errors import ConfigError
from cavalcade.core.images import ImageLayout
from cavalcade.policy.cnn import CnnSpec
from cavalcade.ppo.engine import Convolutional
from cavalcade.ppo.engines.image import ImageEngine
from cavalcade.ppo.update import adam_step
from cavalcade.runs.directory import RunDirectory
from cavalcade.runs.policies import load_policy
from cavalcade.runs.training import Training
from cavalcade.targets.base import Setup
from cavalcade.targets.gym import GymConfig, GymTarget
from cavalcade.vector.hosted import Hosted
from cavalcade.vector.source import gym_source

SERIAL = WorkerConfig(backend="serial")
PPO = PPOConfig(num_envs=4, rollout_steps=8, minibatches=2, epochs=2)
CATCH = {"cells": 8, "balls": 3}


def learner(num_envs=4, seed=0, frames=1, features=16, half=False, **ppo):
    source = gym_source("cavalcade/Catch-v0", CATCH, frames=frames)
    env = Hosted(source, num_envs, SERIAL, seed=seed)
    env.reset()
    network = Convolutional(source.shapes.image, features, half)
    return ImageEngine(env, replace(PPO, num_envs=num_envs, **ppo), [seed], network=network)


def prepared(target="gym:cavalcade/Catch-v0", setup=None, ppo=PPO, **encoding):
    options = ("cells=8",) if "Catch" in target else ()
    host = replace(GymConfig().host, backend="serial")
    config = GymConfig(
        target=target, host=host, ppo=ppo, env_options=options, encoding=EncoderConfig(**encoding), steps=10_000
    )
    found = GymTarget().prepare(config, setup or Setup(threads=1))
    found.engine.env.close()
    return found


def test_images_get_convolutions_and_the_run_says_so():
    found = prepared(precision="fp32")
    assert isinstance(found.engine, ImageEngine)
    assert found.notes == ["cnn encoder: observations are 8 × 8 × 3 images"]
    stacked = prepared(frame_stack=3, precision="bf16")
    assert stacked.notes == ["cnn encoder, bf16: observations are 8 × 8 × 3 images, 3 frames"]
    assert stacked.engine.spec.shapes["conv.0.weight"] == (16, 9, 3, 3)


def test_other_choices_are_said_too():
    (said,) = prepared(encoder="mlp").notes
    assert said == "mlp encoder (--encoder mlp): observations are flattened, although they are 8 × 8 × 3 images"
    assert "(engine cpu)" in prepared(ppo=replace(PPO, engine="cpu")).notes[0]
    before = Setup(threads=1, network_before={"inputs": 192, "hidden": [64, 64]})
    assert "(the run began with it)" in prepared(setup=before).notes[0]
    assert prepared("gym:CartPole-v1").notes == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"target": "gym:CartPole-v1", "encoder": "cnn"}, "observations of CartPole-v1 are not images"),
        ({"encoder": "cnn", "ppo": replace(PPO, engine="cpu")}, "encoder is cnn with engine cpu; use --encoder mlp"),
        ({"ppo": replace(PPO, hidden=(32,))}, r"hidden is \(32,\) with convolutions; use --features"),
        ({"encoder": "mlp", "features": 32}, "features is 32 with encoder mlp; use --hidden"),
        ({"encoder": "mlp", "precision": "bf16"}, "precision is bf16 with encoder mlp"),
        ({"frame_stack": 0}, "frame_stack is 0; it must be a whole number of at least 1"),
    ],
)
def test_what_does_not_fit_is_refused(given, said):
    with pytest.raises(ConfigError, match=said):
        prepared(**given)


@pytest.mark.parametrize("name", ["Catch", "Counting"])
def test_stacked_frames_are_those_of_gymnasium(name):
    """Against Gymnasium's own wrapper: across resets, with final observations, on bytes and on floats."""
    target, options = ("cavalcade/Catch-v0", CATCH) if name == "Catch" else ("tests.vector.games:Counting-v0", {})
    env = Hosted(gym_source(target, options, frames=3), 2, SERIAL, seed=1)
    env.reset()
    mates = [gymnasium.wrappers.FrameStackObservation(gymnasium.make(target, **options), 3) for _ in range(2)]
    words = [np.random.SeedSequence([1, i, 1]).generate_state(1)[0] for i in range(2)]
    shown = [mate.reset(seed=int(word >> 1))[0] for mate, word in zip(mates, words, strict=True)]
    rng, ends = np.random.default_rng(0), 0
    for _ in range(60):
        np.testing.assert_array_equal(env.buffers.observation, np.stack(shown).reshape(2, -1))
        actions = rng.integers(0, 3, 2)
        env.step(actions)
        for i, mate in enumerate(mates):
            shown[i], _, over, late, _ = mate.step(actions[i])
            assert (over or late) == (env.buffers.terminated | env.buffers.truncated)[i]
            if over or late:
                ends += 1
                np.testing.assert_array_equal(env.buffers.final_observation[i], shown[i].reshape(-1))
                shown[i], _ = mate.reset()
    assert ends > 3


def test_pixels_stay_bytes_and_are_not_normalised():
    one = learner()
    one.collect()
    one.update(0.0)
    assert one.env.buffers.observation.dtype == np.uint8
    assert one.rollout.observation.dtype == torch.uint8
    assert prepared(ppo=replace(PPO, normalise_observations=True)).engine.config.normalise_observations is False


def test_a_step_is_that_of_the_reference():
    one = learner()
    one.collect()
    one.prepare(0.0)
    batch = next(iter(one.minibatches(0)))
    active = torch.ones(1, dtype=torch.bool)
    one.gradient(batch, active)
    s, rates = one.state, torch.full((1,), 1e-3)
    copies = [x.clone() for x in (s.weights, one._gradient, s.first_moment, s.second_moment, s.adam_steps)]
    wanted = adam_step(*copies, rates, one._grad_clip, active)
    torch.testing.assert_close(one.step(rates, active), wanted)
    torch.testing.assert_close(s.weights, copies[0], atol=1e-6, rtol=1e-5)


def test_bootstrap_values_are_of_the_wanted_environments():
    one = learner()
    one.collect()
    shown = torch.from_numpy(one.env.buffers.observation)[None]
    wanted = np.array([True, False, True, False])
    with torch.no_grad():
        values = one.spec.forward(one.state.weights, shown)[1].numpy()
    np.testing.assert_allclose(one.values(wanted), np.where(wanted, values, 0), atol=1e-6)


def test_a_snapshot_goes_on_to_the_bit():
    whole, first, second = (learner(normalise_returns=False) for _ in range(3))
    for one in (whole, first):
        one.collect()
        one.update(0.0)
    second.restore(first.snapshot())
    second.rollout, second.env = whole.rollout, whole.env
    whole.update(0.5)
    second.update(0.5)
    assert torch.equal(whole.state.weights, second.state.weights)


def test_a_run_is_loaded_and_acts_on_images(tmp_path):
    config = GymConfig(
        target="gym:cavalcade/Catch-v0", host=replace(GymConfig().host, backend="serial"), ppo=PPO, steps=64,
        env_options=("cells=8",), encoding=EncoderConfig(frame_stack=2, features=8),
    )  # fmt: skip
    run = RunDirectory(tmp_path / "run", GymConfig)
    with run.locked():
        assert Training(run, config, quiet=True, threads=1).train().finished
    policy = load_policy(run.path)
    assert policy.spec == CnnSpec(ImageLayout((8, 8, 3), frames=2), 3, features=8)
    images = np.random.default_rng(0).integers(0, 256, (5, 2, 8, 8, 3), np.uint8)
    actions = policy(images)
    assert actions.shape == (5,)
    assert [policy(image) for image in images] == actions.tolist() == policy(images.reshape(5, -1)).tolist()
    assert policy.evaluate(images[0]).probabilities.shape == (3,)
    scores = GymTarget().evaluate(policy, GymTarget.EvaluateOptions(episodes=8))
    assert -5 <= scores.mean <= 5


def test_catch_is_learnt():
    """At random most balls fall beside the paddle: a return of about −0.7 of at most 3."""
    sizes = {"num_envs": 32, "rollout_steps": 32, "minibatches": 4, "epochs": 4}
    one = learner(features=0, frames=2, learning_rate=1e-3, entropy_coef=0.005, schedule="constant", **sizes)
    first = one.collect().total.mean()
    for _ in range(40):
        one.collect()
        one.update(0.0)
    assert first < 0
    assert np.concatenate([one.collect().total for _ in range(3)]).mean() > 0.8


def test_bf16_computes_about_the_same():
    one, other = learner(), learner(half=True)
    for engine in (one, other):
        engine.collect()
    assert (one.rollout.action == other.rollout.action).float().mean() > 0.9
    assert not torch.equal(one.rollout.value, other.rollout.value)
    torch.testing.assert_close(one.rollout.value[:, 0], other.rollout.value[:, 0], atol=0.02, rtol=0.02)
    assert other.update(0.0)["grad_norm"] == pytest.approx(one.update(0.0)["grad_norm"], rel=0.2)


@pytest.mark.parametrize(("name", "value"), [("features", 32), ("precision", "bf16")])
def test_settings_of_convolutions_are_refused_without_images(tmp_path, name, value):
    with pytest.raises(ConfigError, match=f"{name} is {value}; it is of convolutions"):
        cavalcade.train("gym:CartPole-v1", run=tmp_path / "run", progress=False, **{name: value})
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} <= {".lock"}
