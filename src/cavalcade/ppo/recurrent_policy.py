"""Trained recurrent policies: call one with observations and a state to get actions; a runner plays batches."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from cavalcade.core.errors import ActionError, ConfigError, StateError
from cavalcade.policy.heads import Head
from cavalcade.policy.recurrent import RecurrentNetwork, State
from cavalcade.ppo.engines.recurrent.runner import RecurrentRunner
from cavalcade.ppo.mlp_policy import Evaluation, PolicyMask, allowed_actions


class RecurrentState:
    """Recurrent state of a policy for a batch of agents; each call of the policy updates it."""

    def __init__(self, memory: State):
        self.memory = memory

    def reset(self, agents: ArrayLike | None = None) -> None:
        """Zeroes the state at the start of an episode: of all agents, or of those given."""
        for part in self.memory:
            part[:, slice(None) if agents is None else torch.as_tensor(np.asarray(agents))] = 0


class RecurrentCalls(ABC):
    """How a trained recurrent policy is called, whatever it observes.

    `policy(observation, mask, state)` returns the action for one observation or the actions for a batch;
    `initial_state(batch)` makes a state, which every call updates; without one, a call is the first step of an episode
    and remembers nothing. mask: True where an action is allowed; by default all are.

        state = policy.initial_state()
        while not over:
            observation, reward, terminated, truncated, info = env.step(policy(observation, mask, state))
            over = terminated or truncated  # state.reset() before the next episode
    """

    path: Path
    reward_scale: float  # of rewards in training; values are divided by it
    mask: PolicyMask | None = None  # of the order, if a mask enforces it
    scaled: Callable[[NDArray], NDArray] | None = None  # continuous actions as the environment takes them

    recurrent = True
    policies = 1
    greedy: ClassVar[bool] = True  # whether calls are greedy by default

    @property
    @abstractmethod
    def played(self) -> tuple[RecurrentNetwork, Head]:
        """The network and its distribution of actions."""

    @abstractmethod
    def rows(self, observation: ArrayLike) -> tuple[NDArray, bool]:
        """Observations as a batch for the network, and whether it was a single one."""

    @property
    def label(self) -> Path:
        """The run directory, or the checkpoint if it is not in one."""
        return self.path.parents[1] if self.path.parent.name == "checkpoints" else self.path

    def __len__(self) -> int:
        return self.policies

    def __getitem__(self, policy: int) -> Self:
        """The policy itself; there is one."""
        self._check(policy)
        return self

    def __iter__(self) -> Iterator[Self]:
        return iter((self,))

    def _check(self, policy: int | None) -> None:
        if policy not in (None, 0):
            raise ConfigError(f"policy is {policy}; {self.path} has 1, numbered from 0")

    def initial_state(self, batch: int = 1) -> RecurrentState:
        """State at the start of an episode."""
        return RecurrentState(self.played[0].initial_state(batch))

    def __call__(
        self,
        observation: ArrayLike,
        mask: ArrayLike | None = None,
        state: RecurrentState | None = None,
        *,
        greedy: bool | None = None,
        rng: np.random.Generator | None = None,
    ) -> Any:
        """Greedy or sampled actions for an observation or a batch.

        state: of `initial_state`, updated; without it, each call is the first step of an episode and remembers nothing.
        """
        logits, _, allowed, one = self._outputs(observation, mask, state)
        head = self.played[1]
        if self.greedy if greedy is None else greedy:
            actions = head.greedy(logits, allowed).numpy()
        else:
            draws = (rng or np.random.default_rng()).random((len(logits), head.draws))
            actions = head.sample(logits, allowed, torch.from_numpy(draws)).numpy()
        actions = self.scaled(actions) if self.scaled else actions
        return actions if not one else int(actions[0]) if not head.parts and head.integral else actions[0]

    def evaluate(
        self, observation: ArrayLike, mask: ArrayLike | None = None, state: RecurrentState | None = None
    ) -> Evaluation:
        """Probabilities of actions and values of an observation or a batch."""
        logits, values, allowed, one = self._outputs(observation, mask, state)
        shown = self.played[1].probabilities(logits, allowed)
        found = Evaluation(shown.numpy(), values.numpy() / self.reward_scale)
        return Evaluation(*(part[0] for part in found)) if one else found

    def _state(self, given: RecurrentState | None, batch: int) -> RecurrentState:
        """The state of a batch: the one given, or the initial one."""
        initial = self.initial_state(batch)
        if given is None:
            return initial
        if not isinstance(given, RecurrentState):
            raise StateError(
                f"state is of type {type(given).__name__}; make one with policy.initial_state({batch}), calls update it"
            )
        found, wanted = ([tuple(part.shape) for part in state.memory] for state in (given, initial))
        if found != wanted:
            raise StateError(
                f"state has shapes {found}; {self.path} takes {wanted} here, from policy.initial_state({batch})"
            )
        return given

    @torch.no_grad()
    def _outputs(
        self, observation: ArrayLike, mask: ArrayLike | None, state: RecurrentState | None
    ) -> tuple[Tensor, Tensor, Tensor, bool]:
        (network, head), (x, one) = self.played, self.rows(observation)
        allowed = allowed_actions(mask, head, len(x))
        if self.mask is not None:
            if self.mask.by_truth:
                raise ConfigError(f"{self.path} enforces its order on the true state; play it with `runner`")
            self.mask.restrict(x, allowed)
        state = self._state(state, len(x))
        shown = torch.from_numpy(np.ascontiguousarray(x))
        out, state.memory = network(shown[None], state.memory, np.zeros((1, len(x)), np.bool_))
        return out.logits[0].float(), out.values[0].float(), torch.from_numpy(allowed), one


@dataclass(frozen=True)
class RowRecurrentPolicy(RecurrentCalls):
    """The recurrent policy of a run at a checkpoint, on observations (O,) or a batch (B, O)."""

    path: Path
    config: Any  # settings of the run
    update: int
    head: Head
    network: RecurrentNetwork
    reward_scale: float
    order: str = ""  # the order it follows, if any
    mask: PolicyMask | None = None
    scaled: Callable[[NDArray], NDArray] | None = None

    @property
    def played(self) -> tuple[RecurrentNetwork, Head]:
        return self.network, self.head

    def rows(self, observation: ArrayLike) -> tuple[NDArray, bool]:
        x, layout = np.asarray(observation), self.network.layout
        if (image := getattr(layout, "image", None)) is not None:
            x = x.reshape(image.row_shape(x.shape))
        one = x.ndim == 1
        x = x[None] if one else x
        if x.shape[1:] != layout.shape:
            raise ActionError(
                f"observations have shape {np.shape(observation)}; {self.path} takes {layout.shape} or a batch of them"
            )
        return x, one

    def runner(self, policy: int | None = None, *, greedy: bool = True, seed: int = 0) -> RecurrentRunner:
        """A policy runner for batches; it applies the mask of the order."""
        self._check(policy)
        return RecurrentRunner(self.network, self.head, greedy=greedy, seed=seed, mask=self.mask)
