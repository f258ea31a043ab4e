"""User-defined Reds: the same games as the built-in ones, the original's rules for what they may do, clear errors."""

import os
import re
import subprocess
import sys
import textwrap

import gymnasium
import numpy as np
import pytest
import torch

from cavalcade.core.errors import ConfigError, StateError
from cavalcade.envs import CAGE2_ID
from cavalcade.envs.cage2 import Cage2, agents
from cavalcade.envs.cage2 import own_red as api
from cavalcade.envs.cage2.device_games import DeviceCage2
from cavalcade.envs.cage2.own_red import (
    ENT0,
    ESCALATE,
    EXPLOIT,
    FALSE,
    IMPACT,
    INVALID,
    NOBODY,
    NUM_HOSTS,
    OP_SERVER,
    OPERATIONAL,
    SCAN,
    SLEEP,
    SWEEP,
    TRUE,
    UNKNOWN,
    USER,
    USER0,
    USER1,
    pick,
    rule,
    uniform,
)
from cavalcade.envs.cage2.red_choice import check_gpu, slow_red
from cavalcade.envs.cage2.rng import LINE_TARGET, choose
from cavalcade.envs.cage2.text import red_line, red_name
from cavalcade.envs.cage2.workflow import WorkflowCage2

_FALLBACK, _ACTIONS, _TARGETS = agents.LINE_FALLBACK, agents.LINE_ACTIONS, agents.LINE_TARGETS
_USERS = api.hosts(api.USER1, api.USER2, api.USER3, api.USER4)


@rule
def my_line(s, e, key):
    """B_line as a user would write it, in memory of its own: state + 1, target, at the server."""
    state = s.memory[e, 0]
    state = min(state + 1, 14) if s.red_success[e] == TRUE else _FALLBACK[state]
    if state == 12:
        if s.scan_empty[e] and not s.memory[e, 2]:
            state = 1
        else:
            s.memory[e, 2] = 1
    s.memory[e, 0] = state
    if state == 1 and s.memory[e, 1] == 0:
        s.memory[e, 1] = choose(s, e, key, LINE_TARGET, _USERS)
    target = _TARGETS[state]
    if target == -1:
        target = s.memory[e, 1]
    elif target == -2:
        target = api.ENT1 if s.memory[e, 1] in (api.USER1, api.USER2) else ENT0
    return _ACTIONS[state], target


@rule
def my_meander(s, e, key):
    return api.meander(s, e, key)


def plain_meander(s, e, key):
    return api.meander(s, e, key)


@rule
def wild(s, e, key):
    """Any action on anything, also on what does not exist."""
    return pick(key, 0, 0xFF) - 1, pick(key, 1, 0xFFFF) - 1


def plain_wild(s, e, key):
    return pick(key, 0, 0xFF) - 1, pick(key, 1, 0xFFFF) - 1


def wanted(action, target):
    """A plain Red that always wants the same."""
    return lambda s, e, key: (action, target)


def differences(here, there, *, but=("red", "red_setting")):
    pairs = zip((here.state, here._outputs), (there.state, there._outputs), strict=True)
    return [
        name
        for mine, theirs in pairs
        for name in mine._fields
        if name not in (*but, "final_red") and not np.array_equal(getattr(mine, name), getattr(theirs, name))
    ]


def play_both(here, there, steps, **options):
    rng = np.random.default_rng(1)
    here.reset(), there.reset()
    for t in range(steps):
        actions = rng.integers(145, size=here.spec.num_envs)
        actions[rng.random(len(actions)) < 0.7] = 0
        here.step(actions), there.step(actions)
        assert differences(here, there, **options) == [], t


@pytest.mark.parametrize("revision", ["head", "leaderboard-2022"])
@pytest.mark.parametrize("green", [False, True])
def test_a_copy_of_b_line_is_b_line(revision, green):
    options = {"revision": revision, "green": green, "horizon": 70, "extras": ("scans", "decoys")}
    memory = ("red", "red_setting", "line_state", "line_target", "line_at_server")
    play_both(Cage2(200, red="bline", **options), Cage2(200, red=my_line, **options), 150, but=memory)


@pytest.mark.parametrize("red", [my_meander, plain_meander])
def test_meander_through_the_custom_path_is_meander(red):
    n = 200 if red is my_meander else 3
    play_both(Cage2(n, red="meander", horizon=40), Cage2(n, red=red, horizon=40), 100)


def test_threads_plain_python_and_devices_play_the_same_games():
    here = Cage2(600, red=wild, horizon=30, threads=1)
    play_both(here, Cage2(600, red=wild, horizon=30, threads=2), 70)
    assert len(np.unique(here.state.red_action)) == 7
    play_both(Cage2(4, red=wild, horizon=30), Cage2(4, red=plain_wild, horizon=30), 70)


def test_games_on_a_device():
    here, there = (Cage2(50, red=["bline", my_line] * 25, horizon=20) for _ in range(2))
    here.reset(), there.reset()
    games = DeviceCage2(there, torch.device("cpu"))
    rng = np.random.default_rng(0)
    for _ in range(45):
        actions = rng.integers(145, size=50)
        here.step(actions)
        games.actions[:] = torch.as_tensor(actions)
        games.step()
        games.played()
    games.pull()
    assert [
        name for name in here.state._fields if (getattr(here.state, name) != getattr(there.state, name)).any()
    ] == []
    assert np.array_equal(here._red_memory, there._red_memory)


def test_games_with_orders():
    options = {"horizon": 20, "measure": "true"}
    here, there = WorkflowCage2(40, red="bline", **options), WorkflowCage2(40, red=my_line, **options)
    play_both(here, there, 45, but=("red", "red_setting", "line_state", "line_target", "line_at_server"))


def first_outcome(action, target, **changed):
    """What the first step makes of an action: the action, its target, its success."""
    env = Cage2(1, red=wanted(action, target))
    env.reset()
    for name, value in changed.items():
        getattr(env.state, name)[:] = value
    env.step([0])
    s = env.state
    return int(s.red_action[0]), int(s.red_target[0]), int(s.red_success[0])


@pytest.mark.parametrize("action", [SWEEP, SCAN, EXPLOIT, ESCALATE, IMPACT, INVALID, -1, 99])
@pytest.mark.parametrize("target", [-1, 0, OP_SERVER, NUM_HOSTS, 1000, -(2**40)])
def test_actions_on_the_unknown_are_invalid(action, target):
    assert first_outcome(action, target) == (INVALID, NOBODY, FALSE)


def test_actions_on_the_known_are_carried_out():
    assert first_outcome(SLEEP, 5) == (SLEEP, NOBODY, UNKNOWN)
    assert first_outcome(SWEEP, USER) == (SWEEP, USER, TRUE)
    assert first_outcome(SWEEP, OPERATIONAL, subnets=7) == (SWEEP, OPERATIONAL, FALSE)  # out of reach
    assert first_outcome(SCAN, USER0) == (SCAN, USER0, TRUE)
    assert first_outcome(EXPLOIT, USER0) == (EXPLOIT, USER0, FALSE)  # not scanned
    assert first_outcome(ESCALATE, USER0) == (ESCALATE, USER0, TRUE)
    assert first_outcome(IMPACT, USER0) == (IMPACT, USER0, FALSE)
    known = {"hostnames": 1 << OP_SERVER | 1 << USER0, "ot_known": 1}
    assert first_outcome(IMPACT, USER0, **known) == (IMPACT, USER0, FALSE)  # the service is not there
    assert first_outcome(IMPACT, OP_SERVER, **known) == (IMPACT, OP_SERVER, FALSE)  # no session
    assert first_outcome(IMPACT, OP_SERVER, user=1 << OP_SERVER, **known) == (IMPACT, OP_SERVER, TRUE)


def test_a_compiled_red_cannot_see_the_true_state():
    def cheat(s, e, key):
        return SLEEP, s.privileged[e]

    message = r"^red cheat cannot be compiled: Unknown attribute 'privileged' of type Knowledge; a Red is a function"
    with pytest.raises(ConfigError, match=message) as error:
        Cage2(1, red=rule(cheat))
    assert "\n" not in str(error.value)
    env = Cage2(1, red=cheat)
    env.reset()
    with pytest.raises(AttributeError, match="privileged"):
        env.step([0])


def test_draws_are_uniform_and_independent():
    seen = []

    def red(s, e, key):
        seen.append((pick(key, 0, 0b10110), pick(key, 1, 0b10110), uniform(key, 2)))
        return SLEEP, NOBODY

    env = Cage2(40, red=red, horizon=50)
    env.reset()
    for _ in range(50):
        env.step(np.zeros(40, int))
    first, second, third = np.array(seen).T
    for column in (first, second):
        assert sorted(set(column)) == [1, 2, 4]
        assert np.abs(np.array([(column == h).mean() for h in (1, 2, 4)]) - 1 / 3).max() < 0.04
    assert abs(np.mean(first == second) - 1 / 3) < 0.04
    assert ((third >= 0) & (third < 1)).all()
    assert abs(third.mean() - 0.5) < 0.03


def test_saved_games_keep_the_memory():
    env = Cage2(6, red=my_line, horizon=40)
    env.reset()
    for _ in range(12):
        env.step(np.zeros(6, int))
    saved, twin = env.save_state(), env.clone()
    assert saved["red_memory"].any()
    for _ in range(60):
        env.step(np.full(6, 135)), twin.step(np.full(6, 135))
    assert differences(env, twin, but=()) == []
    again = Cage2(6, red=my_line, horizon=40)
    again.load_state(saved)
    for _ in range(60):
        again.step(np.full(6, 135))
    assert differences(env, again, but=()) == []
    with pytest.raises(StateError, match="saved games have 1 user-defined Reds; this batch has 0"):
        Cage2(6).load_state(saved)
    del saved["red_memory"]
    with pytest.raises(StateError, match="no red_memory"):
        again.load_state(saved)
    with pytest.raises(StateError, match="no red_memory"):
        again.load_state(Cage2(6).save_state())


def test_reds_per_environment_and_their_names():
    env = Cage2(4, red=["bline", my_line, plain_meander, "sleep"], horizon=5)
    env.reset()
    for _ in range(5):
        env.step([0] * 4)
    kinds = [env.episode_kind_names[kind] for kind in env.episode_kinds]
    assert kinds == ["bline", "my_line", "plain_meander", "sleep"]
    assert Cage2.episode_kind_names == ("sleep", "bline", "meander")
    assert red_name(env, 1) == "my_line"


def test_invalid_actions_have_a_name():
    env = Cage2(1, red=wanted(SCAN, USER1))
    env.reset()
    env.step([0])
    assert red_line(env) == "InvalidAction"


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes modules into a folder that can be imported from."""
    monkeypatch.syspath_prepend(tmp_path)
    made = []

    def write(name, text):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        made.append(name)

    yield write
    for name in made:
        sys.modules.pop(name, None)


MINE = """
from cavalcade.envs.cage2.own_red import SWEEP, USER, rule
thing = 7
@rule
def sweeps(s, e, key):
    return SWEEP, USER
def plain(s, e, key):
    return SWEEP, USER
def two(s, e):
    return SWEEP, USER
class Sweeper:
    def __call__(self, s, e, key):
        return SWEEP, USER
sweeper = Sweeper()
"""


def test_reds_by_name(module):
    module("reds_of_mine", MINE)
    for name in ("sweeps", "plain", "sweeper"):
        env = gymnasium.make(CAGE2_ID, red=f"reds_of_mine:{name}").unwrapped
        env.reset(seed=0)
        env.step(0)
        assert (env.batch.state.red_action[0], env.batch.state.red_success[0]) == (SWEEP, TRUE)
    assert slow_red("reds_of_mine:sweeps") == slow_red("bline") == []
    (note,) = slow_red("reds_of_mine:plain")
    assert note == "red reds_of_mine:plain is plain Python: slow; decorate it with @rule to compile it"
    check_gpu("meander"), check_gpu("reds_of_mine:sweeps")
    with pytest.raises(ConfigError, match=r"^red reds_of_mine:plain is plain Python, .* or take --device cpu$"):
        check_gpu("reds_of_mine:plain")
    with pytest.raises(ConfigError, match="is plain Python"):
        DeviceCage2(Cage2(1, red="reds_of_mine:plain"), torch.device("cpu"))


@pytest.mark.parametrize(
    ("red", "message"),
    [
        ("fox", "red is 'fox'; it must be one of bline, meander, sleep, mixed, or module:function"),
        ("reds_of_mine:", "red is 'reds_of_mine:'"),
        (":sweeps", "red is ':sweeps'"),
        ("reds of mine:sweeps", "red is 'reds of mine:sweeps'"),
        ("no_such_reds:x", "the module no_such_reds cannot be imported: ModuleNotFoundError: No module named"),
        ("broken_reds:x", "the module broken_reds cannot be imported: ZeroDivisionError: division by zero"),
        ("reds_of_mine:fox", "the module reds_of_mine has no fox"),
        ("reds_of_mine:thing", "red reds_of_mine:thing is of type int; a Red is a function red(s, e, key)"),
        ("reds_of_mine:two", "red reds_of_mine:two takes (s, e); a Red is a function red(s, e, key)"),
        ("reds_of_mine:Sweeper", "red reds_of_mine:Sweeper is a class; make an object of it: red=Sweeper()"),
        (7, "red is 7; it must be one of bline, meander, sleep, mixed, module:function, or a function red(s, e, key)"),
        ([None], "red is None; it must be one of bline"),
    ],
)  # fmt: skip
def test_reds_that_are_none(red, message, module):
    module("reds_of_mine", MINE)
    module("broken_reds", "1 / 0")
    with pytest.raises(ConfigError, match=re.escape(message)) as error:
        Cage2(1, red=red)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("result", [None, 3, (1, 2, 3), ("scan", 2)])
def test_results_that_are_no_actions(result):
    env = Cage2(1, red=lambda s, e, key: result)
    env.reset()
    with pytest.raises(ConfigError, match=re.escape(f"returned {result!r}; a Red is a function red(s, e, key)")):
        env.step([0])


# Runs in Numba's CUDA simulator, so that rules and kernels are plain Python.
KERNEL = """
import numpy as np
from cavalcade.core.cuda import cuda
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.cuda import CudaCage2, moved, red_kernel
from cavalcade.envs.cage2.own_red import knowledge, meander, pick, rule
from cavalcade.envs.cage2.scenario import OWN

@rule
def red(s, e, key):
    if s.step[e] == 0:
        s.memory[e, 0] = 1 + pick(key, 0, 0b11)
    return meander(s, e, key) if s.memory[e, 0] == 1 else (pick(key, 1, 0b111111), pick(key, 2, 0xFFFF))

here, there = (kind(4, red=["meander", red, red, red], horizon=9) for kind in (Cage2, CudaCage2))
here.reset(), there.reset()
rng = np.random.default_rng(0)
for t in range(25):
    state, memory = moved(here.state), cuda.to_device(here._red_memory)
    red_kernel(red)[1, 128](4, knowledge(state, memory), state.key, state.episode, state.red, OWN)
    here._choices.choose(here.state, here._red_memory, 1)
    for mine, theirs in zip((*here.state, here._red_memory), (*state, memory), strict=True):
        assert (mine == theirs.copy_to_host()).all(), t
    actions = rng.integers(0, 145, 4)
    there.step(actions)
    here._choices = None  # they have chosen
    here.step(actions)
    here._choices = there._choices
    for mine, theirs in zip(here.state, there.state, strict=True):
        assert (mine == theirs).all(), t
assert here.state.episode.max() == 2
print("equal")
"""


def test_the_kernel_for_a_gpu():
    env = os.environ | {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-W", "ignore", "-c", KERNEL]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.stdout == "equal\n", done.stderr
