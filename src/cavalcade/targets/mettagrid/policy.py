"""Trained recurrent policies: callable with tokens; a runner acts for batches."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cavalcade.config.io import from_dict
from cavalcade.core.errors import ActionError, ConfigError
from cavalcade.envs.mettagrid.task import MettagridTask
from cavalcade.policy.heads import Choice
from cavalcade.policy.recurrent import TokenPolicy
from cavalcade.ppo.engines.recurrent.runner import RecurrentRunner
from cavalcade.ppo.recurrent_policy import RecurrentCalls
from cavalcade.ppo.returns import reward_scale
from cavalcade.ppo.state import load_into
from cavalcade.targets.base import Saved
from cavalcade.targets.mettagrid.arenas import facts, layout_of
from cavalcade.targets.mettagrid.config import MettagridConfig


@dataclass(frozen=True)
class RecurrentPolicy(RecurrentCalls):
    """The policy of a run at a checkpoint, on the tokens (K, 3) of one agent or of a batch; calls sample by default."""

    path: Path
    config: MettagridConfig
    update: int
    policy: TokenPolicy
    reward_scale: float
    features: tuple[str, ...]  # names of the features in its observations
    tags: int

    greedy = False

    @property
    def played(self) -> tuple[TokenPolicy, Choice]:
        return self.policy, Choice(self.policy.actions)

    def rows(self, observation: ArrayLike) -> tuple[NDArray, bool]:
        x = np.asarray(observation, np.uint8)
        one = x.ndim == 2
        x = x[None] if one else x
        if x.ndim != 3 or x.shape[2] != 3:
            raise ActionError(f"observations have shape {np.shape(observation)}; {self.path} takes tokens (K, 3)")
        return x[:, : self.policy.layout.tokens], one

    def runner(self, *, greedy: bool = False, seed: int = 0) -> RecurrentRunner:
        """Policy runner for batches of environments."""
        return RecurrentRunner(self.policy, greedy=greedy, seed=seed)

    def check_suits(self, task: MettagridTask, what: str) -> None:
        """Raises `ConfigError` if a task has other observations or actions than the policy; what: its role."""
        layout, actions, mine = layout_of(task), facts(task).actions, self.policy.layout
        same = layout.features == self.features and layout.tags == self.tags and actions == self.policy.actions
        window = (layout.height, layout.width, layout.scales) == (mine.height, mine.width, mine.scales)
        if not same or not window:
            raise ConfigError(
                f"{what} {self.path} was trained on {self.config.arena.task}, whose observations or actions differ "
                f"from those of {task.task}"
            )


def policy_from(saved: Saved) -> RecurrentPolicy:
    """Loads the policy of a checkpoint."""
    network = saved.network
    config = from_dict(MettagridConfig, saved.config)
    shape = {name: network[name] for name in ("encoder", "core", "width")}
    policy = TokenPolicy(layout_of(config.arena), network["actions"], **shape)
    rewards = reward_scale(saved.snapshot.learner, normalise=config.ppo.normalise_returns)
    found = RecurrentPolicy(
        saved.path, config, saved.snapshot.counters.updates, policy, float(rewards[0]),
        tuple(network["features"]), int(network["tags"]),
    )  # fmt: skip
    found.check_suits(config.arena, "policy")
    load_into({name: p.detach() for name, p in policy.named_parameters()}, saved.snapshot.policy)
    return found
