"""How an order binds a policy: by an action mask, by a cost per violation, by rewards, or not at all.

* `mask`: where the agent sees at least two subtasks open, it may attempt only the first of them. The mask depends only
  on what the agent sees, the reward is the same for all orders, and a policy can be deployed with the same mask.
* `mask-true`: the same on the true state. For experiments only: the mask reveals hidden state to the agent.
* `lagrangian`: each attempt that breaks the order costs a multiplier, which rises while the policy's compliance is
  below a threshold and falls above it (a Lagrangian relaxation, e.g. Tessler et al. 2019). Never a bonus.
* `reward`: alignment rewards, see `compliance`.
* `none`: the order is shown and counted, nothing else.
"""

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.jit import rule
from cavalcade.workflow.compliance import first_open, several

MODES = ("mask", "mask-true", "lagrangian", "reward", "none")
MASKS = ("none", "mask", "mask-true")
FREE, BY_VIEW, BY_TRUTH = range(3)
_RATE, _MOST = 0.5, 10.0  # of the multiplier: learning rate, upper bound


@rule
def allowed_subtasks(t, e, seen, open_):
    """Bits of the subtasks that environment e may attempt: the first open one if several are open, else all."""
    if t.mask[e] == BY_VIEW and several(seen):
        return 1 << first_open(t, e, seen)
    if t.mask[e] == BY_TRUTH and several(open_):
        return 1 << first_open(t, e, open_)
    return (1 << t.rank.shape[1]) - 1


def next_multipliers(multiplier: NDArray, kept: NDArray, counted: NDArray, threshold: float) -> NDArray:
    """Multipliers after an update: β + 0.5 (threshold − kept / counted), clipped to 0 … 10; β if nothing counted.

    Arrays are (P,).
    """
    gap = np.where(counted > 0, threshold - kept / np.maximum(counted, 1), 0.0)
    return np.clip(multiplier + _RATE * gap, 0.0, _MOST)
