"""Which learner: the fastest that settings and environment allow, and a word on what stands in the way of a faster."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from cavalcade.config import PPOConfig
from cavalcade.envs.contract import Environment
from cavalcade.ppo.fused.learner import FusedLearner, why_not
from cavalcade.ppo.learner import Learner
from cavalcade.ppo.population import Hyper
from cavalcade.ppo.ranks import ALONE, Ranks
from cavalcade.ppo.torch_learner import TorchLearner


def make_learner(
    env: Environment,
    config: PPOConfig,
    seeds: Sequence[int],
    *,
    hyper: Hyper | None = None,
    context: NDArray | None = None,
    parts: int = 0,
    ranks: Ranks = ALONE,
) -> tuple[Learner, list[str]]:
    """A learner and what there is to say about the choice; parts: see `FusedLearner`."""
    options: dict[str, Any] = {"hyper": hyper, "context": context, "ranks": ranks}
    notes = []
    if config.learner == "torch" or (config.learner == "auto" and why_not(env, config, distinct=False)):
        if config.learner == "auto":
            notes.append(f"plain torch learner: {why_not(env, config, distinct=False)}")
        if config.rows == "distinct":
            notes.append("plain rows: the torch learner has no distinct rows")
        return TorchLearner(env, config, seeds, **options), notes
    distinct = config.rows != "plain"
    if config.rows == "auto" and (why := why_not(env, config, distinct=True)):
        distinct = False
        if env.packed is not None:
            notes.append(f"plain rows: {why}")
    return FusedLearner(env, config, seeds, distinct=distinct, parts=parts, **options), notes
