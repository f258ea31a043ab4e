"""The compiled simulator equals the package step for step, saves exactly, and refuses what it does not support."""

import numpy as np
import pytest
from mettagrid.config.filter import HandlerTarget, ResourceFilter
from mettagrid.config.game_value import GameValueRatio, InventoryValue, Scope, StatValue, val
from mettagrid.config.handler_config import FirstMatch, Handler, addTag, isNear, isNot, updateTarget, withdraw
from mettagrid.config.reward_config import reward

from cavalcade.core.errors import ActionError, ConfigError, StateError
from cavalcade.envs.mettagrid.arena import DifferenceError
from cavalcade.envs.mettagrid.arenas import Arenas
from cavalcade.envs.mettagrid.games import GAMES, forage
from cavalcade.envs.mettagrid.lockstep import compare
from cavalcade.envs.mettagrid.random_configs import random_config
from cavalcade.envs.mettagrid.supported import UnsupportedError, game_from
from cavalcade.envs.mettagrid.tasks import load_game, load_task

SMALL = {"agents": 4, "size": 11, "max_steps": 12, "walls": 2, "mines": 6}
ODD = {"agents": 7, "size": 12, "window": 7, "max_steps": 40}
CROWDED = {"agents": 60, "size": 14, "walls": 5, "mines": 15, "tokens": 399, "window": 15, "max_steps": 40}


@pytest.mark.parametrize("task", GAMES)
def test_games_are_those_of_the_package(task):
    assert game_from(load_task(task, {})) == GAMES[task]()


@pytest.mark.parametrize(
    ("task", "options"),
    [*((task, {"max_steps": 150}) for task in GAMES), ("forage", ODD), ("forage-easy", CROWDED), ("forage", SMALL)],
)
def test_every_step_is_equal(task, options):
    config = load_task(task, options)
    assert compare(config, 320, seed=3, wild=0.1, every=20) == 320 * config.game.num_agents


@pytest.mark.parametrize("seed", range(16))
def test_random_games_are_equal(seed):
    compare(random_config(seed), 60, seed=seed, wild=0.05, every=10)


@pytest.mark.parametrize(
    ("window", "agents"), [((3, 3), 128), ((5, 9), 60), ((7, 7), 1), ((11, 11), 2), ((13, 13), 7), ((15, 15), 24)]
)
def test_windows_and_numbers_of_agents(window, agents):
    compare(random_config(agents, agents=agents, window=window), 40, seed=agents, wild=0.05, every=20)


def test_arenas_of_the_package_are_equal():
    from mettagrid.builder.envs import make_arena, make_navigation

    for config in (make_arena(8), make_navigation(4)):
        compare(config, 80, seed=1)


def test_a_difference_is_named(monkeypatch):
    """What agents start with is paid for in the first step; a game without it is not equal."""
    config = load_task("forage", SMALL)
    config.game.agent.inventory.initial = {"heart": 2}
    compare(config, 5, seed=0)
    monkeypatch.setattr("cavalcade.envs.mettagrid.lockstep.game_from", lambda _: load_game("forage", SMALL))
    with pytest.raises(DifferenceError, match=r"observation of agent 0, token \d+, step 0 of episode 1, seed 0: the"):
        compare(config, 5, seed=0)


def play(env, steps, seed=0):
    rng, n = np.random.default_rng(seed), env.spec.num_envs
    return [[np.array(x) for x in env.step(rng.integers(0, env.game.actions, n))] for _ in range(steps)]


def same(one, two):
    for a, b in zip(one, two, strict=True):
        ended = a[3]
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            np.testing.assert_array_equal(*((x[ended], y[ended]) if i == 4 else (x, y)))


def test_threads_and_parts_of_the_batch_change_nothing():
    game = forage(**SMALL)
    games = []
    for threads in (1, 2):
        env = Arenas(game, 24, seed=5, threads=threads)
        env.reset()
        games.append(play(env, 30))
    same(*games)
    part = Arenas(game, 12, seed=5, first_index=12)
    part.reset()
    rng = np.random.default_rng(0)
    for step in games[0]:
        b = part.step(rng.integers(0, 5, 24)[12:])
        np.testing.assert_array_equal(b.observation, step[0][12:])
        np.testing.assert_array_equal(b.reward, step[1][12:])


def test_time_truncates_and_final_observations_are_kept():
    env = Arenas(forage(**SMALL), 8)
    env.reset()
    for t in range(1, 40):
        before = env.buffers.observation.copy()
        b = env.step(np.zeros(8, int))
        assert not b.terminated.any()
        assert b.truncated.all() == b.truncated.any() == (t % 12 == 0)
        if t % 12 == 0:
            assert not (b.final_observation == b.observation).all()
            assert (b.final_observation[0, 2], b.observation[0, 2]) == (255, 0)
        assert not (before == b.observation).all()


def test_saved_arenas_continue_exactly():
    env = Arenas(forage(**SMALL), 16, seed=1, stats=["ore.gained", "cell.unique_visited"])
    env.reset()
    play(env, 7)
    other, saved = env.clone(), env.save_state()
    later = play(env, 20, seed=4)
    same(later, play(other, 20, seed=4))
    env.load_state(saved)
    same(later, play(env, 20, seed=4))
    half = env.clone(np.arange(8, 16))
    env.load_state(half.save_state(), np.arange(8))
    np.testing.assert_array_equal(env.buffers.observation[:8], env.buffers.observation[8:])


def test_damaged_states_are_refused():
    env = Arenas(forage(**SMALL), 8)
    env.reset()
    saved = env.save_state()
    before = env.buffers.observation.copy()
    for name, change, words in (
        ("place", lambda x: x + 1, "agents are not where the map shows them"),
        ("grid", lambda x: x * 0, "other agents than the game has"),
        ("words", lambda x: x[:, :-1], "words of the saved arenas is"),
    ):
        with pytest.raises(StateError, match=words):
            env.load_state(saved | {name: change(saved[name])})
    with pytest.raises(StateError, match="held of the saved arenas is missing"):
        env.load_state({name: x for name, x in saved.items() if name != "held"})
    with pytest.raises(StateError, match="rows of an arena stay together"):
        env.save_state([0, 1, 2])
    np.testing.assert_array_equal(before, env.buffers.observation)


def test_bad_input():
    env = Arenas(forage(**SMALL), 8)
    with pytest.raises(StateError, match="call reset"):
        env.step(np.zeros(8, int))
    env.reset()
    with pytest.raises(ActionError, match="action 5 of agent 2 is out of range; it must be from 0 to 4"):
        env.step(np.array([0, 0, 5, 0, 0, 0, 0, 0]))
    with pytest.raises(ConfigError, match="arenas have 4 agents"):
        Arenas(forage(**SMALL), 6)
    with pytest.raises(ConfigError, match=r"statistic 'cell.visited' is not counted"):
        Arenas(forage(**SMALL), 8, stats=["cell.visited"])
    crowded = Arenas(forage(**SMALL | {"tokens": 12}), 8)
    with pytest.raises(ConfigError, match="tokens does not fit into 12; raise num_tokens"):
        crowded.reset()
    with pytest.raises(ConfigError, match="do not fit into 81 cells"):
        Arenas(forage(agents=100, size=11), 100)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda g: setattr(g.obs, "width", 10), "width of the window is 10; it must be odd"),
        (lambda g: setattr(g.obs, "aoe_mask", True), "obs.aoe_mask is set"),
        (lambda g: g.obs.global_obs.obs.update(x=InventoryValue(item="ore")), "obs.global_obs.obs is set"),
        (lambda g: setattr(g.actions.move, "enabled", False), "actions.move.enabled is set"),
        (lambda g: setattr(g, "num_agents", 129), "129 agents are given, at most 128"),
        (lambda g: g.resource_names.extend(f"r{i}" for i in range(11)), "14 resources are given, at most 13"),
        (lambda g: g.agents.append(g.agent.model_copy()), "agents has 1 entries and num_agents is 24"),
        (lambda g: setattr(g, "on_tick", Handler(name="x")), "on_tick is set"),
        (lambda g: setattr(g.agent, "initial_stats", {"x": 1.0}), "agent.initial_stats is set"),
        (lambda g: setattr(g.agent, "name", "hero"), "agent.name is set"),
        (
            lambda g: setattr(g.agent.inventory.limits["ore"], "modifiers", {"heart": 0}),
            "limits.ore.modifiers.heart is 0",
        ),
        (
            lambda g: (
                g.agent.inventory.limits["ore"].modifiers.update(heart=1),
                g.agent.inventory.limits["ore"].resources.append("battery"),
            ),
            "limits.ore has several resources, and modifiers are set",
        ),
        (
            lambda g: (
                setattr(g.objects["mine"], "on_use_handler", Handler(name="x", mutations=[updateTarget({"ore": 1})])),
                g.map_builder.objects.update(mine=105),
            ),
            "129 agents and objects that hold resources are given, at most 128",
        ),
    ],
)
def test_what_is_not_supported_is_named(change, words):
    config = load_task("forage", {})
    change(config.game)
    with pytest.raises(UnsupportedError, match=words):
        game_from(config)


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        ("filters", isNear("type:wall", radius=2), r"filters\[0\].filter_type is max_distance"),
        ("filters", isNot(isNear("type:wall", radius=2)), r"filters\[0\].inner.filter_type is max_distance"),
        ("mutations", addTag("x"), r"mutations\[0\].mutation_type is add_tag"),
        ("mutations", withdraw({"ore": 1}, remove_when_empty=True), r"mutations\[0\].remove_source_when_empty is set"),
    ],
)
def test_parts_of_handlers_that_are_not_supported_are_named(part, value, words):
    config = load_task("forage", {})
    mine = config.game.objects["mine"]
    mine.on_use_handler = FirstMatch(handlers=[mine.on_use_handler, Handler(name="x", **{part: [value]})])
    with pytest.raises(UnsupportedError, match=r"objects.mine.on_use_handler.handlers\[1\]." + words):
        game_from(config)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (reward(StatValue(name="x")), "agent.rewards.more is of the statistic 'x', which is not counted"),
        (reward(StatValue(name="action.failed", scope=Scope.GAME)), "agent.rewards.more is of the game"),
        (reward(InventoryValue(item="ore"), log=True), "is a sum of 1 logarithms"),
        (reward(GameValueRatio(InventoryValue(item="ore"), val(2))), "is of a RatioGameValue"),
    ],
)
def test_rewards_that_are_not_supported_are_named(entry, words):
    config = load_task("forage", {})
    config.game.agent.rewards["more"] = entry
    with pytest.raises(UnsupportedError, match=words):
        game_from(config)


def test_a_part_with_an_unknown_field_never_passes():
    """A field that a later version of the package adds to a filter is refused, not ignored."""

    class Later(ResourceFilter):
        strict: bool = True

    config = load_task("forage", {})
    config.game.objects["mine"].on_use_handler.filters = [Later(target=HandlerTarget.ACTOR, resources={})]
    with pytest.raises(UnsupportedError, match=r"filters\[0\].strict is set"):
        game_from(config)
