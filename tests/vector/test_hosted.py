"""Hosted environments: the same games everywhere, no trouble that stops a training."""

import os
import signal
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple

from cavalcade.config import HostConfig
from cavalcade.core.errors import ActionError, ConfigError, StateError, WorkerError
from cavalcade.vector.actions import ActionLayout
from cavalcade.vector.hosted import Hosted
from cavalcade.vector.pool import deal
from cavalcade.vector.source import gym_source
from cavalcade.vector.supervisor import WatchClock
from tests.processes import Process, prepare

ROOT = Path(__file__).parent.parent.parent
GAMES = "tests.vector.games"
BACKENDS = ["serial", "pipe", "shared", "async"]


def game(name, infos=(), every=0, **options):
    return gym_source(f"{GAMES}:{name}-v0", options, infos=infos, true_state_every=every)


def make(backend, n=8, source=None, workers=2, **options):
    env = Hosted(source or game("Counting"), n, HostConfig(backend=backend, workers=workers, **options))
    env.reset()
    return env


def workers_of(pid):
    def is_worker(process):
        try:
            return any(part.endswith("vector/worker.py") for part in process.cmdline())
        except psutil.Error:
            return False

    return [p for p in psutil.Process(pid).children(recursive=True) if is_worker(p)]


@pytest.fixture(autouse=True, scope="module")
def _processes():
    prepare()


@pytest.fixture(autouse=True)
def _nothing_is_left():
    handles = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    yield
    assert workers_of(os.getpid()) == []
    if handles:
        assert len(os.listdir("/proc/self/fd")) <= handles


class Clock:
    """The time by which a pool tells that a worker hangs: it can be put forward or stopped.

    So no test needs a timeout that a healthy worker on a busy machine could miss.
    """

    def __init__(self):
        self._ahead, self._stopped, self._when = 0.0, None, lambda: False

    def monotonic(self):
        if self._when():
            self.jump(self._by)
        return time.monotonic() + self._ahead if self._stopped is None else self._stopped

    def jump(self, seconds):
        self._ahead += seconds

    def jump_while(self, condition, seconds):
        """At every look, as long as a condition holds."""
        self._when, self._by = condition, seconds

    def stop(self):
        self._stopped = self.monotonic()

    def resume_after(self, seconds):
        """Puts a stopped clock forward; it stays stopped."""
        self._stopped += seconds


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    there = SimpleNamespace(monotonic=found.monotonic, perf_counter=time.perf_counter, sleep=time.sleep)
    monkeypatch.setattr("cavalcade.vector.supervisor.time", there)
    monkeypatch.setattr("cavalcade.vector.supervisor.WatchClock._STEP", 1e6)  # what it leaves out has tests of its own

    def ask_where(worker):
        """Waits until the worker has written where it hangs, however long that takes."""
        worker.process.send_signal(signal.SIGUSR1)
        while not os.fstat(worker._said.fileno()).st_size:
            time.sleep(0.005)
        time.sleep(0.2)

    monkeypatch.setattr("cavalcade.vector.process.WorkerProcess.ask_where", ask_where)
    yield found
    found.jump_while(lambda: False, 0)  # lets go of the environment


@pytest.mark.skipif(not Path("/proc/self/timerslack_ns").exists(), reason="not on Linux")
def test_sleeps_of_environments_end_on_time():
    env = make("shared", source=game("Punctual", infos=("slack",)))
    for _ in range(7):
        env.step(np.zeros(8, np.int64))
    np.testing.assert_array_equal(env.episode_stats, 1)
    env.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_observation_arrives(backend):
    env = make(backend)
    seeds = env.buffers.observation[:, 2].copy()
    assert len(set(seeds)) == 8  # each environment has a seed of its own
    assert (env.buffers.observation[:, 0] == 0).all()
    step, episode = np.zeros(8), np.ones(8)
    rng = np.random.default_rng(0)
    for _ in range(40):
        actions = rng.integers(3, size=8)
        b = env.step(actions)
        step += 1
        over, late = (step == 5) & (seeds % 2 == 0), step == 7
        assert (b.terminated == over).all()
        assert (b.truncated == late).all()
        assert (b.reward == actions).all()
        ended = over | late
        assert (b.final_observation[ended, 0] == step[ended]).all()
        assert (b.final_observation[ended, 1] == episode[ended]).all()
        assert (b.final_observation[ended, 3] == actions[ended]).all()
        step[ended] = 0
        episode[ended] += 1
        assert (b.observation[:, 0] == step).all()
        assert (b.observation[:, 1] == episode).all()
    env.close()


@pytest.mark.parametrize(("backend", "options"), [
    ("pipe", {}), ("shared", {}), ("shared", {"workers": 3, "spin": 50.0}), ("async", {"async_factor": 4}),
    ("async", {"workers": 4, "async_factor": 8}), ("async", {"workers": 1, "async_factor": 3}),
])  # fmt: skip
def test_backends_play_the_same_games(backend, options):
    one, other = make("serial", 16), make(backend, 16, **options)
    rng = np.random.default_rng(1)
    for _ in range(30):
        actions = rng.integers(3, size=16)
        for a, b in zip(one.step(actions), other.step(actions), strict=True):
            np.testing.assert_array_equal(a, b)
    other.close()


def test_groups_go_their_own_pace():
    env = make("async", 8, async_factor=4)
    steps = np.zeros(4, int)
    for g in range(4):
        env.send_group(g, [1, 1])
    for _ in range(4):
        g = env.wait_any()
        steps[g] += 1
        assert (env.buffers.observation[env.groups[g], 0] == 1).all()
    assert steps.tolist() == [1, 1, 1, 1]
    for _ in range(3):  # one group goes on alone
        env.send_group(2, [0, 2])
        assert env.wait_any() == 2
        assert env.buffers.reward[env.groups[2]].tolist() == [0, 2]
    assert env.buffers.observation[:, 0].tolist() == [1, 1, 1, 1, 4, 4, 1, 1]
    assert not env.ready()
    env.send_group(1, [0, 2])
    while not env.ready():  # until its results have arrived
        time.sleep(0.001)
    assert env.wait_any() == 1
    assert not env.ready()
    env.close()


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("groups", [1, 2, 3, 4, 8])
def test_rows_are_dealt_once(workers, groups):
    rows, chunks, members = deal(50, workers, groups)
    assert [g.start for g in rows] == [0, *(g.stop for g in rows)][:-1]
    assert rows[-1].stop == 50
    everything = sorted(chunk for mine in chunks for chunk in mine)
    assert everything[0][0] == 0
    assert all(one[1] == other[0] for one, other in pairwise(everything))
    assert everything[-1][1] == 50
    assert len({len(mine) for mine in chunks}) == 1  # each worker has as many chunks
    for group, pairs in zip(rows, members, strict=True):
        mine = sorted(chunks[w][k] for w, k in pairs)
        assert (mine[0][0], mine[-1][1]) == (group.start, group.stop)
    if groups > 1:
        assert len(chunks[0]) > 1  # there is always another chunk to go on with


@pytest.mark.parametrize("backend", BACKENDS)
def test_seeds_resets_and_saved_states(backend):
    a, b = make(backend), make(backend)
    first = a.buffers.observation[:, 2].copy()
    assert (first == b.buffers.observation[:, 2]).all()
    assert (b.reset(seed=5).observation[:, 2] != first).any()
    assert (b.reset(seed=0).observation[:, 2] == first).all()
    a.reset()
    assert (a.buffers.observation[:, 2] != first).all()  # new episodes, new seeds
    a.step(np.zeros(8, int))
    a.reset(indices=[1, 5])
    assert a.buffers.observation[:, 0].tolist() == [1, 0, 1, 1, 1, 0, 1, 1]
    saved = a.save_state()
    assert saved["episodes"].tolist() == [2, 3, 2, 2, 2, 3, 2, 2]
    b.load_state(saved)
    assert (b.save_state()["episodes"] == saved["episodes"] + 1).all()
    with pytest.raises(StateError, match="not one of 8 hosted"):
        b.load_state({})
    c = b.clone([0, 1])
    assert c.spec.num_envs == 2
    for env in (a, b, c):
        env.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_masks_infos_and_true_states(backend):
    env = make(backend, 2, game("Masked"), async_factor=1)
    assert env.buffers.action_mask.tolist() == [[True, True, False]] * 2
    env.close()
    env = make(backend, 2, game("Informed", ("half", "word"), 3), async_factor=1)
    assert env.buffers.action_mask.tolist() == [[True, False, True]] * 2
    assert env.true_state.tolist() == [[100, 1]] * 2
    shown = []
    for _ in range(7):
        b = env.step([1, 1])
        shown.append(env.true_state[0].tolist())
        for row in np.flatnonzero(b.terminated | b.truncated):
            assert env.episode_stats[row, 0] == b.final_observation[row, 0] / 2
            assert np.isnan(env.episode_stats[row, 1])
            assert env.true_state[row, 0] == 100
        if not (b.terminated | b.truncated)[0]:
            assert b.action_mask[0].tolist() == [False, True, True]
    assert shown[:4] == [[100, 1], [100, 1], [103, 1], [103, 1]]  # every third step
    env.close()


def test_a_mask_that_allows_no_action_is_reported():
    env = make("serial", 2, game("Blocked"))
    env.step([[0, 0]] * 2)
    env.step([[0, 0]] * 2)
    with pytest.raises(WorkerError, match=r"the action mask of \S+:Blocked-v0 allows no action \(environment 0\)"):
        env.step([[0, 0]] * 2)
    env.close()


def test_nested_spaces_and_bytes():
    env = make("shared", 2, game("Nested"))
    assert env.buffers.observation[0].tolist() == [0, 0.25, 0.5, 0.75, 0, 1, 0, 0, 1, 0, 0, 1]
    assert env.spec.action_space.nvec.tolist() == [3, 4, 2, 2, 2]  # by sorted key
    assert env.step([[2, 3, 1, 0, 1], [0, 0, 0, 1, 0]]).reward.tolist() == [2 + 30 + 100 + 60000, 51000]
    with pytest.raises(ActionError, match="action 4 of environment 1 is out of range; it must be from 0 to 3"):
        env.step([[2, 3, 1, 0, 1], [0, 4, 0, 1, 0]])
    env.close()
    env = make("shared", 2, game("Picture"))
    assert env.buffers.observation.dtype == np.uint8
    assert env.step([[1, 2], [0, 1]]).observation[:, 0].tolist() == [2, 1]
    env.close()


def test_points_are_scaled_and_cut_off():
    env = make("shared", 3, game("Steered"))
    goal = env.buffers.observation.copy()
    assert env.step(goal).reward.tolist() == pytest.approx([0, 0, 0], abs=1e-10)  # −1 … 1 is the whole range
    goal = env.buffers.observation.copy()
    far = env.step(100 * np.sign(goal)).reward
    np.testing.assert_allclose(far, -((1 - np.abs(goal)) ** 2).sum(axis=1), atol=1e-6)  # cut off at the bounds
    assert env.restarts == 0
    env.close()
    env = make("serial", 3, game("Unbounded"))
    assert env.step([[0, 1], [5, 1], [-1e9, 1]]).reward.tolist() == [0, 5, -1e9]
    with pytest.raises(ActionError, match="finite numbers of shape"):
        env.step(np.full((3, 2), np.nan))


def test_time_limits_truncate():
    env = make("shared", 2, gym_source(f"{GAMES}:Short-v0"))
    ends = [env.step([0, 0]).truncated.tolist() for _ in range(8)]
    assert [row[0] for row in ends] == 2 * [False, False, False, True]
    env.close()


@pytest.mark.parametrize("backend", ["pipe", "shared", "async"])
@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("raise", "ValueError: something went wrong in the game"),
        ("reset", "ValueError: something went wrong in the game"),
        ("kill", "was killed by signal 9"),
        ("hang", "has not answered for 600 s"),
        ("nan", "returned a value that is NaN or infinite"),
        ("nan at the end", "returned a value that is NaN or infinite"),
    ],
)
def test_trouble_is_reported_and_mended(capfd, tmp_path, clock, backend, trouble, words):
    options = {"trouble": trouble, "at": 9, "flag": str(tmp_path / "flag")}
    env = make(backend, 8, game("Counting", **options), worker_timeout=600)
    if trouble == "hang":
        flag = tmp_path / "flag"
        clock.jump_while(lambda: flag.exists() and busy(env.pool) == 1 and not env.restarts, 1000)
    delivered = env.buffers.observation.copy()
    broken = 0
    for _ in range(25):
        b = env.step(np.ones(8, int))
        lost = env.episode_kinds.astype(bool)
        broken += lost.sum()
        assert (b.final_observation[lost] == delivered[lost]).all()  # at the last observation that was delivered
        assert (b.reward[lost] == 0).all()
        assert (b.observation[lost, 0] == 0).all()
        assert b.truncated[lost].all()
        assert not b.terminated[lost].any()
        going_on = ~(b.terminated | b.truncated)
        assert (b.observation[going_on, 0] == delivered[going_on, 0] + 1).all()
        delivered = b.observation.copy()
    env.close()
    assert broken == 4  # each environment of the worker once
    assert env.restarts == 1
    err = capfd.readouterr().err
    assert words in err
    assert "restarting it (1 of 10)" in err
    if trouble == "hang":
        assert "in _once" in err  # where it hangs


def busy(pool):
    """Workers that have not done what they were asked for."""
    return int((pool.shared.asked != pool.shared.finished).any(axis=1).sum())


def test_masks_that_come_late():
    env = make("serial", 2, game("LateMask"))
    assert env.buffers.action_mask.all()
    assert env.step([1, 1]).action_mask.tolist() == [[False, True, True]] * 2
    for _ in range(6):
        b = env.step([1, 1])
        ended = b.terminated | b.truncated
        assert b.action_mask[ended].all()  # a first observation without a mask allows everything


@pytest.mark.parametrize("backend", ["pipe", "shared"])
def test_a_long_pause_of_the_learner_is_no_hang(backend, clock):
    env = make(backend, 2, worker_timeout=600)
    for _ in range(2):
        clock.jump(1000)
        env.step([0, 0])
    assert env.restarts == 0
    env.close()


def test_time_in_which_nobody_watched_does_not_count(clock, monkeypatch):
    monkeypatch.setattr("cavalcade.vector.supervisor.WatchClock._STEP", 1.0)
    clock.stop()
    watched = WatchClock()
    for _ in range(10):
        clock.resume_after(0.5)
        found = watched()
    assert found == 5.0
    clock.resume_after(1000)  # the whole process was stopped, say
    assert watched() == 6.0


@pytest.mark.parametrize("backend", ["pipe", "shared"])
def test_a_pause_of_all_processes_is_no_hang(backend, clock, monkeypatch, tmp_path):
    monkeypatch.setattr("cavalcade.vector.supervisor.WatchClock._STEP", 1.0)
    flag, gate = tmp_path / "flag", tmp_path / "gate"
    env = make(backend, 2, game("Gated", at=3, flag=str(flag), gate=str(gate)), worker_timeout=600)
    looks = []

    def paused():
        """In the middle of a step, once; the step ends later."""
        if not flag.exists() or gate.exists():
            return False
        looks.append(None)
        if len(looks) == 9:
            gate.touch()
        return len(looks) == 6  # the pool has noticed by then what was done before

    clock.jump_while(paused, 1000)
    for _ in range(5):
        env.step([0, 0])
    assert len(looks) == 9
    assert env.restarts == 0
    env.close()


@pytest.mark.parametrize("backend", ["pipe", "shared"])
def test_seeds_that_cannot_be_begun_with_are_left_behind(backend, capfd):
    env = make(backend, 2, game("Unlucky"), workers=2, max_restarts=60)
    assert (env.buffers.observation[:, 2] % 2 == 0).all()
    env.close()
    capfd.readouterr()


@pytest.mark.parametrize("backend", ["pipe", "shared"])
def test_a_worker_that_dies_around_a_partial_reset(backend, capfd):
    env = make(backend, 4, workers=1)
    for _ in range(3):
        env.step([0] * 4)
    env.pool.workers[0].process.kill()
    env.pool.workers[0].process.wait()
    env.reset(indices=[0])
    assert env.buffers.observation[:, 0].tolist() == [0] * 4  # all games went down with it …
    b = env.step([0] * 4)
    assert b.truncated.all()  # … and the learner is told so
    assert env.episode_kinds.all()
    b = env.step([0] * 4)
    assert not b.truncated.any()
    assert b.observation[:, 0].tolist() == [1] * 4
    env.close()
    assert "restarting" in capfd.readouterr().err


def test_two_deaths_in_a_row(capfd):
    env = make("async", 8, async_factor=2)
    delivered = env.buffers.observation.copy()
    for _ in range(4):
        for worker in env.pool.workers.values():
            worker.process.kill()
        b = env.step([0] * 8)
        lost = env.episode_kinds.astype(bool)
        assert (b.final_observation[lost] == delivered[lost]).all()
        assert (b.observation[lost, 0] == 0).all()
        assert (b.observation[~lost & ~b.terminated & ~b.truncated, 0] > 0).all()
        delivered = b.observation.copy()
    assert env.restarts >= 7
    env.close()
    capfd.readouterr()


@pytest.mark.parametrize("backend", ["pipe", "shared"])
def test_environments_are_closed_even_in_the_middle_of_a_step(backend, tmp_path, clock):
    log = tmp_path / "log"
    env = make(backend, 2, game("Closing", flag=str(log)), workers=1)
    before = log.read_text().count("closed") if log.exists() else 0
    env.send([0, 0])
    while not log.exists() or "stepping" not in log.read_text():
        time.sleep(0.005)
    clock.stop()  # they have all the time they need
    env.close()
    assert log.read_text().count("closed") >= before + 2


def play(env, steps):
    for _ in range(steps):
        env.step([0, 0])


def test_it_gives_up_in_the_end(capfd):
    env = make("shared", 2, game("Broken"), workers=1, max_restarts=2)
    with pytest.raises(WorkerError, match=r"after 2 restarts; fix the environment\n"):
        play(env, 200)
    env.close()
    err = capfd.readouterr().err
    assert err.count("restarting it") == 2
    assert err.count("Traceback") == err.count("with the same output as before") == 1
    env = make("serial", 2, game("Broken"))
    with pytest.raises(WorkerError, match=r"(?s)something went wrong in the game.*fix it\nTraceback"):
        play(env, 200)


def test_a_worker_that_cannot_make_its_environments_is_not_tried_again():
    source = game("Counting")
    env = Hosted(type(source)(**vars(source) | {"options": {**source.options, "name": "NoSuch-v0"}}), 2)
    with pytest.raises(WorkerError, match=r"(?s)before its environments were made.*NoSuch"):
        env.reset()
    env.close()


@pytest.mark.parametrize("backend", ["pipe", "shared", "async"])
def test_a_worker_that_is_killed_before_it_made_its_environments_is_replaced(backend):
    """By the system, where memory was short, say."""
    env = make(backend, 4, game("Counting"), workers=2)
    worker = env.pool.workers[1].process
    worker.kill()
    worker.wait()
    env.reset()
    env.step([0, 0, 0, 0])
    assert env.pool.restarts == 1
    env.close()


def test_bad_input():
    for name, words in (
        ("NoSuch-v0", "environment 'NoSuch-v0' cannot be made"),
        ("no.such.package:X-v0", "environment 'no.such.package:X-v0' cannot be made"),
        (f"{GAMES}:Unflat-v0", "no fixed flat form"),
        (f"{GAMES}:Mixed-v0", "whole numbers .* or points"),
    ):
        with pytest.raises(ConfigError, match=words):
            gym_source(name)
    for space in (Discrete(10**12), Tuple([]), Box(0, 1, (0,)), MultiDiscrete([])):
        with pytest.raises(ConfigError, match="must have 1 to 16777216 values"):
            ActionLayout(space, "this")
    with pytest.raises(ConfigError, match=r"has actions .* …; they must be") as told:
        ActionLayout(Dict({f"part {i}": Box(0, 1, (40, 40, 3), np.uint8) for i in range(9)}), "this")
    assert "\n" not in str(told.value)
    with pytest.raises(ConfigError, match="has no method true_state"):
        game("Counting", every=1)
    with pytest.raises(ConfigError, match="2 workers in 2 groups need at least 4"):
        Hosted(game("Counting"), 3, HostConfig(backend="async", workers=2))
    env = Hosted(game("Counting"), 2, HostConfig(backend="serial"))
    with pytest.raises(StateError, match="before the first reset"):
        env.step([0, 0])
    env.reset()
    with pytest.raises(StateError, match="recv without actions"):
        env.recv()
    for actions, words in (([0, 3], "from 0 to 2"), ([0], "shape"), ([0.5, 1], "whole numbers")):
        with pytest.raises(ActionError, match=words):
            env.step(actions)
    env.send([0, 0])
    with pytest.raises(StateError, match="actions are pending"):
        env.reset()
    with pytest.raises(StateError, match="actions are already pending"):
        env.send([0, 0])
    env.close()
    env.close()


def play_on(backend, given):
    """Steps environments until it is stopped; prints the process ids of its workers."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # where tests run in the background it may be ignored
    env = Hosted(gym_source(f"{GAMES}:Counting-v0", given), 4, HostConfig(backend=backend, workers=2))
    env.reset()
    print(*(w.process.pid for w in env.pool.workers.values()), flush=True)
    while True:
        env.step([0] * 4)


def test_no_orphans_when_the_parent_goes_before_its_workers_are_up():
    """The parent is killed as soon as it has a child."""
    for delay in (0.0, 0.05, 0.15):
        process, found = Process(play_on, "shared", {}, cwd=ROOT), []
        while not found:
            time.sleep(0.002)
            found = workers_of(process.pid)
        time.sleep(delay)
        found = workers_of(process.pid) or found
        process.send_signal(signal.SIGKILL)
        process.wait()
        _, alive = psutil.wait_procs(found, timeout=120)
        assert alive == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(("backend", "trouble"), [("shared", ""), ("pipe", ""), ("shared", "hang")])
def test_no_orphans_when_the_parent_goes(tmp_path, number, backend, trouble):
    given = {"trouble": trouble, "at": 9, "flag": str(tmp_path / "flag")} if trouble else {}
    process = Process(play_on, backend, given, cwd=ROOT)
    while not process.printed().endswith("\n"):
        assert process.poll() is None
        time.sleep(0.02)
    workers = [psutil.Process(int(pid)) for pid in process.printed().split()]
    assert len(workers) == 2
    time.sleep(0.3)
    process.send_signal(number)
    process.wait()
    _, alive = psutil.wait_procs(workers, timeout=120)
    assert alive == []
