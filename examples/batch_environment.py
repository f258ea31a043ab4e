"""Step a batch of CAGE-2 games from Python: `make_env` returns the environment that trainings use.

    python examples/batch_environment.py

The batch is already reset. Buffers are written in place; games that end begin anew in the same step.
"""

import numpy as np

import cavalcade

env = cavalcade.make_env("cage2", num_envs=256, red="bline", horizon=30)
rng = np.random.default_rng(0)
buffers, returns = env.buffers, np.zeros(256)
for _ in range(30):
    allowed = buffers.action_mask  # (256, 145)
    buffers = env.step(np.where(allowed, rng.random(allowed.shape), -1).argmax(1))  # a random legal action
    returns += buffers.reward
print(f"256 games of 30 random actions: mean return {returns.mean():.1f}, all over: {buffers.truncated.all()}")
env.close()
