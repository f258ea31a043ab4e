"""Evaluation by the returns of whole episodes on held-out seeds."""

from collections.abc import Callable
from dataclasses import dataclass
from shlex import quote
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.config.base import Settings, whole
from cavalcade.core.contract import BROKEN, Environment
from cavalcade.core.statistics import half_interval
from cavalcade.ppo.mlp_policy import MlpPolicy
from cavalcade.ppo.recurrent_policy import RowRecurrentPolicy
from cavalcade.targets.base import Score, Scores
from cavalcade.targets.members import Member
from cavalcade.vector.hosted import HELDOUT_SEEDS


@dataclass(frozen=True)
class EvaluateOptions(Settings):
    """Evaluates a policy on held-out seeds of the environment it was trained on."""

    episodes: int = whole(100, 2)
    """Number of episodes, rounded up to the same number for every environment."""
    max_steps: int = whole(10_000, 1)
    """Maximum steps per episode; longer ones do not count."""
    sampled: bool = False
    """Sample actions instead of acting greedily."""
    member: int | None = None
    """Index of the policy in a run with several; by default the best one on validation episodes."""
    seed: int = whole(1, 0)
    """Seed of the episodes; they never overlap with training."""


MakeEnv = Callable[[int], Environment]  # called with a seed that no training can have
_VALIDATION = 2**30  # first of the seeds for validation


def score_on_new_seeds(
    policy: MlpPolicy | RowRecurrentPolicy, make_env: MakeEnv, options: EvaluateOptions, member: Member
) -> Scores:
    """Mean return of a policy on held-out seeds."""
    runner = policy.runner(member.index, greedy=not options.sampled, seed=options.seed)
    returns, unfinished = _played(runner, make_env(HELDOUT_SEEDS + options.seed), options)
    head = f"{member.text}, " if member.text else ""
    head += f"new seeds, {'sampled' if options.sampled else 'greedy'}, {len(returns)} episodes"
    if unfinished:
        head += f", {unfinished} environments not done after {options.max_steps:,} steps"
    plain: dict[str, Any] = {"policy": str(policy.label), "update": policy.update}
    if len(returns) < 2:
        more = f"cavalcade evaluate {quote(str(policy.label))} --max-steps {4 * options.max_steps}"
        return Scores((), f"{head}: too few for a score; give them more steps: {more}", plain)
    score = Score("return", float(returns.mean()), half_interval(returns), len(returns))
    plain |= {"mean": score.mean, "interval": score.interval, "returns": returns.tolist()}
    return Scores((score,), f"{head}: {score.mean:.2f} ± {score.interval:.2f}", plain)


def best_on_new_seeds(policy: MlpPolicy, make_env: MakeEnv) -> int:
    """Index of the policy with the highest mean return on validation seeds; all play the same episodes."""
    found = [
        _played(policy.runner(p), make_env(HELDOUT_SEEDS + _VALIDATION), EvaluateOptions())[0]
        for p in range(policy.policies)
    ]
    return int(np.argmax([returns.mean() if len(returns) else -np.inf for returns in found]))


def _played(runner: Any, env: Environment, options: EvaluateOptions) -> tuple[NDArray, int]:
    try:
        env.reset()
        return hosted_returns(runner, env, options.episodes, options.max_steps)
    finally:
        env.close()


def hosted_returns(
    actor: Callable[[Environment], NDArray],
    env: Environment,
    episodes: int,
    most_steps: int,
    progress: Callable[[int], None] = lambda done: None,
) -> tuple[NDArray, int]:
    """Returns of the first ⌈episodes / N⌉ episodes of each environment, and how many environments ran out of steps.

    Every environment plays the same number of episodes, so that short episodes do not count more than long ones.
    Episodes cut short by a lost worker do not count. progress is called after each step with the episodes done.
    """
    broken = env.episode_kind_names.index(BROKEN) if BROKEN in env.episode_kind_names else -1
    n = env.spec.num_envs
    share = -(-episodes // n)
    total, count, left = np.zeros(n), np.zeros(n, np.int64), np.full(n, most_steps)
    returns: list[float] = []
    while ((count < share) & (left > 0)).any():
        buffers = env.step(actor(env))
        counting = (count < share) & (left > 0)
        total += buffers.reward
        left -= counting
        ended = (buffers.terminated | buffers.truncated) & counting
        if env.episode_kinds is not None:
            ended &= env.episode_kinds != broken
        returns += total[ended].tolist()
        count[ended] += 1
        total[buffers.terminated | buffers.truncated] = 0
        left[ended] = most_steps
        progress(len(returns))
    return np.array(returns), int((count < share).sum())
