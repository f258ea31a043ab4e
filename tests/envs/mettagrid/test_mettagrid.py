"""The real MettaGrid, hosted: the same arenas everywhere, every observation delivered, ends that are ends of time."""

import json

import numpy as np
import pytest
import yaml

from cavalcade.config import HostConfig
from cavalcade.core.errors import ConfigError
from cavalcade.envs.mettagrid.source import mettagrid_source
from cavalcade.envs.mettagrid.tasks import TASKS, forage, load_task
from cavalcade.vector.hosted import Hosted

from ...cli.helpers import refused, run

COMPLETION = 1  # feature id: how much of the episode has passed, 0 … 255
SMALL = {"agents": 4, "size": 11, "max_steps": 12, "walls": 2, "mines": 6}


def make(backend="serial", arenas=4, task="forage", options=SMALL, stats=(), factor=1, **more):
    source = mettagrid_source(task, options, stats=stats)
    return Hosted(source, 4 * arenas, HostConfig(backend=backend, workers=2, async_factor=factor), **more)


def completion(rows):
    """The token that says how far the episode is, of each agent."""
    tokens = rows.reshape(len(rows), -1, 3)
    found = (tokens[..., 0] == 254) & (tokens[..., 1] == COMPLETION)
    assert (found.sum(axis=1) == 1).all()
    return tokens[found][:, 2]


def test_arenas_do_not_depend_on_who_hosts_them():
    games = []
    for backend, factor in (("serial", 1), ("pipe", 1), ("shared", 1), ("async", 2)):
        env, rng = make(backend, factor=factor), np.random.default_rng(0)
        env.reset()
        games.append([[np.array(x) for x in env.step(rng.integers(0, 5, 16))] for _ in range(30)])
        env.close()
    for other in games[1:]:
        for one, two in zip(games[0], other, strict=True):
            for a, b in zip(one, two, strict=True):
                np.testing.assert_array_equal(a, b)
    assert any(step[1].any() for step in games[0])  # somebody found ore


def test_every_observation_is_delivered_and_time_truncates():
    env = make("shared")
    env.reset()
    assert (completion(env.buffers.observation) == 0).all()
    for t in range(1, 30):
        b = env.step(np.zeros(16, int))
        assert not b.terminated.any()
        assert b.truncated.all() == b.truncated.any() == (t % 12 == 0)
        if t % 12 == 0:
            assert (completion(b.final_observation) == 255).all()
        assert ((completion(b.observation) == 0) == (t % 12 == 0)).all()
    env.close()


def test_every_arena_and_every_episode_is_different_and_comes_again():
    def firsts(**more):
        env = make(**more)
        found = [env.reset().observation[::4].copy()]
        for _ in range(12):
            env.step(np.zeros(16, int))
        found.append(env.buffers.observation[::4].copy())
        return np.concatenate(found)

    one = firsts()
    assert len({row.tobytes() for row in one}) == 8
    np.testing.assert_array_equal(one, firsts())
    assert len({row.tobytes() for row in np.concatenate([one, firsts(seed=1)])}) == 16


def test_rewards_at_the_end_and_stats_arrive():
    env = make(options={**SMALL, "max_steps": 1, "mines": 40}, stats=("ore.gained", "no.such.stat"))
    env.reset()
    paid, ore = 0.0, 0.0
    rng = np.random.default_rng(0)
    for _ in range(20):  # every step is the last of its episode
        b = env.step(rng.integers(1, 5, 16))
        assert b.truncated.all()
        paid += b.reward.sum()
        ore += env.episode_stats[:, 0].sum()
        assert (b.reward > 0).sum() == (env.episode_stats[:, 0] > 0).sum()
    assert paid == pytest.approx(0.1 * ore)
    assert ore > 0
    assert not env.episode_stats[:, 1].any()


@pytest.mark.parametrize("task", TASKS)
def test_tasks_can_be_played(task):
    env = make(task=task, options={"agents": 4, "size": 15, "max_steps": 300})
    env.reset()
    rng = np.random.default_rng(1)
    rewards = np.concatenate([env.step(rng.integers(0, 5, 16)).reward.copy() for _ in range(250)])
    assert rewards.sum() > 0
    whole = np.isclose(rewards, np.rint(rewards), atol=1e-6).all()
    assert whole == (task in ("forage-sparse", "navigation"))  # nothing but hearts


def test_tasks_of_ones_own(tmp_path, monkeypatch):
    plain = forage(**SMALL).model_dump(mode="json")
    (tmp_path / "arena.yaml").write_text(yaml.safe_dump(plain))
    assert load_task(str(tmp_path / "arena.yaml"), {}).game.num_agents == 4
    (tmp_path / "mine.py").write_text(
        "from cavalcade.envs.mettagrid.tasks import forage\n\n\ndef arena(agents):\n    return forage(agents=agents)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert load_task("mine:arena", {"agents": 7}).game.num_agents == 7


@pytest.mark.parametrize(
    ("task", "options", "words"),
    [
        ("chess", {}, "task is 'chess'; it must be one of forage"),
        ("forage", {"agents": "many"}, "agents is 'many'; it must be a whole number"),
        ("forage", {"speed": 3}, "cannot be made"),
        ("forage", {"window": 10}, "obs.height of task 'forage' is 10; it must be odd"),
        ("mettagrid.builder.envs:make_arena", {"num_agents": 4}, "no source of reward"),
        ("no.such:thing", {}, "cannot be made"),
        ("os:getcwd", {}, "is not a MettaGridConfig but str"),
    ],
)
def test_bad_tasks(task, options, words):
    with pytest.raises(ConfigError, match=words):
        load_task(task, options)


def test_arenas_are_not_split():
    with pytest.raises(ConfigError, match="num_envs is 10; mettagrid forage has 4 agents"):
        Hosted(mettagrid_source("forage", SMALL), 10)
    env = make("async", arenas=6, factor=3)
    assert all(rows.start % 4 == rows.stop % 4 == 0 for rows in env.groups)
    env.close()


def test_bench_prints_and_writes(capsys, tmp_path):
    args = ("--parts", "stepping", "--arenas", "4", "--seconds", "0.1", "--json", tmp_path / "f.json")
    status, out, _ = run(capsys, "bench", "mettagrid", *args)
    assert status == 0
    for name in ("serial", "shared", "async"):
        assert name in out
    assert all(rate > 0 for rate in json.loads((tmp_path / "f.json").read_text())["stepping"]["4"].values())
    assert "arenas is 1" in refused(capsys, "bench", "mettagrid", "--arenas", "1")
