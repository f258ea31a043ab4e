"""Arenas on a device: loops on the CPU, and kernels in Numba's CUDA simulator, equal to the batch."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from cavalcade.envs.mettagrid.arenas import Arenas
from cavalcade.envs.mettagrid.device import DeviceArenas
from cavalcade.envs.mettagrid.game import Inventory, Limit, Reward, Role, Term
from cavalcade.envs.mettagrid.games import forage
from cavalcade.envs.mettagrid.handlers import FirstMatch, Give, Handler, Has, Periodic, Transfer

SMALL = {"agents": 4, "size": 11, "max_steps": 9, "walls": 2, "mines": 6, "tokens": 60}


def rich(game):
    """A game with chests, two roles, walls that block vision, handlers in every step and statistics as rewards."""
    take = FirstMatch(
        (Handler((Has("target", "ore", 1),), (Transfer("target", "actor", "ore", 2),)), game.kinds[1].on_use)
    )
    wall = replace(game.kinds[0], blocks_vision=True)
    chest = replace(game.kinds[1], on_use=take, inventory=Inventory(initial=(("ore", 3),)))
    tick = Handler((Periodic(2, 1),), (Give("actor", "heart", 1),))
    terms = (Term("statistic", "ore.gained", 0.3), Term("amount", "heart", 0.7))
    limits = (Limit(("ore",), 1, 9, (("heart", 1),)),)
    one = replace(game.roles[0], on_tick=tick, inventory=Inventory(limits))
    other = Role((Reward(terms, most=2.5),), Inventory(initial=(("battery", 4),)), ("team",), 2, 1, after_use=tick)
    shown = (*game.shown, "last_action_move", "local_position")
    return replace(
        game,
        kinds=(wall, chest, *game.kinds[2:]),
        roles=(one, other),
        cells=(("agent.agent", (0, 1) * 64),),
        shown=shown,
    )


_SIMULATED = """
import numpy as np
from tests.envs.mettagrid.test_device import rich
from cavalcade.core.cuda import cuda
from cavalcade.envs.mettagrid import kernels, loops
from cavalcade.envs.mettagrid.arenas import Arenas
from cavalcade.envs.mettagrid.games import forage

def arrays(kind, game):
    env = Arenas(game, 4)
    env.reset()
    holders = env.state.kinds.shape
    visible, count = np.zeros((*holders, env.tables.visible), np.uint32), np.zeros(holders, np.int32)
    words, seen = np.full((4, 31), 0xFFFFFF, np.int32), np.zeros(4, np.int32)
    reward, actions = np.zeros(4, np.float32), np.zeros(4, np.int32)
    rng, found = np.random.default_rng(0), []
    def run(name, n, *args):
        if kind is loops:
            getattr(loops, name)(n, *args)
        else:
            getattr(kernels, name)[-(-n // 32), 32](n, *args)
    for _ in range(6):
        actions[:] = rng.integers(-1, 6, 4)
        run("act_arena", 2, env.state, env.tables, actions)
        run("describe_holder", count.size, env.state, env.tables, visible, count, reward, True)
        run("look_agent", 4, env.state, env.tables, visible, count, words, seen)
        found.append([x.copy() for x in (*env.state, words, seen, reward)])
    openings = [env.opening_of(e, 2) for e in range(2)]
    run("begin_arena", 2, np.arange(2), *(np.stack(x) for x in zip(*openings)), env.state, env.tables)
    found.append([x.copy() for x in env.state])
    return found

small = forage(agents=2, size=7, max_steps=9, walls=1, mines=2, generators=1, altars=1, window=3)
for game in (small, rich(small)):
    for a, b in zip(arrays(loops, game), arrays(kernels, game), strict=True):
        for x, y in zip(a, b, strict=True):
            assert np.array_equal(x, y)
print("equal")
"""


def test_kernels_in_the_simulator_do_what_loops_do():
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _SIMULATED], env=environment, capture_output=True, text=True
    )
    assert done.stdout.strip() == "equal", done.stderr


@pytest.mark.parametrize("made", [lambda game: game, rich])
def test_arenas_on_a_device_are_those_of_the_batch(made):
    game = made(forage(**SMALL | {"tokens": 100}))
    plain, moved = (Arenas(game, 12, seed=4) for _ in range(2))
    plain.reset()
    moved.reset()
    games = DeviceArenas(moved, game.tokens, torch.device("cpu"))
    rng = np.random.default_rng(0)
    for _ in range(25):
        actions = rng.integers(0, 5, 12)
        b = plain.step(actions)
        games.actions.copy_(torch.from_numpy(actions))
        games.launch()
        np.testing.assert_array_equal(games.reward, b.reward)
        over = games.ended()
        assert len(over) == (3 if b.truncated.all() else 0)
        if len(over):
            np.testing.assert_array_equal(games.tokens.reshape(12, -1), b.final_observation)
            games.begin(over)
        np.testing.assert_array_equal(games.tokens.reshape(12, -1), b.observation)
    games.pull()
    for name, x in plain.save_state().items():
        np.testing.assert_array_equal(x, moved.save_state()[name], err_msg=name)


def test_fewer_tokens_are_kept():
    game = forage(**SMALL)
    env = Arenas(game, 4, seed=4)
    env.reset()
    games = DeviceArenas(env, 5, torch.device("cpu"))
    np.testing.assert_array_equal(games.tokens.reshape(4, -1), env.buffers.observation[:, :15])
    assert (games.seen > 5).all()
