"""Trained recurrent policies: call one with observations and a state to get actions; a runner plays batches."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from cavalcade.core.errors import ActionError, ConfigError
from cavalcade.policy.heads import Choice, Head, masked_log_probs
from cavalcade.policy.recurrent import RecurrentNetwork, State
from cavalcade.ppo.engines.recurrent.runner import RecurrentRunner
from cavalcade.ppo.mlp_policy import Evaluation, PolicyMask


class RecurrentState:
    """Recurrent state of a policy for a batch of agents; each call of the policy updates it."""

    def __init__(self, memory: State):
        self.memory = memory

    def reset(self, agents: ArrayLike | None = None) -> None:
        """Zeroes the state at the start of an episode: of all agents, or of those given."""
        for part in self.memory:
            part[:, slice(None) if agents is None else torch.as_tensor(np.asarray(agents))] = 0


@dataclass(frozen=True)
class RowRecurrentPolicy:
    """The recurrent policy of a run at a checkpoint.

    `policy(observation, mask, state)` returns the action for one observation or the actions for a batch;
    `initial_state(batch)` makes a state, which every call updates. mask: True where an action is allowed; by default
    all are.
    """

    path: Path
    config: Any  # settings of the run
    update: int
    head: Head
    network: RecurrentNetwork
    order: str = ""  # the order it follows, if any
    mask: PolicyMask | None = None  # of the order, if a mask enforces it

    recurrent = True
    policies = 1

    @property
    def label(self) -> Path:
        """The run directory, or the checkpoint if it is not in one."""
        return self.path.parents[1] if self.path.parent.name == "checkpoints" else self.path

    def __len__(self) -> int:
        return self.policies

    def __getitem__(self, policy: int) -> "RowRecurrentPolicy":
        """The policy itself; there is one."""
        self._check(policy)
        return self

    def _check(self, policy: int | None) -> None:
        if policy:
            raise ConfigError(f"policy is {policy}; {self.path} has 1, numbered from 0")

    def initial_state(self, batch: int = 1) -> RecurrentState:
        """State at the start of an episode."""
        return RecurrentState(self.network.initial_state(batch))

    def __call__(
        self,
        observation: ArrayLike,
        mask: ArrayLike | None = None,
        state: RecurrentState | None = None,
        *,
        greedy: bool = True,
        rng: np.random.Generator | None = None,
    ) -> Any:
        """Greedy or sampled actions for an observation (O,) or a batch (B, O); without a state, as at the start."""
        logits, _, allowed, one = self._outputs(observation, mask, state)
        if greedy:
            actions = self.head.greedy(logits, allowed).numpy()
        else:
            draws = (rng or np.random.default_rng()).random((len(logits), self.head.draws))
            actions = self.head.sample(logits, allowed, torch.from_numpy(draws)).numpy()
        return actions if not one else int(actions[0]) if isinstance(self.head, Choice) else actions[0]

    def evaluate(
        self, observation: ArrayLike, mask: ArrayLike | None = None, state: RecurrentState | None = None
    ) -> Evaluation:
        """Probabilities of actions and values of an observation (O,) or a batch (B, O)."""
        logits, values, allowed, one = self._outputs(observation, mask, state)
        shown = masked_log_probs(logits, allowed).exp() if isinstance(self.head, Choice) else logits
        found = Evaluation(shown.numpy(), values.numpy())
        return Evaluation(*(part[0] for part in found)) if one else found

    @torch.no_grad()
    def _outputs(
        self, observation: ArrayLike, mask: ArrayLike | None, state: RecurrentState | None
    ) -> tuple[Tensor, Tensor, Tensor, bool]:
        x, layout = np.asarray(observation), self.network.layout
        if (image := getattr(layout, "image", None)) is not None:
            x = x.reshape(image.row_shape(x.shape))
        one = x.ndim == 1
        x = x[None] if one else x
        if x.shape[1:] != layout.shape:
            raise ActionError(
                f"observations have shape {np.shape(observation)}; {self.path} takes {layout.shape} or a batch of them"
            )
        shape = (len(x), self.network.actions if self.head.integral else 0)
        allowed = np.ones(shape, np.bool_) if mask is None else np.asarray(mask, np.bool_).reshape(shape).copy()
        if self.mask is not None:
            if self.mask.by_truth:
                raise ConfigError(f"{self.path} enforces its order on the true state; play it with `runner`")
            self.mask.restrict(x, allowed)
        state = state or self.initial_state(len(x))
        rows = torch.from_numpy(np.ascontiguousarray(x))
        out, state.memory = self.network(rows[None], state.memory, np.zeros((1, len(x)), np.bool_))
        return out.logits[0], out.values[0], torch.from_numpy(allowed), one

    def runner(self, policy: int | None = None, *, greedy: bool = True, seed: int = 0) -> RecurrentRunner:
        """A policy runner for batches; it applies the mask of the order."""
        self._check(policy)
        return RecurrentRunner(self.network, self.head, greedy=greedy, seed=seed, mask=self.mask)
