"""Trained feed-forward policies: call one with observations to get actions; a runner plays batches."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from cavalcade.core.contract import Environment
from cavalcade.core.errors import ActionError, ConfigError, StateError
from cavalcade.policy.heads import Choice, Head
from cavalcade.ppo.runner import PolicyRunner
from cavalcade.ppo.torch_runner import TorchRunner


class PolicyMask(Protocol):
    """Removes forbidden actions from action masks, given the observations."""

    by_truth: bool  # whether it needs the true state

    def __call__(self, env: Environment) -> NDArray[np.bool_]:
        """The action masks (N, A) of a batch without the forbidden actions."""
        ...

    def restrict(self, observation: NDArray, mask: NDArray[np.bool_]) -> None:
        """Removes forbidden actions from masks, in place."""
        ...


class Evaluation(NamedTuple):
    """Outputs of a policy; without the batch axis for a single observation."""

    probabilities: NDArray  # (B, A); of multi-part actions, part after part; of continuous actions, the means
    value: NDArray  # (B,), discounted returns in the scale of the environment's rewards


def allowed_actions(mask: ArrayLike | None, head: Head, count: int) -> NDArray[np.bool_]:
    """Action masks (B, A) for a number of observations: those given, else all actions; A is 0 of continuous ones."""
    shape = (count, head.outputs if head.integral else 0)
    given = np.ones(shape, np.bool_) if mask is None else np.asarray(mask, np.bool_)
    found = given[None] if given.ndim == 1 else given
    if found.shape != shape:
        many, wanted = ("s", shape) if count > 1 else ("", shape[1:])
        raise ActionError(f"mask has shape {given.shape}; with {count} observation{many} it must be {wanted}")
    return found.copy()


@dataclass(frozen=True)
class MlpPolicy:
    """The policies of a run at a checkpoint.

    `policy(observation, mask)` returns the action for one observation or the actions for a batch. mask: action masks,
    True where an action is allowed; by default all are. With several policies, `policy[i]` is one of them, and only
    one can be called.
    """

    path: Path
    config: Any  # settings of the run
    update: int
    head: Head
    spec: Any  # `MlpSpec`, `ModuleSpec` or `CnnSpec`
    weights: NDArray  # (P, D)
    context: NDArray  # (P, C)
    shift: NDArray  # (P, O)
    scale: NDArray  # (P, O)
    reward_scale: NDArray  # (P,): of rewards in training; values are divided by it
    order: str = ""  # the order they follow, if any
    mask: PolicyMask | None = None  # of the order, if a mask enforces it
    scaled: Callable[[NDArray], NDArray] | None = None  # continuous actions as the environment takes them

    recurrent = False

    @property
    def label(self) -> Path:
        """The run directory, or the checkpoint if it is not in one."""
        return self.path.parents[1] if self.path.parent.name in ("checkpoints", "policies") else self.path

    @property
    def policies(self) -> int:
        """The number of policies (P)."""
        return len(self.weights)

    def __len__(self) -> int:
        return self.policies

    def __getitem__(self, policy: int) -> "MlpPolicy":
        """A single policy."""
        which = self._which(policy)
        parts = {name: getattr(self, name)[which] for name in ("weights", "context", "shift", "scale", "reward_scale")}
        return replace(self, **parts)

    def __iter__(self) -> Iterator["MlpPolicy"]:
        return map(self.__getitem__, range(self.policies))

    def __call__(
        self,
        observation: ArrayLike,
        mask: ArrayLike | None = None,
        state: None = None,
        *,
        greedy: bool = True,
        rng: np.random.Generator | None = None,
    ) -> Any:
        """Greedy or sampled actions for an observation (O,) or a batch (B, O)."""
        x, allowed, one = self._inputs(observation, mask, state)
        logits, _ = self._outputs(x)
        if greedy:
            found = self.head.greedy(logits, allowed)
        else:
            draws = (rng or np.random.default_rng()).random((len(x), self.head.draws))
            found = self.head.sample(logits, allowed, torch.from_numpy(draws))
        actions = self.scaled(found.numpy()) if self.scaled else found.numpy()
        return actions if not one else int(actions[0]) if not self.head.parts and self.head.integral else actions[0]

    def evaluate(self, observation: ArrayLike, mask: ArrayLike | None = None, state: None = None) -> Evaluation:
        """Probabilities of actions and values of an observation (O,) or a batch (B, O)."""
        x, allowed, one = self._inputs(observation, mask, state)
        logits, values = self._outputs(x)
        values = values.numpy() / float(self.reward_scale[0])
        found = Evaluation(self.head.probabilities(logits, allowed).numpy(), values)
        return Evaluation(*(part[0] for part in found)) if one else found

    def initial_state(self, batch: int = 1) -> None:
        """Feed-forward policies have no state."""

    def runner(self, policy: int | None = None, *, greedy: bool = True, seed: int = 0) -> PolicyRunner | TorchRunner:
        """A policy runner for one policy, or for all side by side; it applies the mask of their order."""
        which = self._which(policy)
        parts = (self.weights[which], self.context[which], self.shift[which], self.scale[which])
        seeds = [seed + p for p in range(len(parts[0]))]
        if isinstance(self.head, Choice) and hasattr(self.spec, "layers"):
            return PolicyRunner(self.spec, *parts, greedy=greedy, seeds=seeds, mask=self.mask)
        return TorchRunner(self.head, self.spec, *parts, greedy=greedy, seeds=seeds, mask=self.mask)

    def _which(self, policy: int | None) -> slice:
        if policy is not None and policy not in range(self.policies):
            raise ConfigError(f"policy is {policy}; {self.path} has {self.policies}, numbered from 0")
        return slice(None) if policy is None else slice(policy, policy + 1)

    def _inputs(
        self, observation: ArrayLike, mask: ArrayLike | None, state: None
    ) -> tuple[NDArray, torch.Tensor, bool]:
        if self.policies > 1:
            raise ConfigError(
                f"{self.path} has {self.policies} policies; take one: policy[i], or load_policy(path, member='best')"
            )
        if state is not None:
            raise StateError(f"state is of type {type(state).__name__}; {self.path} is feed-forward, leave it out")
        x = np.asarray(observation)
        if self.spec.raw:
            x = x.reshape(self.spec.image.row_shape(x.shape))
        one = x.ndim == 1
        x = x[None] if one else x
        if x.ndim != 2 or x.shape[1] != self.spec.inputs:
            raise ActionError(
                f"observations have shape {np.shape(observation)}; {self.path} takes ({self.spec.inputs},) or a batch "
                f"of them"
            )
        allowed = allowed_actions(mask, self.head, len(x))
        if self.mask is not None:
            if self.mask.by_truth:
                raise ConfigError(f"{self.path} enforces its order on the true state; play it with `runner`")
            self.mask.restrict(x, allowed)
        return x, torch.from_numpy(allowed), one

    @torch.no_grad()
    def _outputs(self, x: NDArray) -> tuple[torch.Tensor, torch.Tensor]:
        weights = torch.from_numpy(self.weights[:1])
        shown = torch.from_numpy(x)
        if not self.spec.raw:
            scaled = (shown - torch.from_numpy(self.shift[0])) * torch.from_numpy(self.scale[0])
            shown = scaled.to(weights.dtype)
        logits, values = self.spec.forward(weights, shown[None], torch.from_numpy(self.context[:1]))
        return logits[0], values[0]


Actor = Callable[[Environment], NDArray]
