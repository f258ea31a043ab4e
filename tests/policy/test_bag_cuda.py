"""The GPU's sums of embeddings and draws of actions, in Numba's CUDA simulator: equal to those of the CPU."""

import os
import subprocess
import sys

_SIMULATED = """
import numpy as np
from cavalcade.policy.bag import ONE
from cavalcade.policy.bag_cuda import bag_back, bag_sums
from cavalcade.policy.tokens import TokenLayout, bag_rows
from cavalcade.ppo.engines.recurrent import draw
from cavalcade.ppo.engines.recurrent.draw_cuda import draw_clocked

names = ("agent:group", "episode_completion_pct", "tag", "inv:ore")
layout = TokenLayout(3, 3, names, (10.0, 255.0, 10.0, 256.0), 3, 6)
t, rng, width = layout.tables, np.random.default_rng(0), 4
tokens = np.full((5, 6, 3), 255, np.uint8)
for b in range(5):
    for k in range(b + 1):
        tokens[b, k] = rng.choice([0x00, 0x11, 0x22, 0x90, 254]), rng.integers(0, 5), rng.integers(0, 256)
table = rng.normal(size=(t.rows, width)).astype(np.float32)
bias = rng.normal(size=width).astype(np.float32)
sums, upstream = np.zeros((5, width), np.float32), rng.normal(size=(5, width)).astype(np.float32)
gradient = np.zeros((t.rows, width), np.int64)
bag_sums[1, 20](20, tokens, t.base, t.levels, t.weight, table, bias, sums)
bag_back[1, 20](20, tokens, t.base, t.levels, t.weight, upstream, gradient)
rows, weights, offsets = np.zeros(30, np.int32), np.zeros(30, np.float32), np.zeros(6, np.int32)
bag_rows(tokens[None], t.base, t.levels, t.weight, rows, weights, offsets)
wanted, back = np.tile(bias, (5, 1)).astype(float), np.zeros((t.rows, width))
for b in range(5):
    for k in range(offsets[b], offsets[b + 1]):
        wanted[b] += weights[k] * table[rows[k]]
        back[rows[k]] += weights[k] * upstream[b].astype(float)
assert offsets[-1] > 3
assert np.allclose(sums, wanted, atol=1e-6)
assert np.allclose(gradient / ONE, back, atol=1e-10)

logits, mask = rng.normal(size=(7, 5)).astype(np.float32), rng.random((7, 5)) < 0.7
mask[:, 0] = True
keys = rng.integers(0, 2**63, 7).astype(np.uint64)
found = [(np.zeros(7, np.int32), np.zeros(7, np.float32)) for _ in range(2)]
draw.draw_clocked(7, logits, mask, keys, np.array([9]), *found[0])
draw_clocked[1, 7](7, logits, mask, keys, np.array([9]), *found[1])
for x, y in zip(*found):
    assert np.array_equal(x, y)
assert len(set(found[0][0])) > 1
print("equal")
"""


def test_kernels_in_the_simulator_do_what_the_cpu_does():
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-W", "ignore", "-c", _SIMULATED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "equal", done.stderr
