"""Names of PPO's objective: the coefficients of the loss and the metrics that every engine reports."""

from typing import Any, NamedTuple

METRICS = ("policy_loss", "value_loss", "entropy", "kl", "clip_fraction")  # rows of what `gradient` returns
KL = METRICS.index("kl")
KL_TOLERANCE = 1.5  # times the target: above it a policy stops its update


class Coefficients(NamedTuple):
    """Coefficients of the loss, (P,) each; arrays or tensors."""

    clip: Any
    value: Any
    entropy: Any
    value_clip: Any  # 0 disables it
