"""A trained recurrent policy in evaluation: acts for batches."""

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cavalcade.core.contract import Environment
from cavalcade.policy.heads import Choice, Head
from cavalcade.policy.recurrent import RecurrentNetwork, State
from cavalcade.ppo.draws import uniform_draws
from cavalcade.ppo.keys import environment_keys


class RecurrentRunner:
    """Acts for all agents of a batch, with greedy or sampled actions; resets the state where episodes end.

    Another batch, or another number of agents, begins with the initial state. mask: computes the action masks (N, A) of
    a batch, if not its own.
    """

    def __init__(
        self,
        policy: RecurrentNetwork,
        head: Head | None = None,
        *,
        greedy: bool = False,
        seed: int = 0,
        mask: Callable[[Any], NDArray] | None = None,
    ):
        self.policy, self.greedy, self._mask = policy, greedy, mask
        self._head, self._seed = head or Choice(policy.actions), seed
        self._memory: State = ()
        self._env: Callable[[], Any] = lambda: None
        self._keys, self._clock = np.zeros(0, np.uint64), 0

    @torch.no_grad()
    def __call__(self, env: Environment) -> NDArray:
        """Actions (N, …) for the observations in the environment's buffers."""
        b, n = env.buffers, env.spec.num_envs
        device = self.policy.actor.weight.device
        begins = (b.terminated | b.truncated)[None]
        if self._env() is not env or len(self._keys) != n:
            self._memory, begins = self.policy.initial_state(n), np.zeros((1, n), np.bool_)
            self._env, self._keys = weakref.ref(env), environment_keys([self._seed], n)
        seen = self.policy.layout.cut(torch.from_numpy(b.observation))
        out, self._memory = self.policy(seen.unsqueeze(0).to(device), self._memory, begins)
        logits = out.logits[0].float().cpu()
        mask = torch.from_numpy(self._mask(env) if self._mask else b.action_mask)
        if self.greedy:
            return self._head.greedy(logits, mask).numpy()
        draws = np.zeros((n, self._head.draws))
        uniform_draws(self._keys, np.array([self._clock]), 0, draws)
        self._clock += 1
        return self._head.sample(logits, mask, torch.from_numpy(draws)).numpy()
