"""A trained recurrent policy in evaluation: the policy runner of `TokenPolicy`."""

import numpy as np
import torch
from numpy.typing import NDArray

from cavalcade.core.contract import Environment
from cavalcade.policy.heads import Choice
from cavalcade.policy.recurrent import State, TokenPolicy
from cavalcade.ppo.draws import uniform_draws
from cavalcade.ppo.keys import environment_keys


class TokenRunner:
    """Acts for all agents of a batch, with greedy or sampled actions; resets the state where episodes end."""

    def __init__(self, policy: TokenPolicy, *, greedy: bool = False, seed: int = 0):
        self.policy, self.greedy = policy, greedy
        self._head, self._seed = Choice(policy.actions), seed
        self._memory: State | None = None
        self._keys, self._clock = np.zeros(0, np.uint64), 0

    @torch.no_grad()
    def __call__(self, env: Environment) -> NDArray:
        """Actions (N,) for the observations in the environment's buffers."""
        b, n = env.buffers, env.spec.num_envs
        device = self.policy.actor.weight.device
        begins = (b.terminated | b.truncated)[None]
        if self._memory is None or len(self._keys) != n:
            self._memory, begins = self.policy.initial_state(n), np.zeros((1, n), np.bool_)
            self._keys = environment_keys([self._seed], n)
        cut = torch.from_numpy(b.observation[:, : 3 * self.policy.layout.tokens]).unflatten(1, (-1, 3))
        out, self._memory = self.policy(cut.unsqueeze(0).to(device), self._memory, begins)
        logits, mask = out.logits[0].float().cpu(), torch.from_numpy(b.action_mask)
        if self.greedy:
            return self._head.greedy(logits, mask).numpy()
        draws = np.zeros((n, 1))
        uniform_draws(self._keys, np.array([self._clock]), 0, draws)
        self._clock += 1
        return self._head.sample(logits, mask, torch.from_numpy(draws)).numpy()
