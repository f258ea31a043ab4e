"""Environments in Ray actors: the same games as elsewhere; whole rollouts, never too old; nodes may be lost."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from cavalcade.config import HostConfig, PPOConfig
from cavalcade.core.contract import BROKEN
from cavalcade.core.errors import ConfigError, WorkerError
from cavalcade.core.ray_session import connected, import_ray
from cavalcade.ppo.collectors.fragments import FragmentTorchEngine
from cavalcade.ppo.engines.torch import TorchEngine
from cavalcade.runs.directory import RunDirectory
from cavalcade.runs.training import Training
from cavalcade.targets.gym import GymConfig
from cavalcade.vector.hosted import Hosted
from tests.ppo.collectors.test_recurrent import learner as recurrent
from tests.vector.test_hosted import game

PPO = PPOConfig(
    num_envs=8, rollout_steps=10, minibatches=2, hidden=(16,), learning_rate=0.01, normalise_observations=True
)


@pytest.fixture(scope="module")
def cluster():
    """A head for the learner and two nodes for actors, on loopback."""
    import_ray()
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    found.nodes = [found.add_node(num_cpus=2), found.add_node(num_cpus=2)]
    with connected(found.address):
        yield found
    found.shutdown()


def hosted(source=None, n=8, actors=2, **options):
    config = HostConfig(backend="ray", workers=actors, worker_timeout=600, **options)  # busy machines are slow
    env = Hosted(source or game("Counting"), n, config)
    env.reset()
    return env


def fragments(staleness, vtrace=True):
    env = hosted()
    return FragmentTorchEngine(env, PPO, [3], staleness=staleness, vtrace=vtrace)


def test_the_same_games_as_in_this_process(cluster):
    there, here = hosted(), Hosted(game("Counting"), 8, HostConfig(backend="serial"))
    here.reset()
    rng = np.random.default_rng(0)
    for _ in range(30):
        actions = rng.integers(0, 3, 8)
        for mine, theirs in zip(there.step(actions), here.step(actions), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    for name, array in there.save_state().items():
        np.testing.assert_array_equal(array, here.save_state()[name])
    there.close()


@pytest.mark.parametrize("trouble", ["kill", "raise"])
def test_an_actor_that_fails_is_replaced(cluster, tmp_path, trouble, capfd):
    env = hosted(game("Counting", trouble=trouble, at=3, flag=str(tmp_path / "flag")))
    broken = 0
    for _ in range(8):
        before = env.buffers.observation.copy()
        b = env.step(np.ones(8, np.int64))
        lost = env.episode_kinds == env.episode_kind_names.index(BROKEN)
        broken += int(lost.sum())
        np.testing.assert_array_equal(b.final_observation[lost], before[lost])
        assert b.truncated[lost].all()
        assert (b.observation[lost, 0] == 0).all()  # new episodes have begun
    assert broken == 4
    assert env.restarts == 1
    assert "was lost" in capfd.readouterr().err
    env.close()


def test_actors_that_keep_failing_end_the_run(cluster, tmp_path):
    env = hosted(game("Counting", trouble="kill", at=2, flag=str(tmp_path / "no folder" / "flag")), max_restarts=1)
    env.step(np.ones(8, np.int64))
    with pytest.raises(WorkerError, match="environments failed 2 times"):  # all of them fail, none can leave a flag
        env.step(np.ones(8, np.int64))
    env.close()


def test_without_staleness_it_is_the_learner_of_this_process(cluster):
    far = fragments(staleness=0)
    env = Hosted(game("Counting"), 8, HostConfig(backend="serial"))
    env.reset()
    near = TorchEngine(env, PPO, [3])
    for update in range(3):
        ours, theirs = far.collect(), near.collect()
        assert sorted(zip(ours.environment, ours.total, ours.length, strict=True)) == sorted(
            zip(theirs.environment, theirs.total, theirs.length, strict=True)
        )
        a, b = far.update(update / 3), near.update(update / 3)
        assert a["staleness"] == 0
        np.testing.assert_allclose(a["policy_loss"], b["policy_loss"], rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(far.state.weights, near.state.weights, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(far.state.return_square, near.state.return_square, rtol=1e-6, atol=1e-9)
    far.env.close()


@pytest.mark.parametrize("staleness", [1, 3])
def test_experience_is_never_too_old_and_comes_in_order(cluster, staleness):
    learner = fragments(staleness)
    oldest, last = 0, {}
    for update in range(12):
        learner.collect()
        oldest = max(oldest, int(learner.update(update / 12)["staleness"][0]))
        for row in range(8):  # (step, episode, seed, …) of every observation
            x = learner.rollout.observation[0, :, row].numpy()
            when = x[:, 1] * 100 + x[:, 0]
            assert (np.diff(when) > 0).all()
            assert when[0] > last.get(x[0, 2], -1)  # no fragment is missing its past, none comes twice
            last[x[0, 2]] = when[-1]
    assert 1 <= oldest <= staleness
    learner.env.close()


def test_lost_actors_repeat_and_hide_nothing(cluster, capfd):
    """An actor is lost while its fragments wait to be taken, and so is the next: nothing is played twice."""
    learner = fragments(3)
    pool, source, seen, broken = learner.env.pool, learner._collector._source, set(), 0
    for update in range(10):
        if update in (3, 4):
            while learner.env.restarts < update - 3 or 0 in source._past:  # until the one before was noticed, and plays
                source.wait(len(source.finished()))
            end(pool, 0)
        ended = learner.collect()
        broken += int((ended.kind == learner.env.episode_kind_names.index(BROKEN)).sum())
        r = learner.rollout
        for row in range(8):
            x, over = r.observation[0, :, row].numpy(), r.ended[0, :, row].numpy()
            for t, (step, episode, seed, _) in enumerate(x.tolist()):
                assert (seed, episode, step) not in seen
                seen.add((seed, episode, step))
                assert t == 9 or x[t + 1, 0] == (0 if over[t] else step + 1)
        learner.update(0.0)
    assert learner.env.restarts == 2
    assert broken == 8  # four environments, twice
    assert len(seen) == 10 * 80
    assert capfd.readouterr().err.count("was lost") == 2
    learner.env.close()


def end(pool, actor):
    """Kills an actor, and waits until it is dead: it may answer for a while."""
    pool.ray.kill(pool.actors[actor])
    answers = (pool.ray.get(pool.actors[actor].apply.remote(id)) for _ in itertools.count())
    with pytest.raises(pool.ray.exceptions.RayActorError):
        list(answers)


def test_an_actor_that_hangs_is_replaced(cluster, tmp_path, monkeypatch, capfd):
    """The clock runs fast while only the actor that hangs owes a fragment, and stands still else."""
    flag = tmp_path / "flag"
    env = hosted(game("Counting", trouble="hang", at=13, flag=str(flag)))
    learner = FragmentTorchEngine(env, PPO, [3], staleness=1, vtrace=True)
    source, broken, now = learner._collector._source, 0, [0.0]

    def watched():
        now[0] += 400.0 if flag.exists() and len(source._asked) == 1 and not env.restarts else 0.0
        return now[0]

    monkeypatch.setattr(source, "_watched", watched)
    for _ in range(4):
        broken += int((learner.collect().kind == 1).sum())
        learner.update(0.0)
    assert broken == 4
    assert env.restarts == 1
    assert "it has not answered for 750 s" in capfd.readouterr().err
    env.close()


def test_a_long_fragment_is_no_hang(cluster, monkeypatch):
    """An actor gives signs of life; with none allowed to wait for, every step is one."""
    learner = fragments(1)
    near = fragments(1)
    monkeypatch.setattr(learner.env.pool, "timeout", 0.0)
    source = learner._collector._source
    monkeypatch.setattr(source, "_check_progress", lambda: None)
    asked, ask = [], source._ask
    monkeypatch.setattr(source, "_ask", lambda actor: (asked.append(actor), ask(actor)))
    for update in range(3):
        for one in (learner, near):
            one.collect()
            one.update(update / 3)
        torch.testing.assert_close(learner.state.weights, near.state.weights, rtol=0, atol=0)
    assert len(asked) >= 3 * 2 * 10  # each of the steps of each fragment
    for one in (learner, near):
        one.env.close()


def test_recurrent_policies_act_in_actors_as_in_workers(cluster):
    far, near = recurrent(1, backend="ray"), recurrent(1)
    for update in range(2):
        for learner in (far, near):
            learner.collect()
            learner.update(update / 2)
        for a, b in zip(far.policy.parameters(), near.policy.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    far.env.close()
    near.env.close()


def test_learning_with_and_without_correction(cluster):
    for vtrace in (True, False):
        learner = fragments(2, vtrace)
        returns = []
        for update in range(40):
            returns.append(learner.collect().total.mean())
            learner.update(update / 40)
        assert np.mean(returns[-5:]) > np.mean(returns[:5]) + 1, vtrace  # action 2 pays best
        learner.env.close()


def test_a_training_goes_on_when_a_node_is_lost(cluster, tmp_path):
    config = GymConfig(
        target="gym:CartPole-v1", ppo=replace(PPO, rollout_steps=64), steps=8 * 64 * 40,
        host=HostConfig(backend="ray", workers=2, worker_timeout=600), checkpoint_every=10,
    )  # fmt: skip
    run = RunDirectory(tmp_path / "a", GymConfig)
    with run.locked():
        training = Training(run, config, threads=1, quiet=True)
        learner, collect = training.learner, training.learner.collect

        def disturbed():
            if learner.state.updates == 15 and cluster.nodes:
                for node in cluster.nodes:
                    cluster.remove_node(node, allow_graceful=False)
                cluster.nodes = []
                cluster.add_node(num_cpus=4)
            return collect()

        learner.collect = disturbed
        outcome = training.train()
        assert training.engine.env.restarts >= 2
    assert outcome.finished
    rows = [json.loads(row) for row in (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()]
    assert [row["steps"] for row in rows] == [8 * 64 * (i + 1) for i in range(40)]
    resumed = RunDirectory(tmp_path / "a", GymConfig)
    with resumed.locked():
        again = Training(resumed, config, resume=True, quiet=True)
        assert again.learner.state.updates == 40
        assert again.learner.memory()["actor_clocks"].min() >= 64 * 40
        again.engine.env.close()


def test_what_does_not_fit_is_refused(cluster):
    for options, words in (({"actors": 3}, "do not divide into 3 actors"), ({"actors": 8}, "need a CPU each")):
        with pytest.raises(ConfigError, match=words):
            hosted(**options)
