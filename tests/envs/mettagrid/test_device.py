"""Arenas on a device: loops on the CPU, and kernels in Numba's CUDA simulator, equal to the batch."""

import os
import subprocess
import sys

import numpy as np
import torch

from cavalcade.envs.mettagrid.arenas import Arenas
from cavalcade.envs.mettagrid.device import DeviceArenas
from cavalcade.envs.mettagrid.games import forage

SMALL = {"agents": 4, "size": 11, "max_steps": 9, "walls": 2, "mines": 6, "tokens": 60}

_SIMULATED = """
import numpy as np
from cavalcade.core.cuda import cuda
from cavalcade.envs.mettagrid import kernels, loops
from cavalcade.envs.mettagrid.arenas import Arenas
from cavalcade.envs.mettagrid.games import forage

def arrays(kind):
    env = Arenas(forage(agents=2, size=7, max_steps=9, walls=1, mines=2, generators=1, altars=1, window=3), 4)
    env.reset()
    visible, count = np.zeros((2, 2, env.tables.visible), np.uint32), np.zeros((2, 2), np.int32)
    words, seen = np.full((4, 13), 0xFFFFFF, np.int32), np.zeros(4, np.int32)
    reward, actions = np.zeros(4, np.float32), np.zeros(4, np.int32)
    rng, found = np.random.default_rng(0), []
    def run(name, n, *args):
        if kind is loops:
            getattr(loops, name)(n, *args)
        else:
            getattr(kernels, name)[1, n](n, *args)
    for _ in range(6):
        actions[:] = rng.integers(-1, 6, 4)
        run("act_arena", 2, env.state, env.tables, actions)
        run("describe_agent", 4, env.state, env.tables, visible, count, reward, True)
        run("look_agent", 4, env.state, env.tables, visible, count, words, seen)
        found.append([x.copy() for x in (*env.state, words, seen, reward)])
    maps = [env.map_of(e, 2) for e in range(2)]
    grids, places, seeds = (np.stack(x) for x in zip(*maps))
    run("begin_arena", 2, np.arange(2), grids, places, seeds, env.state, env.tables)
    found.append([x.copy() for x in env.state])
    return found

for a, b in zip(arrays(loops), arrays(kernels), strict=True):
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


def test_arenas_on_a_device_are_those_of_the_batch():
    game = forage(**SMALL)
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
