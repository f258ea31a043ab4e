"""Why a policy acts as it does: its best actions with their probabilities, and the value that it expects."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.contract import Environment
from cavalcade.ppo.mlp_policy import MlpPolicy
from cavalcade.ppo.recurrent_policy import RowRecurrentPolicy

_BEST = 3


def explain(
    policy: MlpPolicy | RowRecurrentPolicy, env: Environment, name: Callable[[int], str] = str, state: Any = None
) -> str:
    """The three best actions of a single policy and its value in the first environment, as text.

    Of multi-part actions, the three best of each part; of continuous actions, the means. name: of an action; state: of
    a recurrent policy in the episode so far, which is updated.
    """
    allowed = None
    if policy.head.integral:
        allowed = (policy.mask(env) if policy.mask else env.buffers.action_mask)[0]
    outputs, value = replace(policy, mask=None).evaluate(env.buffers.observation[0], allowed, state)
    if policy.head.integral:
        parts = np.split(outputs, np.cumsum(policy.head.sizes)[:-1])
        said = " | ".join(_best(part, name) for part in parts)
    else:
        said = "means " + ", ".join(f"{mean:.3f}" for mean in outputs.tolist())
    return f"{said};  value {value:.2f}"


def _best(probabilities: NDArray, name: Callable[[int], str]) -> str:
    best = np.argsort(-probabilities, kind="stable")[:_BEST]
    return ",  ".join(f"{name(a)} {probabilities[a]:.1%}" for a in best.tolist() if probabilities[a] > 0)
