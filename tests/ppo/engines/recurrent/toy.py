"""A small world of tokens: a cue is shown once, the answer is due at the end of the episode."""

from typing import NamedTuple

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete

from cavalcade.config.recurrent import MachineConfig, RecurrentPPOConfig, TokenPolicyConfig
from cavalcade.core.contract import Buffers, Environment, EnvSpec
from cavalcade.policy.recurrent import TokenPolicy, seeded
from cavalcade.policy.tokens import END, NOWHERE, TokenLayout
from cavalcade.ppo.engines.recurrent.engine import RecurrentEngine

TOKENS = 4
LAYOUT = TokenLayout(3, 3, ("episode_completion_pct", "tag", "inv:ore"), (255.0, 10.0, 256.0), 2, TOKENS)
CPU = torch.device("cpu")


class Cue(Environment):
    """Each agent sees a cue (tag 0 or 1 in its cell) in the first step only; in the last it must name it for reward 1.

    Some agents' episodes are longer than others', so that they begin at different times; time is up at the end.
    """

    def __init__(self, agents: int, length: int = 5, groups: int = 1, seed: int = 0, spread: int = 1):
        width = 3 * TOKENS
        self.spec = EnvSpec("cue", agents, Box(0, 255, (width,), np.uint8), Discrete(2))
        zeros = np.zeros
        self.buffers = Buffers(
            zeros((agents, width), np.uint8), zeros(agents, np.float32), zeros(agents, np.bool_),
            zeros(agents, np.bool_), zeros((agents, width), np.uint8), np.ones((agents, 2), np.bool_),
        )  # fmt: skip
        self._rng = np.random.default_rng(seed)
        self._length = length + np.arange(agents) % spread
        self._cue, self._step = zeros(agents, np.int64), zeros(agents, np.int64)
        size = agents // groups
        self._groups = tuple(slice(i * size, (i + 1) * size) for i in range(groups))
        self._sent: list[int] = []

    @property
    def groups(self):
        return self._groups

    def reset(self, *, seed=None, indices=None):
        self._cue[:], self._step[:] = self._rng.integers(0, 2, len(self._cue)), 0
        self._draw(slice(None), self.buffers.observation)
        return self.buffers

    def _draw(self, rows, out):
        shown = np.full((len(self._cue), TOKENS, 3), END, np.uint8)
        shown[:, 0, 0], shown[:, 0, 1] = NOWHERE, 0
        shown[:, 0, 2] = 255 * self._step / self._length
        first = self._step == 0
        shown[first, 1, 0], shown[first, 1, 1], shown[first, 1, 2] = 0x11, 1, self._cue[first]
        out[rows] = shown.reshape(len(self._cue), -1)[rows]

    def send(self, actions):
        for g, rows in enumerate(self._groups):
            self.send_group(g, np.asarray(actions)[rows])

    def recv(self):
        self._sent.clear()
        return self.buffers

    def send_group(self, group, actions):
        rows, b = self._groups[group], self.buffers
        here = np.arange(rows.start, rows.stop)
        self._step[rows] += 1
        over = self._step[rows] >= self._length[rows]
        b.reward[rows] = over & (np.asarray(actions) == self._cue[rows])
        b.truncated[rows] = over
        self._draw(rows, b.final_observation)
        new = here[over]
        self._step[new], self._cue[new] = 0, self._rng.integers(0, 2, len(new))
        self._draw(rows, b.observation)
        self._sent.append(group)

    def wait_any(self):
        return self._sent.pop(0)

    def save_state(self, indices=None):
        return {}

    def load_state(self, saved, indices=None):
        pass

    def clone(self, indices=None):
        raise NotImplementedError


class Settings(NamedTuple):
    """What an engine is made of besides its environment."""

    ppo: RecurrentPPOConfig
    network: TokenPolicyConfig
    machine: MachineConfig
    seed: int


def config(agents=16, horizon=4, rounds=2, parts=2, core="lstm", encoder="bag", machine=None, seed=0, **ppo):
    batch = agents * horizon * rounds
    given = {"num_envs": agents, "batch_size": batch, "minibatch_size": batch // parts, "bptt_horizon": horizon}
    return Settings(
        RecurrentPPOConfig(**given | ppo),
        TokenPolicyConfig(encoder, core, 16),
        machine or MachineConfig(device="cpu"),
        seed,
    )


def engine(env, settings, kind=RecurrentEngine, device=CPU, **options):
    """The engine of an environment that has begun."""
    ppo, network, machine, seed = settings
    policy = seeded(
        seed, lambda: TokenPolicy(LAYOUT, 2, encoder=network.encoder, core=network.core, width=network.width)
    )
    return kind(env, policy, ppo, machine=machine, device=device, seed=seed, **options)
