"""Evaluation on held-out maps."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.config.hosting import WorkerConfig
from cavalcade.core.contract import Environment
from cavalcade.envs.mettagrid.arenas import Arenas
from cavalcade.envs.mettagrid.source import mettagrid_source
from cavalcade.envs.mettagrid.task import MettagridTask
from cavalcade.targets.mettagrid.arenas import chosen, facts
from cavalcade.vector.hosted import HELDOUT_SEEDS, Hosted


def heldout_rewards(
    actor: Any, task: MettagridTask, count: int, *, seed: int, backend: Any = "serial", steps: int = 0
) -> NDArray:
    """Rewards per agent-step of whole episodes on held-out maps, (count,)."""
    known, game = facts(task), chosen(task).game
    steps, rows = steps or known.max_steps or 1000, count * known.agents
    if game is not None:
        env: Environment = Arenas(game, rows, seed=HELDOUT_SEEDS + seed)
    else:
        source = mettagrid_source(task.task, task.options)
        env = Hosted(source, rows, WorkerConfig(backend=backend), seed=HELDOUT_SEEDS + seed)
    try:
        env.reset()
        total = np.zeros(env.spec.num_envs)
        for _ in range(steps):
            total += env.step(actor(env)).reward
    finally:
        env.close()
    return total.reshape(count, known.agents).mean(1) / steps


def random_actor(seed: int) -> Any:
    """Random actions, as a control."""
    rng = np.random.default_rng(seed)
    return lambda env: rng.integers(0, env.buffers.action_mask.shape[1], env.spec.num_envs).astype(np.int32)
