"""A training at one moment as one object: whoever takes it over goes on as if nothing had been interrupted."""

import numpy as np
import pytest
import torch

from cavalcade.config import PPOConfig
from cavalcade.core.errors import StateError
from cavalcade.core.launch import Launcher
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.device_games import DeviceCage2
from cavalcade.envs.cage2.workflow import WorkflowCage2
from cavalcade.ppo.engines.cpu.engine import CpuEngine
from cavalcade.ppo.engines.cuda.engine import CudaEngine
from cavalcade.ppo.engines.torch import TorchEngine
from cavalcade.ppo.snapshot import Counters, Snapshot, select
from cavalcade.ppo.state import MOMENTS
from tests.ppo.engines.recurrent.test_engine import learner as recurrent_learner
from tests.ppo.engines.recurrent.toy import Cue

CPU = torch.device("cpu")
N, STEPS, HORIZON = 4, 15, 30  # a rollout ends within an episode


class Apart(Launcher):
    """Launches whose arrays lie in a memory of their own, as those of a GPU do."""

    def moved(self, x):
        if isinstance(x, tuple) and hasattr(x, "_fields"):
            return type(x)(*map(self.moved, x))
        return x.copy() if hasattr(x, "dtype") else x

    def copy(self, here, there):
        for mine, theirs in zip(here, there, strict=True) if isinstance(here, tuple) else ((here, there),):
            if hasattr(mine, "dtype"):
                theirs[...] = mine


class DeviceGames(DeviceCage2):
    """Games that are not in the memory of the batch."""

    def __init__(self, env, device, monkeypatch):
        monkeypatch.setattr("cavalcade.envs.cage2.device_games.Launcher", Apart)
        super().__init__(env, device)
        assert not np.shares_memory(self._state.key, env.state.key)


def games(seeds, kind=Cage2, n=N):
    env = kind(len(seeds) * n, red="meander", horizon=HORIZON, seed=list(seeds))
    env.reset()
    return env


@pytest.fixture
def make(monkeypatch):
    """Makes engines by name."""

    def made(name, seeds=(3, 4), **given):
        config = PPOConfig(num_envs=N, rollout_steps=STEPS, hidden=(8,), epochs=2, minibatches=2, **given)
        if name == "recurrent":
            return recurrent_learner(Restarting(16, spread=3), parts=2, epochs=2)
        env = games(seeds)
        if name == "cuda":
            return CudaEngine(env, DeviceGames(env, CPU, monkeypatch), config, seeds)
        if name == "torch":
            return TorchEngine(env, config, seeds)
        return CpuEngine(env, config, seeds, distinct=name == "cpu-distinct")

    return made


class Restarting(Cue):
    """Hosted games: they cannot be put back where they were, new ones begin."""

    resumable = False

    def save_state(self, indices=None):
        return {"seed": np.full(self.spec.num_envs, 1)}

    def load_state(self, saved, indices=None):
        self._rng = np.random.default_rng(int(saved["seed"][0]))
        self.reset()


RESUMABLE = ["cpu", "cpu-distinct", "torch", "cuda"]
ENGINES = [*RESUMABLE, "recurrent"]


def advance(engine, updates=1):
    """The metrics of some updates and the episodes that ended in them."""
    found = []
    for u in range(updates):
        episodes = engine.collect()
        metrics = engine.update(u / 5)
        found.append(([np.asarray(x).copy() for x in episodes], {name: x.copy() for name, x in metrics.items()}))
    return found


def copied(snapshot):
    """A snapshot that shares no memory with the engine."""
    policy, learner = ({name: x.clone() for name, x in part.items()} for part in snapshot[:2])
    return Snapshot(policy, learner, {name: x.copy() for name, x in snapshot.games.items()}, snapshot.counters)


def assert_equal(one, other):
    """Two snapshots are equal to the bit."""
    assert one.counters == other.counters
    for mine, theirs in ((one.policy, other.policy), (one.learner, other.learner)):
        assert mine.keys() == theirs.keys()
        for name, tensor in mine.items():
            assert tensor.dtype == theirs[name].dtype, name
            assert torch.equal(tensor, theirs[name]), name
    assert one.games.keys() == other.games.keys()
    for name, array in one.games.items():
        np.testing.assert_array_equal(array, other.games[name], err_msg=name)


def assert_same_course(one, other):
    """The same episodes and the same metrics, to the bit."""
    for (mine, metrics), (theirs, others) in zip(one, other, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(a, b)
        assert metrics.keys() == others.keys()
        for name, values in metrics.items():
            np.testing.assert_array_equal(values, others[name], err_msg=name)


@pytest.mark.parametrize("name", RESUMABLE)
@pytest.mark.parametrize("given", [{}, {"normalise_observations": True}], ids=["plain", "normalised"])
def test_another_engine_goes_on_to_the_bit(make, name, given):
    if name == "cuda" and given:
        given = {"normalise_returns": False}  # it does not normalise observations
    whole, first, second = (make(name, **given) for _ in range(3))
    course = advance(whole, 2) + advance(whole, 2)
    begun = advance(first, 2)
    advance(second, 1)  # was somewhere else
    second.restore(copied(first.snapshot()))
    assert second.counters == Counters(2 * STEPS, 2)
    assert_same_course(begun + advance(second, 2), course)
    assert_equal(second.snapshot(), whole.snapshot())


@pytest.mark.parametrize("name", RESUMABLE)
def test_an_engine_can_be_put_back(make, name):
    engine = make(name)
    advance(engine, 2)
    then = copied(engine.snapshot())
    course = advance(engine, 2)
    after = copied(engine.snapshot())
    engine.restore(then)
    assert_equal(engine.snapshot(), then)
    assert_same_course(advance(engine, 2), course)
    assert_equal(engine.snapshot(), after)


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_starts_from_trained_weights(make, name):
    trained, new, fresh = (make(name) for _ in range(3))
    advance(trained, 2)
    source, before = copied(trained.snapshot()), copied(fresh.snapshot())
    new.start_from(source)
    found = copied(new.snapshot())
    moments = {key: value for key, value in source.learner.items() if key in MOMENTS}
    assert_equal(found, before._replace(policy=source.policy, learner=before.learner | moments))
    course = advance(new, 1)
    assert any(not torch.equal(x, source.policy[key]) for key, x in new.snapshot().policy.items())
    if name in RESUMABLE:  # as a checkpoint of update 0
        fresh.restore(found)
        assert_same_course(advance(fresh, 1), course)


def test_replayed_rollouts_are_part_of_it(make):
    whole, first, second = (make("torch", replay=2) for _ in range(3))
    course = advance(whole, 3) + advance(whole, 2)
    begun = advance(first, 3)
    second.restore(copied(first.snapshot()))
    assert_same_course(begun + advance(second, 2), course)
    assert_equal(second.snapshot(), whole.snapshot())


def test_games_that_cannot_be_resumed_begin_anew(make):
    """The same new games for all: with them, all go on alike, and nothing is left of the old ones."""
    first, second = make("recurrent"), make("recurrent")
    advance(first, 2)
    then = copied(first.snapshot())
    advance(second, 1)
    second.restore(then)
    assert second.counters == first.counters
    first.env.load_state(then.games)
    first.forget_games()
    for name in ("return_sum", "episode_return", "episode_length"):
        assert not getattr(second.state, name).any(), name
    for p, tensor in first.tensors()[0].items():
        assert torch.equal(tensor, second.tensors()[0][p])
    course = advance(first, 2)
    assert_same_course(course, advance(second, 2))
    assert_equal(first.snapshot(), second.snapshot())
    first.restore(then)
    assert_same_course(course, advance(first, 2))


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("after", ["collect", "update"])
def test_taking_it_twice_gives_the_same_and_disturbs_nothing(make, name, after):
    engine, undisturbed = make(name), make(name)
    for one in (engine, undisturbed):
        advance(one)
        one.collect()
        if after == "update":
            one.update(0.3)
    first = copied(engine.snapshot())
    assert_equal(engine.snapshot(), first)
    if after == "collect":
        np.testing.assert_array_equal(engine.update(0.3)["entropy"], undisturbed.update(0.3)["entropy"])
    assert_same_course(advance(engine), advance(undisturbed))
    assert_equal(engine.snapshot(), undisturbed.snapshot())


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("after", ["collect", "update"])
@pytest.mark.parametrize("ask", ["save_state", "fetch_games", "tensors", "refresh", "counters"])
def test_the_order_of_questions_does_not_matter(make, name, after, ask):
    engine, undisturbed = make(name), make(name)
    for one in (engine, undisturbed):
        advance(one)
        one.collect()
        if after == "update":
            one.update(0.3)
    if ask == "refresh":
        engine.fetch_games()  # afterwards the batch is what counts

    def asked():
        return {
            "save_state": engine.env.save_state, "fetch_games": engine.fetch_games, "tensors": engine.tensors,
            "refresh": engine.refresh, "counters": lambda: engine.counters,
        }[ask]()  # fmt: skip

    wanted = copied(undisturbed.snapshot())
    asked()
    assert_equal(engine.snapshot(), wanted)
    asked()
    assert_equal(engine.snapshot(), wanted)
    if after == "update":
        assert_same_course(advance(engine), advance(undisturbed))


@pytest.mark.parametrize("name", ENGINES)
def test_it_stays_as_it_was_while_the_engine_goes_on(make, name):
    engine = make(name)
    advance(engine, 2)
    snapshot = engine.snapshot()
    then = copied(snapshot)
    advance(engine, 2)
    assert engine.counters != then.counters
    assert_equal(snapshot, then)


@pytest.mark.parametrize("after", ["collect", "update"])
def test_games_on_a_device_are_part_of_it(make, after):
    """Right after a rollout they are there alone: the batch still shows those of the start."""
    engine, plain = make("cuda"), make("torch")
    before = engine.env.save_state()
    for one in (engine, plain):
        one.collect()
        if after == "update":
            one.update(0.0)
    np.testing.assert_array_equal(engine.env.save_state()["step"], before["step"])  # nothing was copied back
    snapshot = engine.snapshot()
    for name, array in plain.env.save_state().items():
        np.testing.assert_array_equal(snapshot.games[name], array, err_msg=name)
    assert (snapshot.learner["episode_length"] == STEPS).all()
    assert torch.equal(snapshot.learner["episode_length"], plain.snapshot().learner["episode_length"])
    np.testing.assert_array_equal(engine.env.buffers.observation, plain.env.buffers.observation)
    engine.collect()
    snapshot = engine.snapshot()
    assert (snapshot.games["step"] != before["step"]).any() or (snapshot.games["episode"] != before["episode"]).any()


def test_games_with_orders_on_a_device_are_part_of_it(monkeypatch):
    config = PPOConfig(num_envs=N, rollout_steps=STEPS, hidden=(8,), epochs=1)
    envs = [games((0, 1), WorkflowCage2) for _ in range(3)]
    for env in envs:
        for p, order in enumerate([(0, 1, 2, 3, 4), (4, 3, 2, 1, 0)]):
            env.assign(slice(p * N, p * N + N), order=order, seed=p, alignment="delta", weight=10.0)
    whole, first, second = (CudaEngine(env, DeviceGames(env, CPU, monkeypatch), config, [0, 1]) for env in envs)
    course = advance(whole, 2) + advance(whole, 2)
    begun = advance(first, 2)
    second.restore(copied(first.snapshot()))
    assert_same_course(begun + advance(second, 2), course)
    assert_equal(second.snapshot(), whole.snapshot())


@pytest.mark.parametrize("name", ENGINES)
def test_what_does_not_fit_is_refused_and_changes_nothing(make, name):
    engine = make(name)
    advance(engine)
    whole = copied(engine.snapshot())
    some = next(iter(whole.policy))
    wrong = [
        whole._replace(policy={}),
        whole._replace(policy={**whole.policy, some: whole.policy[some][..., :1]}),
        whole._replace(learner={n: x for n, x in whole.learner.items() if n != "return_mean"}),
        whole._replace(learner={**whole.learner, "counters": whole.learner["counters"].float()}),
    ]
    for bad in wrong:
        with pytest.raises(StateError):
            engine.restore(bad)
        assert_equal(engine.snapshot(), whole)


def rows_of(policies, n=N):
    return np.array([row for p in policies for row in range(p * n, p * n + n)], np.int64)


@pytest.mark.parametrize("name", RESUMABLE)
def test_a_selection_is_that_of_its_policies(make, name):
    engine = make(name, seeds=(3, 4, 5))
    advance(engine, 2)
    whole = copied(engine.snapshot())
    part = select(whole, [2, 0], rows_of([2, 0]))
    assert part.counters == whole.counters
    for mine, all_ in ((part.policy, whole.policy), (part.learner, whole.learner)):
        assert mine.keys() == all_.keys()
        for key, tensor in mine.items():
            assert torch.equal(tensor, torch.stack([all_[key][2], all_[key][0]])), key
    for key, array in part.games.items():
        np.testing.assert_array_equal(array, np.concatenate([whole.games[key][2 * N :], whole.games[key][:N]]))


@pytest.mark.parametrize("name", RESUMABLE)
def test_some_policies_go_on_in_another_population(make, name):
    """Two of three policies in another order, beside one that was there before: each goes on as it would have."""
    whole, other, beside = make(name, seeds=(3, 4, 5)), make(name, seeds=(5, 3, 9)), make(name, seeds=(5, 3, 9))
    advance(whole, 2)
    for one in (other, beside):
        advance(one, 1)
    part = select(copied(whole.snapshot()), [2, 0], rows_of([2, 0]))
    other.restore_rows(part, 2)
    taken = other.snapshot()
    assert_rows(taken, [0, 1], whole.snapshot(), [2, 0])
    assert_rows(taken, [2], beside.snapshot(), [2])
    for one in (whole, other, beside):
        advance(one, 2)
    for (mine, theirs), there in (((0, 2), whole), ((1, 0), whole), ((2, 2), beside)):
        torch.testing.assert_close(other.state.weights[mine], there.state.weights[theirs], atol=1e-5, rtol=1e-4)
        np.testing.assert_array_equal(other.state.counters[mine], there.state.counters[theirs])


def test_the_size_of_the_population_makes_no_difference_to_the_bit():
    """With gradients summed up in the same order, two of three policies go on alone and in a larger population.

    Each distinct observation is computed once, by itself: so there are no batches whose sizes could matter.
    """

    def made(seeds):
        config = PPOConfig(num_envs=N, rollout_steps=STEPS, hidden=(8,), epochs=2, minibatches=2)
        return CpuEngine(games(seeds), config, list(seeds), parts=1, distinct=True)

    whole, small, large = made((3, 4, 5)), made((5, 3)), made((5, 3, 7, 8, 9))
    advance(whole, 2)
    part = select(copied(whole.snapshot()), [2, 0], rows_of([2, 0]))
    advance(whole, 2)
    for one in (small, large):
        one.restore_rows(part, 2)
        advance(one, 2)
        assert_rows(one.snapshot(), [0, 1], whole.snapshot(), [2, 0])


@pytest.mark.parametrize("name", RESUMABLE)
def test_no_policies_at_all_change_nothing(make, name):
    engine = make(name)
    advance(engine)
    whole = copied(engine.snapshot())
    engine.restore_rows(select(whole, [], rows_of([])), 0)
    assert_equal(engine.snapshot(), whole)


def test_rows_that_do_not_fit_are_refused_and_change_nothing(make):
    engine = make("cpu", seeds=(3, 4, 5))
    advance(engine)
    whole = copied(engine.snapshot())
    part = select(whole, [0, 1], rows_of([0, 1]))
    with pytest.raises(StateError):
        engine.restore_rows(part, 3)
    lacking = part._replace(learner={name: x for name, x in part.learner.items() if name != "adam_steps"})
    with pytest.raises(StateError, match="adam_steps"):
        engine.restore_rows(lacking, 2)
    assert_equal(engine.snapshot(), whole)


def assert_rows(one, mine, other, theirs):
    """Some policies of a snapshot are those of another, with their games."""
    a, b = select(one, mine, rows_of(mine)), select(other, theirs, rows_of(theirs))
    assert_equal(a._replace(counters=Counters(0, 0)), b._replace(counters=Counters(0, 0)))
