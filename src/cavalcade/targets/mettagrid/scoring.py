"""Evaluation on held-out maps."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.config.hosting import WorkerConfig
from cavalcade.envs.mettagrid.source import mettagrid_source
from cavalcade.envs.mettagrid.task import MettagridTask
from cavalcade.targets.mettagrid.arenas import game_of
from cavalcade.vector.hosted import HELDOUT_SEEDS, Hosted


def heldout_rewards(
    actor: Any, task: MettagridTask, count: int, *, seed: int, backend: Any = "serial", steps: int = 0
) -> NDArray:
    """Rewards per agent-step of whole episodes on held-out maps, (count,)."""
    source = mettagrid_source(task.task, task.options)
    steps = steps or game_of(task).game.max_steps or 1000
    env = Hosted(source, count * source.agents, WorkerConfig(backend=backend), seed=HELDOUT_SEEDS + seed)
    try:
        env.reset()
        total = np.zeros(env.spec.num_envs)
        for _ in range(steps):
            total += env.step(actor(env)).reward
    finally:
        env.close()
    return total.reshape(count, source.agents).mean(1) / steps


def random_actor(seed: int) -> Any:
    """Random actions, as a control."""
    rng = np.random.default_rng(seed)
    return lambda env: rng.integers(0, env.buffers.action_mask.shape[1], env.spec.num_envs).astype(np.int32)
