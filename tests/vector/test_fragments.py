"""Local workers that act by themselves: never too old, nothing lost or repeated, whatever happens to them."""

import gc
import itertools
import os
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from cavalcade.config import HostConfig, PPOConfig
from cavalcade.core.errors import ConfigError, StateError, WorkerError
from cavalcade.policy.heads import Choice, Choices, Point
from cavalcade.policy.mlp import MlpSpec
from cavalcade.ppo.collectors.fragments import FragmentCpuEngine, FragmentTorchEngine, fragment_engine, policy_values
from cavalcade.ppo.collectors.lead import Lead
from cavalcade.ppo.draws import uniform_draws
from cavalcade.ppo.engines.torch import TorchEngine
from cavalcade.ppo.keys import environment_keys
from cavalcade.vector.fragments import Fragment
from cavalcade.vector.hosted import Hosted
from cavalcade.vector.player import Perceptron, uniform
from cavalcade.vector.source import gym_source
from tests.vector.test_hosted import game

PPO = PPOConfig(
    num_envs=8, rollout_steps=10, minibatches=2, hidden=(16,), learning_rate=0.01, normalise_observations=True
)


def learner(staleness=2, source=None, workers=2, config=PPO, **options):
    host = HostConfig(staleness=staleness, workers=workers, **{"worker_timeout": 600, **options})
    env = Hosted(source or game("Counting"), config.num_envs, host)
    engine = fragment_engine(env, config, [3], host)
    env.reset()
    return engine


@pytest.fixture
def made():
    """Engines whose environments are closed after the test."""
    found = []

    def make(*args, **options):
        found.append(learner(*args, **options))
        return found[-1]

    yield make
    for one in found:
        one.env.close()


@pytest.mark.parametrize("staleness", [1, 2, 3])
def test_experience_is_never_too_old_and_comes_in_order(made, staleness):
    engine = made(staleness)
    ages, last = [], {}
    for update in range(12):
        engine.collect()
        reported = engine.update(update / 12)["staleness"][0]
        assert reported == max(engine.ages) <= staleness
        ages += engine.ages
        for row in range(8):
            x = engine.rollout.observation[0, :, row].numpy()
            when = x[:, 1] * 100 + x[:, 0]
            assert (np.diff(when) > 0).all()
            assert when[0] > last.get(x[0, 2], -1)  # no fragment is missing its past, none comes twice
            last[x[0, 2]] = when[-1]
    assert max(ages) >= 1


def test_a_worker_that_is_killed_before_it_made_its_environments_is_replaced(made):
    engine = made(2)
    worker = engine.env.pool.workers[1].process
    worker.kill()
    worker.wait()
    engine.collect()
    assert engine.env.pool.restarts == 1


def until_idle(pool):
    """Waits until no worker may play on."""
    shared = pool._all
    while (shared["done"] // pool._plan.steps - shared["taken"] < shared["lead"]).any():
        time.sleep(0.001)


def test_workers_play_no_further_ahead_than_the_learner_needs(made):
    """A learner slower than its workers soon learns from experience of one update before, whatever the limit."""
    engine = made(4)
    for update in range(30):
        engine.collect()
        until_idle(engine.env.pool)
        engine.update(update / 30)
    assert engine.ages == [1, 1]


def test_fragments_that_are_finished_before_the_learner_waits_are_noticed(made):
    """The learner looks, finds nothing, is held up while all workers finish, and then waits."""
    engine = made(3)
    pool = engine.env.pool
    pool.publish(0, policy_values(engine))
    until_idle(pool)
    pool.wait(known=0)
    assert len(pool.finished()) == 2


def test_the_lead_grows_while_a_worker_is_idle_and_shrinks_when_nobody_waits():
    one, other = (Fragment(worker, 0, 0, {}, np.zeros(0, np.int64)) for worker in (0, 1))
    lead = Lead(3)

    def updates_until_it_shrinks():
        lead.waits([one])  # worker 1 plays, worker 0 is idle
        assert lead.fragments == 2
        return next(count for count in itertools.count(1) if lead.never_waited() or lead.fragments == 1)

    first, second, third = (updates_until_it_shrinks() for _ in range(3))
    assert second == 2 * first
    assert third == 2 * second
    for _ in range(third):
        lead.never_waited()
    assert updates_until_it_shrinks() == first  # one fragment sufficed for long enough
    lead.waits([])  # both play
    assert lead.fragments == 1
    for expected in (2, 3, 3):
        lead.waits([one, other] * 3)
        assert lead.fragments == expected


def test_the_learner_waits_for_a_fragment_that_would_be_too_old(made, tmp_path):
    gate = tmp_path / "gate"
    engine = made(2, game("Gated", at=25, flag=str(tmp_path / "flag"), gate=str(gate)))
    pool, waits, ages = engine.env.pool, [], []
    original = pool.wait

    def wait(known):
        if (tmp_path / "flag").exists() and not gate.exists() and len(pool.finished()) >= 2:
            waits.append(engine.state.updates)  # enough fragments are there, and still it waits
            gate.touch()
        original(known)

    pool.wait = wait
    for _ in range(8):
        engine.collect()
        ages.append(max(engine.ages))
        engine.update(0.0)
    assert len(waits) == 1
    assert max(ages) == ages[waits[0]] == 2


@pytest.mark.parametrize("engine", ["cpu", "torch"])
def test_with_one_update_of_age_results_do_not_depend_on_timing(made, engine):
    runs = [made(1, config=replace(PPO, engine=engine)) for _ in range(2)]
    for update in range(5):
        for one in runs:
            one.collect()
            one.update(update / 5)
        torch.testing.assert_close(runs[0].state.weights, runs[1].state.weights, rtol=0, atol=0)
    assert isinstance(runs[0], FragmentCpuEngine if engine == "cpu" else FragmentTorchEngine)


def test_both_engines_learn_the_same(made):
    source = gym_source("CartPole-v1")
    one, two = (made(1, source, config=replace(PPO, engine=engine)) for engine in ("cpu", "torch"))
    for update in range(3):
        for engine in (one, two):
            engine.collect()
        a, b = one.update(update / 3), two.update(update / 3)
        np.testing.assert_allclose(a["policy_loss"], b["policy_loss"], rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(one.state.weights, two.state.weights, rtol=1e-3, atol=1e-4)


def test_the_first_fragments_are_those_of_the_learner_itself(made):
    """Workers act as the engine does: the same random numbers, distributions and environments."""
    engine = made(1)
    env = Hosted(game("Counting"), 8, HostConfig(backend="serial"))
    env.reset()
    here = TorchEngine(env, PPO, [3])
    ours, theirs = engine.collect(), here.collect()
    for name in ("observation", "mask", "action", "reward", "ended"):
        torch.testing.assert_close(getattr(engine.rollout, name), getattr(here.rollout, name), rtol=0, atol=0)
    torch.testing.assert_close(engine.rollout.log_prob, here.rollout.log_prob, rtol=1e-5, atol=1e-6)
    for name in ("environment", "total", "length", "kind"):
        assert sorted(getattr(ours, name)) == sorted(getattr(theirs, name))


@pytest.mark.parametrize(
    ("head", "scaling"), [(Choice(5), None), (Choices(2, 3), None), (Point(2), ([0, 5], [2, 5], [-2, 0], [2, 10]))]
)
def test_workers_act_as_heads_do(head, scaling):
    spec = MlpSpec(4, head.outputs, (16, 8), 0, head.deviations)
    weights = spec.initial_weights([1]) * 3
    layers = [(x.fan_in, x.fan_out, x.columns, x.weight, x.bias) for x in spec.layers("actor")]
    plain = {"layers": layers, "head": head.kind, "sizes": head.sizes, "draws": head.draws, "inputs": 4}
    actor = Perceptron(plain | {"size": spec.size, "deviations": spec.size - spec.deviations, "scaling": scaling})
    rng = np.random.default_rng(0)
    shift, scale = rng.normal(size=(2, 4)).astype(np.float32)
    actor.load(np.concatenate([weights[0].numpy(), shift, scale]))
    keys = environment_keys([7], 50)
    numbers, mine = np.zeros((50, head.draws)), uniform(keys, 11, 2, head.draws)
    uniform_draws(keys, np.array([12]), 0, numbers)
    np.testing.assert_array_equal(mine[1], numbers)
    x = rng.normal(size=(50, 4)).astype(np.float32)
    mask = np.ones((50, 0 if scaling else head.outputs), np.bool_)
    mask[::2, :1] = False
    action, log_prob = actor.act(x, mask, actor.noise(mine)[1])
    logits, _ = spec.forward(weights, torch.from_numpy((x - shift) * scale)[None])
    theirs = head.sample(logits[0], torch.from_numpy(mask), torch.from_numpy(numbers))
    np.testing.assert_allclose(action, theirs, rtol=1e-4, atol=1e-5)
    expected, _ = head.evaluate(logits[0], torch.from_numpy(mask), theirs)
    np.testing.assert_allclose(log_prob, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("trouble", ["kill", "raise", "hang", "nan"])
def test_a_worker_that_fails_continues_its_fragment(made, tmp_path, trouble, capfd):
    options = {"worker_timeout": 2} if trouble == "hang" else {}
    engine = made(2, game("Counting", trouble=trouble, at=13, flag=str(tmp_path / "flag")), **options)
    broken, lost = 0, 0
    for _ in range(6):
        ended = engine.collect()
        broken += int((ended.kind == 1).sum())
        r = engine.rollout
        for row in range(8):
            x, over = r.observation[0, :, row].numpy(), r.ended[0, :, row].numpy()
            for t in range(9):
                assert x[t + 1, 0] == (0 if over[t] else x[t, 0] + 1)
                lost += bool(over[t] and r.reward[0, t, row] == 0 and (engine._final[0, t, row].numpy() == x[t]).all())
        engine.update(0.0)
    assert engine.env.restarts == 1
    assert broken == 4  # the environments of one worker
    assert lost == 4
    said = capfd.readouterr().err
    assert "worker" in said
    assert "restarting it (1 of 10)" in said


def test_kills_at_any_moment_lose_and_repeat_nothing(made, capfd):
    engine = made(2, max_restarts=100)
    while not engine.env.pool._all["ready"].all():
        time.sleep(0.01)
    seen, rng, kills = {}, np.random.default_rng(0), 0
    for update in itertools.count():
        if update >= 12 and engine.env.restarts == kills:  # a death may be noticed after what was there is used up
            break
        assert update < 24
        if update % 3 == 1 and update < 12:
            process = engine.env.pool.workers[int(rng.integers(2))].process
            kills += process.poll() is None  # the death of the one before may not have been noticed yet
            process.kill()
            process.wait()
        engine.collect()
        for row in range(8):
            for step, episode, seed, _ in engine.rollout.observation[0, :, row].tolist():
                key = (seed, episode, step)
                assert key not in seen
                seen[key] = update
        engine.update(0.0)
    assert 1 <= engine.env.restarts == kills <= 4
    assert len(seen) == update * 80
    capfd.readouterr()


def test_workers_that_keep_failing_end_the_run(made, tmp_path, capfd):
    engine = made(2, game("Broken"), max_restarts=2)

    def train():
        for _ in range(20):
            engine.collect()
            engine.update(0.0)

    with pytest.raises(WorkerError, match="after 2 restarts; fix the environment"):
        train()
    capfd.readouterr()


def test_it_resumes_after_its_last_steps(made):
    engine = made(2)
    for update in range(4):
        engine.collect()
        engine.update(update / 8)
    saved = engine.snapshot()
    begun = saved.games["episodes"].copy()
    again = made(1, workers=4)
    again.restore(saved)
    again.collect()
    assert again.state.updates == 4
    assert (again.memory()["actor_clocks"] >= engine.memory()["actor_clocks"].max()).all()
    assert (again.env.shared.episodes >= begun + 1).all()
    first = again.rollout.observation[0, 0].numpy()
    assert (first[:, 0] == 0).all()  # new episodes
    again.restore(saved)  # also while workers play
    again.collect()
    np.testing.assert_array_equal(again.rollout.observation[0, 0].numpy(), first)


def test_learning_on_cartpole(made):
    config = PPOConfig(num_envs=16, rollout_steps=64, minibatches=4, learning_rate=3e-3, hidden=(32,), gamma=0.98)
    engine = made(2, gym_source("CartPole-v1"), config=config)
    totals = []
    for _ in range(200):  # how many it takes depends on how old the experience happens to be
        totals.append(engine.collect().total)
        engine.update(0.0)
        if np.concatenate(totals[-5:]).mean() > 3 * np.concatenate(totals[:3]).mean():
            return
    pytest.fail("returns did not triple")


def test_environments_are_not_stepped_from_outside(made):
    engine = made(1)
    with pytest.raises(StateError, match="act by themselves"):
        engine.env.step(np.zeros(8, np.int64))


def test_what_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match="do not divide into 3 workers; take --workers 2"):
        learner(workers=3)
    with pytest.raises(ConfigError, match="staleness is 1 with backend serial"):
        HostConfig(backend="serial", staleness=1)
    with pytest.raises(ConfigError, match="it must be at least 0"):
        HostConfig(staleness=-1)
    with pytest.raises(ConfigError, match="replay is 1 with staleness 2"):
        learner(config=replace(PPO, replay=1))


def test_memory_is_freed():
    def files():
        return len(os.listdir("/proc/self/fd"))

    gc.collect()
    before = files()
    engine = learner(2)
    engine.collect()
    pids = [worker.process.pid for worker in engine.env.pool.workers.values()]
    engine.env.close()
    for pid in pids:
        assert not os.path.exists(f"/proc/{pid}")
    del engine  # and with it its hold on the memory
    gc.collect()
    assert files() == before
