"""CAGE-2 in our simulator and in the original: what both targets share about orders, policies and scores."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.config.workflow import WorkflowConfig
from cavalcade.core.statistics import half_interval
from cavalcade.envs.cage2.changes import not_the_challenge
from cavalcade.envs.cage2.order_mask import OrderMask
from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.envs.cage2.workflow import WorkflowCage2
from cavalcade.ppo.engine import Engine
from cavalcade.ppo.mlp_policy import MlpPolicy
from cavalcade.ppo.recurrent_policy import RowRecurrentPolicy
from cavalcade.ppo.rollout import Episodes
from cavalcade.ppo.trainer import Adapt
from cavalcade.targets.base import LoadPolicy, Progress, Saved, Score, Scores, Target, no_progress
from cavalcade.targets.cage2 import evaluation, play
from cavalcade.targets.cage2.config import Cage2BaseConfig
from cavalcade.targets.cage2.scoring import best_policy, score
from cavalcade.targets.population import load_population
from cavalcade.targets.recurrent import has_memory, load_recurrent
from cavalcade.workflow.tracking import WorkflowEnvironment

_HELDOUT = 1000  # episodes


class Cage2BaseTarget(Target[Any]):
    """A target whose policies play CAGE-2."""

    EvaluateOptions = evaluation.Options
    PlayOptions = play.Options

    def run_name(self, config: Cage2BaseConfig) -> str:
        return f"{config.target}-{config.task.red}" + "-changed" * bool(config.changes.differences)

    def remarks(self, config: Cage2BaseConfig) -> Sequence[str]:
        return not_the_challenge(config.changes)

    def adapt(self, config: Cage2BaseConfig, engine: Engine) -> Adapt | None:
        return multipliers(config, engine)

    def policy(self, saved: Saved) -> MlpPolicy | RowRecurrentPolicy:
        found = (load_recurrent if has_memory(saved) else load_population)(self.Config, saved)
        config: Cage2BaseConfig = found.config
        return replace(found, order=config.order, mask=order_mask(config.order, config.workflow))

    def best_member(self, policy: MlpPolicy) -> int:
        return best_policy(policy)[0]

    def heldout(self, policy: MlpPolicy | RowRecurrentPolicy) -> Scores:
        return heldout(policy)

    def evaluate(self, policy: Any, options: evaluation.Options, progress: Progress = no_progress) -> Scores:
        return evaluation.evaluate(policy, options, progress)

    def play(self, options: play.Options, load: LoadPolicy) -> None:
        """Shows a game in our simulator, also of a policy that was trained in CybORG."""
        play.play(options, load)


def workflow_options(config: Cage2BaseConfig) -> dict[str, Any]:
    """Arguments of games with the order of a training. All have the same order, so it is not observed."""
    w, learning = config.workflow, {"gamma": config.ppo.gamma, "timeout_is_terminal": config.ppo.timeout_is_terminal}
    return w.counting | learning | {"open_until": w.open_until, "show_order": False}


def with_order(env: WorkflowCage2, config: Cage2BaseConfig) -> WorkflowCage2:
    """Assigns the order of a training to all games, and returns them."""
    env.give_order(slice(None), order=CAGE2.parse(config.order), shown=False, **config.workflow.binding)
    return env


def order_mask(order: str, workflow: WorkflowConfig) -> OrderMask | None:
    """The action mask of an order; None without an order, or if a mask does not enforce it."""
    mask = workflow.binding["mask"]
    return OrderMask(CAGE2.parse(order), mask, workflow.open_until) if order and mask != "none" else None


def multipliers(config: Cage2BaseConfig, engine: Engine) -> Adapt | None:
    """Returns what adapts the cost of violations to each rollout's compliance; None unless enforce is lagrangian."""
    env = engine.env
    if config.workflow.enforce != "lagrangian" or not isinstance(env, WorkflowEnvironment):
        return None

    def adapt(episodes: Episodes) -> dict[str, NDArray]:
        given = (episodes.policy, episodes.episode_stats, config.policies, config.workflow.follow_threshold)
        found = env.adapt_multipliers(*given).copy()
        engine.push_reward_weights()
        return {"multiplier": found}

    return adapt


def heldout(policy: MlpPolicy | RowRecurrentPolicy) -> Scores:
    """Scores each policy, and their mean, on the run's own task in our simulator: greedy actions, held-out games."""
    config: Cage2BaseConfig = policy.config
    task = config.task
    reds = [task.red] if task.red != "mixed" else ["bline", "meander", "sleep"]
    lines = [f"held-out games, greedy, {_HELDOUT:,} episodes of {task.horizon} steps, revision {task.revision}:"]
    lines += not_the_challenge(config.changes)
    found: list[Score] = []
    for red in reds:
        means = []
        for p in range(policy.policies):
            given = {"seed": config.seed, "scenario": config.changes}
            (cell,) = score(policy.runner(p), task, [red], [task.horizon], _HELDOUT, **given)
            means.append(cell.mean)
            lines.append(f"  {red:<8} seed {config.seed + p:<4} {cell.mean:8.2f} ± {cell.interval:.2f}")
            found.append(Score(f"{red} seed {config.seed + p}", cell.mean, cell.interval, _HELDOUT))
        if len(means) > 1:
            mean, interval = float(np.mean(means)), half_interval(means)
            lines.append(f"  {red:<8} mean of {len(means)} {mean:8.2f} ± {interval:.2f}")
            found.append(Score(red, mean, interval, _HELDOUT * len(means)))
    plain: dict[str, Any] = {"policy": str(policy.path), "scores": [s._asdict() for s in found]}
    if config.changes.differences:
        plain["not_the_challenge"] = config.changes.differences
    return Scores(tuple(found), "\n".join(lines), plain)
