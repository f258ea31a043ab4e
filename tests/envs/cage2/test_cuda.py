"""The rules on a GPU: in Numba's simulator of CUDA, and on a real one where there is one."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import cuda

from cavalcade.envs.cage2 import Cage2

from ...cli.helpers import refused

ROOT = Path(__file__).parent.parent.parent.parent

# Runs with the JIT disabled, so that rules and kernels are plain Python.
SCRIPT = """
import sys
import numpy as np
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.cuda import CudaCage2, CudaGames

options = {"red": sys.argv[1], "revision": sys.argv[2], "green": True, "horizon": 9, "seed": 3}
options["extras"] = ("scans", "decoys")
here, there = Cage2(3, **options), CudaCage2(3, **options)
here.reset(), there.reset()
packed = CudaGames(here)
rng = np.random.default_rng(0)
for t in range(25):
    actions = rng.integers(0, 145, 3)
    here.step(actions), there.step(actions)
    packed.actions[:] = actions.astype(np.int32)
    packed.step()
    for name in here._outputs._fields:
        mine = getattr(here._outputs, name)
        assert (mine == getattr(there._outputs, name)).all(), (t, name)
        if name not in ("values", "final_values", "mask"):
            assert (mine == getattr(packed.outputs, name).copy_to_host()).all(), (t, name, "packed")
    for name in here.state._fields:
        assert (getattr(here.state, name) == getattr(there.state, name)).all(), (t, name)
        assert (getattr(here.state, name) == getattr(packed.state, name).copy_to_host()).all(), (t, name, "packed")
packed.draw()
drawn = packed.actions.copy_to_host()
assert ((drawn >= 0) & (drawn < 145)).all() and len(set(drawn.tolist())) > 1
assert here.state.episode.max() == 2  # games have ended and begun
print("equal")
"""


@pytest.mark.parametrize("red", ["bline", "meander", "mixed"])
@pytest.mark.parametrize("revision", ["head", "leaderboard-2022"])
def test_kernels_are_the_rules(red, revision):
    env = os.environ | {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, red, revision], capture_output=True, text=True, check=False,
        env=env, cwd=ROOT,
    )  # fmt: skip
    assert done.stdout == "equal\n", done.stderr


@pytest.mark.skipif(cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_is_said(capsys):
    data = ROOT / "tests" / "data" / "cage2"
    assert "there is no CUDA device here" in refused(capsys, "verify", data, "--device", "cuda")
    assert "there is no CUDA device here" in refused(capsys, "bench", "gpu")


@pytest.mark.skipif(not cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("red", ["bline", "meander", "sleep", "mixed"])
@pytest.mark.parametrize("revision", ["head", "leaderboard-2022"])
def test_a_gpu_plays_the_same_games(red, revision):
    from cavalcade.envs.cage2.cuda import CudaCage2

    options = {"red": red, "revision": revision, "green": True, "extras": ("scans", "decoys", "action"), "seed": 5}
    here, there = Cage2(1000, **options), CudaCage2(1000, **options)
    here.reset()
    there.reset()
    rng = np.random.default_rng(0)
    for _ in range(300):
        actions = rng.integers(0, 145, 1000)
        here.step(actions)
        there.step(actions)
        for one, two in ((here.state, there.state), (here._outputs, there._outputs)):
            for a, b in zip(one, two, strict=True):
                np.testing.assert_array_equal(a, b)
