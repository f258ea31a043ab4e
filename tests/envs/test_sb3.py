"""Stable-Baselines3 trains on the batch through its own interface."""

import numpy as np
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from cavalcade.core.errors import ConfigError
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.sb3 import Sb3VecEnv


def test_ends_are_told_the_way_sb3_wants():
    env = Sb3VecEnv(Cage2(4, red="bline", horizon=5, seed=1))
    endless = Cage2(4, red="bline", horizon=0, seed=1)
    env.reset()
    endless.reset()
    total = np.zeros(4)
    for t in range(1, 6):
        observation, reward, done, infos = env.step(np.array([0, 1, 2, 3]))
        last = endless.step([0, 1, 2, 3]).observation
        total += reward
        assert len(infos) == 4
        assert done.tolist() == [t == 5] * 4
        assert all(info["TimeLimit.truncated"] == (t == 5) for info in infos)
    for e, info in enumerate(infos):
        np.testing.assert_array_equal(info["terminal_observation"], last[e])
        assert info["episode"]["l"] == 5
        assert info["episode"]["r"] == pytest.approx(total[e], abs=1e-5)
    assert not observation.any()


def test_masks_for_sb3_contrib():
    env = Sb3VecEnv(Cage2(3))
    env.reset()
    assert env.has_attr("action_masks")
    assert np.stack(env.env_method("action_masks")).shape == (3, 145)
    assert len(env.env_method("action_masks", indices=[0, 2])) == 2
    with pytest.raises(AttributeError, match="there is action_masks"):
        env.env_method("fly")
    with pytest.raises(AttributeError, match="'wings' is not an attribute"):
        env.get_attr("wings")
    with pytest.raises(ConfigError, match="cannot set"):
        env.set_attr("red", "bline")
    assert env.env_is_wrapped(type(env)) == [False] * 3


def test_seeds():
    def first_steps(seed):
        env = Sb3VecEnv(Cage2(50, red="meander"))
        env.seed(seed)
        env.reset()
        return np.array([env.step(np.zeros(50, np.int64))[0] for _ in range(8)])

    assert (first_steps(1) == first_steps(1)).all()
    assert (first_steps(1) != first_steps(2)).any()


def test_ppo_learns_to_lose_less():
    env = Sb3VecEnv(Cage2(64, red="bline", horizon=30, seed=1))
    env.reset()
    model = PPO("MlpPolicy", env, n_steps=30, batch_size=960, n_epochs=4, learning_rate=3e-3, seed=0, device="cpu")
    model.learn(30 * 64 * 25)
    returns = [episode["r"] for episode in model.ep_info_buffer]
    untrained = -154  # the leaderboard's random Blue against B_line over 30 steps
    assert np.mean(returns) > untrained / 2


def test_sb3_makes_the_environment_by_its_name():
    """It asks for pictures, as its recorders need them; and its copies play different games."""
    env = make_vec_env("cavalcade/Cage2-v0", n_envs=4, env_kwargs={"red": "meander"})
    env.reset()
    assert env.render_mode == "rgb_array"
    assert env.get_images()[0].shape == (640, 960, 3)
    for _ in range(20):
        observations = env.step(np.zeros(4, np.int64))[0]
    assert len(np.unique(observations, axis=0)) > 1
    model = PPO("MlpPolicy", env, n_steps=25, batch_size=50, n_epochs=1, device="cpu")
    model.learn(200)
    assert model.num_timesteps == 200
    assert PPO("MlpPolicy", "cavalcade/Cage2-v0", n_steps=20, batch_size=20, n_epochs=1, device="cpu").learn(20)
