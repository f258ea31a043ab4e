"""RLlib and Ray Tune use CAGE-2. Ray runs in processes of its own: it warns a lot, and changes what it runs in."""

import math
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

import gymnasium
import numpy as np
import psutil
import pytest
from gymnasium.vector import AutoresetMode

from cavalcade.core.errors import ConfigError
from cavalcade.core.jit import cache_base
from cavalcade.envs import CAGE2_ID, rllib
from cavalcade.envs.cage2 import Cage2
from cavalcade.runs.directory import open_run

EXAMPLES = Path(__file__).parents[2] / "examples"
OPTIONS = {"red": "meander", "horizon": 7, "extras": ("scans",)}


@pytest.fixture(scope="module")
def elsewhere():
    """Calls functions in a process of their own; what they raise is raised here."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield lambda function: pool.submit(function).result()


def test_vector_environment_is_gymnasiums_own_of_single_ones():
    """Next-step autoreset as Gymnasium does it, with episodes that end at different times."""
    env = rllib.create({"num_envs": 6, **OPTIONS})
    singles = gymnasium.make_vec(CAGE2_ID, num_envs=6, vectorization_mode="sync", **OPTIONS)
    assert env.metadata["autoreset_mode"] is singles.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert (env.single_observation_space, env.single_action_space) == (
        singles.single_observation_space,
        singles.single_action_space,
    )
    seeds = [3, 1, 4, 1, 5, 9]
    np.testing.assert_array_equal(env.reset(seed=seeds)[0], singles.reset(seed=seeds)[0])
    ends = []
    actions = np.random.default_rng(0).integers(145, size=(40, 6))
    for t, action in enumerate(actions):
        if t == 7:  # all have ended; two begin at once, the others in this step
            for one in (env, singles):
                one.reset(options={"reset_mask": np.array([True, False, True, False, False, False])})
        if t == 15:  # four have ended and not begun again
            np.testing.assert_array_equal(env.reset()[0], singles.reset()[0])
        *given, info = env.step(action)
        *expected, expected_info = singles.step(action)
        for one, other in zip(given, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)
        np.testing.assert_array_equal(info["action_mask"], expected_info["action_mask"])
        assert "final_obs" not in info
        ends.append(given[3].tolist())
    assert [t for t, row in enumerate(ends) if any(row)] == [6, 13, 14, 21, 29, 37]


def test_runners_play_different_games():
    for options in ({}, {"num_envs": 1}):
        keys = {int(rllib.create(options).batch.state.key[0]) for _ in range(5)}
        assert len(keys) == 5
    with pytest.raises(ConfigError, match=r"env_config has seed 1, .* config\.debugging\(seed=…\)"):
        rllib.create({"seed": 1})


def test_register_without_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=re.escape("pip install 'cavalcade[ray]'")):
        rllib.register()


def single_through_the_creator():
    from ray.tune.registry import ENV_CREATOR, _global_registry

    rllib.register()
    rllib.register()
    env = _global_registry.get(ENV_CREATOR, CAGE2_ID)(OPTIONS)
    observation, info = env.reset(seed=2)
    batch = Cage2(1, dtype="float32", **OPTIONS)
    np.testing.assert_array_equal(observation, batch.reset(seed=2).observation[0])
    assert info["action_mask"].shape == (145,)
    for _ in range(6):
        observation, reward, terminated, truncated, _ = env.step(3)
        buffers = batch.step([3])
        np.testing.assert_array_equal(observation, buffers.observation[0])
        assert reward == pytest.approx(buffers.reward[0])
        assert not terminated
        assert not truncated
    assert env.step(3)[3]


def episodes_of_a_runner():
    """What RLlib has recorded is what was played, to the last observation of each episode."""
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

    rllib.register()
    for mode, seed in (("vector_entry_point", 11), ("sync", [11, 12, 13, 14])):
        config = (
            PPOConfig()
            .environment(CAGE2_ID, env_config=OPTIONS)
            .env_runners(num_envs_per_env_runner=4, gym_env_vectorize_mode=mode)
            .debugging(seed=11)
        )
        runner = SingleAgentEnvRunner(config=config)
        episodes = [episode for episode in runner.sample(num_timesteps=3 * 7 * 4) if episode.is_done]
        assert len(episodes) == 12
        replay(episodes, Cage2(4, dtype="float32", seed=seed, **OPTIONS))


def replay(episodes, batch):
    batch.reset()
    for first in range(0, len(episodes), 4):
        games = episodes[first : first + 4]
        assert all(len(game) == 7 and game.is_truncated and not game.is_terminated for game in games)
        for t in range(7):
            seen = np.stack([game.get_observations(t) for game in games])
            np.testing.assert_array_equal(seen, batch.buffers.observation)
            assert (batch.buffers.action_mask == [game.get_infos(t)["action_mask"] for game in games]).all()
            buffers = batch.step([int(game.get_actions(t)) for game in games])
            np.testing.assert_allclose([game.get_rewards(t) for game in games], buffers.reward, rtol=1e-6)
        np.testing.assert_array_equal(np.stack([game.get_observations(7) for game in games]), buffers.final_observation)


@pytest.mark.parametrize("function", [single_through_the_creator, episodes_of_a_runner])
def test_registered(elsewhere, function):
    elsewhere(function)


def listening(process):
    """Addresses at which a process or one that it has started listens."""
    found = set()
    for one in [process, *process.children(recursive=True)]:
        with suppress(psutil.Error):
            connections = one.net_connections("inet")
            found |= {c.laddr.ip for c in connections if c.status == psutil.CONN_LISTEN}
    return found


@pytest.fixture
def run_example(tmp_path):
    """Runs an example with a home and a folder for Ray that nobody else has; returns the lines it prints."""
    with tempfile.TemporaryDirectory(prefix="ray") as short:  # Ray's sockets lie there: paths of 107 bytes at most
        kernels = str(cache_base().parents[1])
        env = os.environ | {"HOME": str(tmp_path), "RAY_TMPDIR": short, "NUMBA_CACHE_DIR": kernels}

        def run(name, *args):
            output, errors = tmp_path / "output", tmp_path / "errors"
            with output.open("w") as out, errors.open("w") as err:
                command = [sys.executable, EXAMPLES / name, *args]
                process = subprocess.Popen(command, stdout=out, stderr=err, cwd=tmp_path, env=env)
                addresses = set()
                deadline = time.monotonic() + 1800
                try:
                    while process.poll() is None and time.monotonic() < deadline:
                        addresses |= listening(psutil.Process(process.pid))
                        time.sleep(0.5)
                finally:
                    process.terminate()
                    process.wait()
            assert process.returncode == 0, errors.read_text()
            assert addresses
            assert all(ip_address(address.removeprefix("::ffff:")).is_loopback for address in addresses), addresses
            return output.read_text().splitlines()

        yield run


def test_rllib_trains(run_example):
    lines = run_example("rllib_ppo.py", "--iterations", "3")
    found = [re.fullmatch(r"iteration (\d)  mean return (\S+)", line) for line in lines]
    means = {int(match[1]): float(match[2]) for match in found if match}
    assert list(means) == [1, 2, 3]
    assert all(math.isfinite(mean) and -500 < mean < 0 for mean in means.values())


def test_tune_finds_the_best(run_example, tmp_path):
    lines = run_example("tune_ppo.py", "--episodes", "2000")
    found = [re.fullmatch(r"learning rate (\S+)  held-out mean (\S+)", line) for line in lines]
    means = {match[1]: float(match[2]) for match in found if match}
    assert list(means) == ["0.0001", "0.0005", "0.002", "0.008"]
    assert all(math.isfinite(mean) and -500 < mean < 0 for mean in means.values())
    best = re.fullmatch(r"best: learning rate (\S+), run (.+)", lines[-1])
    assert best[1] == max(means, key=means.__getitem__)
    run = open_run(Path(best[2]))
    assert run.path.is_relative_to(tmp_path)
    assert run.config().ppo.learning_rate == float(best[1])


def test_tune_runs_rllibs_own_ppo(run_example):
    lines = run_example("tune_rllib.py", "--iterations", "2")
    found = [re.fullmatch(r"(learning rate \S+, clip range \S+)  mean return (\S+)", line) for line in lines]
    means = {match[1]: float(match[2]) for match in found if match}
    assert len(means) == 4
    assert all(math.isfinite(mean) and -500 < mean < 0 for mean in means.values())
    assert lines[-1].removeprefix("best: ") in means
