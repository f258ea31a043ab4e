"""How an order binds a policy: by a mask on its actions, by a cost per violation, by rewards, or not at all.

* `mask`: where the agent sees at least two subtasks open, it may attempt only the first of them. Nothing that it does
  not see enters, the reward is the same for all orders, and a policy can be deployed with the same mask.
* `mask-true`: the same on the true state. For science only: what is forbidden tells the agent what it cannot see.
* `lagrangian`: each attempt that breaks the order costs a multiplier, which rises while the policy's compliance is
  below a threshold and falls again above it (a Lagrangian relaxation, e.g. Tessler et al. 2019). Never a bonus.
* `reward`: alignment rewards, see `compliance`.
* `none`: the order is shown and counted, nothing else.
"""

import numpy as np
from numpy.typing import NDArray

from cavalcade.jit import rule
from cavalcade.workflow.compliance import first_open, several

MODES = ("mask", "mask-true", "lagrangian", "reward", "none")
MASKS = ("none", "mask", "mask-true")
FREE, BY_VIEW, BY_TRUTH = range(3)
_RATE, _MOST = 0.5, 10.0  # of the multiplier


@rule
def allowed_subtasks(t, e, seen, open_):
    """The subtasks that environment e may attempt now, as bits: all of them, or the first where two are open."""
    if t.mask[e] == BY_VIEW and several(seen):
        return 1 << first_open(t, e, seen)
    if t.mask[e] == BY_TRUTH and several(open_):
        return 1 << first_open(t, e, open_)
    return (1 << t.rank.shape[1]) - 1


def next_multipliers(multiplier: NDArray, kept: NDArray, counted: NDArray, threshold: float) -> NDArray:
    """Multipliers after an update: β + 0.5 (threshold − kept / counted) within 0 … 10, as before if nothing counted.

    All arguments (P,).
    """
    gap = np.where(counted > 0, threshold - kept / np.maximum(counted, 1), 0.0)
    return np.clip(multiplier + _RATE * gap, 0.0, _MOST)
