"""Who defends in a game: a policy of a run or of a search, or a scripted Blue."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cavalcade.core.errors import ConfigError
from cavalcade.envs.cage2.changes import Scenario
from cavalcade.envs.cage2.env import Cage2
from cavalcade.envs.cage2.protocol import CELLS, Actor
from cavalcade.envs.cage2.scenario import REDS
from cavalcade.envs.cage2.scripted import BLUES
from cavalcade.envs.cage2.task import Cage2Task
from cavalcade.envs.mettagrid.games import GAMES
from cavalcade.ppo.distinct_runner import DistinctRunner
from cavalcade.ppo.mlp_policy import MlpPolicy
from cavalcade.runs.directory import checkpoint_in, is_search
from cavalcade.runs.policies import load_policy
from cavalcade.search.policies import BEST, load_search_policy
from cavalcade.targets.cage2.evaluation import chosen, task_of
from cavalcade.watch.games.choice import Choice

# Targets whose policies are loaded: nothing that a run names is imported.
_TARGETS = ("cage2", "cyborg", "mettagrid")
_DRAWING = ("random", "greedy", "greedy-corrected")  # scripted Blues that draw actions


@dataclass(frozen=True)
class Defender:
    """A Blue, and the games it is shown in."""

    name: str
    task: Cage2Task
    make: Callable[[], Actor]
    policy: MlpPolicy | None = None
    scenario: Scenario | None = None
    draws: bool = False  # whether actions are drawn

    def fast_actor(self) -> Actor:
        """An actor for large batches."""
        policy, actor = self.policy, self.make()
        if policy is None or policy.recurrent or self.draws or (policy.mask and policy.mask.by_truth):
            return actor
        return DistinctRunner(actor)

    @property
    def remembers(self) -> bool:
        """Whether actions depend on earlier observations."""
        return self.policy is not None and self.policy.recurrent

    def game(self, choice: Choice, num_envs: int = 1, *, first: int = 0, autoreset: bool = False) -> Cage2:
        """Games of a held-out seed that have not begun; first: index of the first of them."""
        task = self.task
        shown: dict[str, Any] = {"red": task.red, "horizon": task.horizon, "scenario": self.scenario, **task.shown}
        if choice.cell:
            horizon, red = CELLS[choice.cell]
            shown |= {"red": red, "horizon": horizon, "green": False, "scenario": None}
        else:
            given = {name: getattr(choice, name) for name in ("red", "horizon", "green")}
            shown |= {name: value for name, value in given.items() if value is not None}
        if choice.revision is not None:
            shown["revision"] = choice.revision
        if shown["red"] not in REDS:
            raise ConfigError(f"the Red of {choice.run} is {shown['red']}, which is not run here; choose another red")
        where = {"seed": choice.seed, "stream": "heldout", "first_index": first, "autoreset": autoreset}
        return Cage2(num_envs, **shown, **where)


def defender_of(root: Path, path: Path | None, choice: Choice) -> Defender:
    """The Blue of a game; path: of its run, which `choice.run` names relative to the root."""
    if path is None:
        scripted = BLUES[choice.blue]

        def make() -> Actor:
            rng = np.random.default_rng(choice.seed)
            return lambda env: scripted(env, rng)

        return Defender(choice.blue, Cage2Task(), make, draws=choice.blue in _DRAWING)
    policies = policy_at(path, choice.order, choice.member)
    task = task_of(policies)
    member = choice.member
    if member is None and policies.policies > 1 and task.red not in REDS:
        member = 0  # the best one would have to be found in games with that Red
    index, name = chosen(policies, member, choice.sampled)
    policy = policies[index]
    name = name.replace(str(policies.label), _relative(policies.label, root), 1)
    return Defender(
        name,
        task,
        lambda: policy.runner(0, greedy=not choice.sampled, seed=choice.seed),
        policy,
        getattr(policies.config, "changes", None),
        draws=choice.sampled,
    )


def policy_at(path: Path, order: str | None = None, member: int | None = None) -> Any:
    """The policies of a run or a checkpoint, or one of a search."""
    if is_search(path):
        return load_search_policy(path, order or BEST, member)
    if order is not None:
        raise ConfigError(f"order is {order!r}; only policies of a search are found by order")
    return load_policy(path, check=check_harmless)


def check_harmless(config: dict[str, Any]) -> None:
    """Raises `ConfigError` for policies whose settings name Python modules that would be imported."""
    target = str(config.get("target", ""))
    if target not in _TARGETS:
        raise ConfigError(
            f"it was trained on {target or 'an unknown target'}; games of {', '.join(_TARGETS)} are shown"
        )
    arena = config.get("arena")
    task = arena.get("task", "forage") if isinstance(arena, dict) else "forage"
    if target == "mettagrid" and task not in GAMES:
        raise ConfigError(f"its task is {task!r}; only arenas of {', '.join(GAMES)} are shown")


def stamp(path: Path) -> tuple[str, int]:
    """What changes when there are new policies below a path."""
    newest = path / "search.csv" if is_search(path) else checkpoint_in(path)
    try:
        return str(newest), newest.stat().st_mtime_ns
    except OSError:
        return str(newest), 0


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
