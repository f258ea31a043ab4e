"""Trained recurrent policies: callable with tokens; a runner acts for batches."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from cavalcade.config.io import from_dict
from cavalcade.core.errors import ActionError, ConfigError
from cavalcade.envs.mettagrid.task import MettagridTask
from cavalcade.policy.heads import Choice, masked_log_probs
from cavalcade.policy.recurrent import TokenPolicy
from cavalcade.ppo.engines.recurrent.runner import RecurrentRunner
from cavalcade.ppo.mlp_policy import Evaluation
from cavalcade.ppo.recurrent_policy import RecurrentState
from cavalcade.ppo.returns import scale_from
from cavalcade.ppo.state import load_into
from cavalcade.targets.base import Saved
from cavalcade.targets.mettagrid.arenas import facts, layout_of
from cavalcade.targets.mettagrid.config import MettagridConfig


@dataclass(frozen=True)
class RecurrentPolicy:
    """The policy of a run at a checkpoint.

    `policy(observation, mask, state)` returns actions for the tokens of one agent or of a batch; `initial_state(batch)`
    makes a state, which every call updates.
    """

    path: Path
    config: MettagridConfig
    update: int
    policy: TokenPolicy
    scale: float  # reward scale of its training
    features: tuple[str, ...]  # names of the features in its observations
    tags: int

    recurrent = True

    @property
    def label(self) -> Path:
        """The run directory of the policy; the checkpoint if it lies elsewhere."""
        return self.path.parents[1] if self.path.parent.name == "checkpoints" else self.path

    def initial_state(self, batch: int = 1) -> RecurrentState:
        """State at the start of an episode."""
        return RecurrentState(self.policy.initial_state(batch))

    def __call__(
        self,
        observation: ArrayLike,
        mask: ArrayLike | None = None,
        state: RecurrentState | None = None,
        *,
        greedy: bool = False,
        rng: np.random.Generator | None = None,
    ) -> Any:
        """Actions for tokens (K, 3) or a batch (B, K, 3): sampled, or greedy."""
        logits, _, allowed, one = self._outputs(observation, mask, state)
        head = Choice(self.policy.actions)
        if greedy:
            actions = head.greedy(logits, allowed).numpy()
        else:
            draws = (rng or np.random.default_rng()).random((len(logits), 1))
            actions = head.sample(logits, allowed, torch.from_numpy(draws)).numpy()
        return int(actions[0]) if one else actions

    def evaluate(
        self, observation: ArrayLike, mask: ArrayLike | None = None, state: RecurrentState | None = None
    ) -> Evaluation:
        """Action probabilities and values for tokens (K, 3) or a batch (B, K, 3)."""
        logits, values, allowed, one = self._outputs(observation, mask, state)
        found = Evaluation(masked_log_probs(logits, allowed).exp().numpy(), values.numpy())
        return Evaluation(*(part[0] for part in found)) if one else found

    @torch.no_grad()
    def _outputs(
        self, observation: ArrayLike, mask: ArrayLike | None, state: RecurrentState | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, bool]:
        x = np.asarray(observation, np.uint8)
        one = x.ndim == 2
        x = x[None] if one else x
        if x.ndim != 3 or x.shape[2] != 3:
            raise ActionError(f"observations have shape {np.shape(observation)}; {self.path} takes tokens (K, 3)")
        state = state or self.initial_state(len(x))
        tokens = torch.from_numpy(x[:, : self.policy.layout.tokens].copy())
        out, state.memory = self.policy(tokens[None], state.memory, np.zeros((1, len(x)), np.bool_))
        shape = (len(x), self.policy.actions)
        allowed = np.ones(shape, np.bool_) if mask is None else np.asarray(mask, np.bool_).reshape(shape)
        return out.logits[0].float(), out.values[0].float(), torch.from_numpy(allowed), one

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
    found = RecurrentPolicy(
        saved.path, config, saved.snapshot.counters.updates, policy, _reward_scale(config, saved.snapshot.learner),
        tuple(network["features"]), int(network["tags"]),
    )  # fmt: skip
    found.check_suits(config.arena, "policy")
    load_into({name: p.detach() for name, p in policy.named_parameters()}, saved.snapshot.policy)
    return found


def _reward_scale(config: MettagridConfig, learner: Mapping[str, torch.Tensor]) -> float:
    """Reward scale at the end of training."""
    if not config.ppo.normalise_returns or not float(learner["return_count"]):
        return 1.0
    return float(scale_from(learner["return_square"], learner["return_count"]))
