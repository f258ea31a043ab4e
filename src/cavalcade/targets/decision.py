"""Why a policy acts as it does: its best actions with their probabilities, and the value that it expects."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.contract import Environment
from cavalcade.ppo.mlp_policy import MlpPolicy

_BEST = 3


class Decision(NamedTuple):
    """Outputs of a policy for one observation."""

    parts: list[NDArray]  # probabilities of the actions, of each part of multi-part ones
    means: list[float]  # of continuous actions
    value: float
    normalised: bool  # whether the value is in the scale of normalised returns

    def best(self, count: int, part: int = 0) -> list[tuple[int, float]]:
        """The best possible actions of a part and their probabilities."""
        found = self.parts[part]
        order = np.argsort(-found, kind="stable")[:count].tolist()
        return [(action, float(found[action])) for action in order if found[action] > 0]


def decide(policy: MlpPolicy, env: Environment, state: Any = None) -> Decision:
    """The decision of a single policy in the first environment; state: of a recurrent policy, updated."""
    allowed = None
    if policy.head.integral:
        allowed = (policy.mask(env) if policy.mask else env.buffers.action_mask)[0]
    outputs, value = replace(policy, mask=None).evaluate(env.buffers.observation[0], allowed, state)
    normalised = policy.config.ppo.normalise_returns
    if not policy.head.integral:
        return Decision([], outputs.tolist(), float(value), normalised)
    return Decision(np.split(outputs, np.cumsum(policy.head.sizes)[:-1]), [], float(value), normalised)


def explain(policy: MlpPolicy, env: Environment, name: Callable[[int], str] = str, state: Any = None) -> str:
    """The three best actions of a single policy and its value in the first environment, as text.

    Of multi-part actions, the three best of each part; of continuous actions, the means. name: of an action; state: of
    a recurrent policy, updated.
    """
    found = decide(policy, env, state)
    if found.means:
        said = "means " + ", ".join(f"{mean:.3f}" for mean in found.means)
    else:
        best = (found.best(_BEST, part) for part in range(len(found.parts)))
        said = " | ".join(",  ".join(f"{name(a)} {p:.1%}" for a, p in part) for part in best)
    scale = " (normalised)" if found.normalised else ""
    return f"{said};  value {found.value:.2f}{scale}"
