"""CAGE-2 for RLlib (new API stack) under its Gymnasium name, as a single environment and as a vector environment.

RLlib's runner of environments knows one kind of autoreset, the next-step kind, and does not ask which one it is given:
on a same-step vector environment it would take the first observation of a new episode for the last of the old one, and
lose the first step of every episode but the first. So it gets a vector environment of its own. Ray is imported when
`register` is called.
"""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from cavalcade.envs import CAGE2_ID
from cavalcade.envs.cage2.gym import Cage2Env, Cage2VectorEnv
from cavalcade.errors import ConfigError


class Cage2NextStepVectorEnv(Cage2VectorEnv):
    """Many games, with next-step autoreset, as RLlib wants them; otherwise as `Cage2VectorEnv`, and the same games.

    In the step that ends an episode, the observation is its last. In the step after, the row's action does not count:
    the next episode begins, the observation is its first and the reward 0.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs: int = 1, **options: Any):
        super().__init__(num_envs, autoreset=False, **options)
        self._ended = np.zeros(num_envs, np.bool_)

    def reset(self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None):
        """Begins the next episodes, or with a seed the first of that seed; `reset_mask` in the options picks rows."""
        given = super().reset(seed=seed, options=options)
        rows = (options or {}).get("reset_mask")
        self._ended[slice(None) if rows is None else rows] = False
        return given

    def step(self, actions):
        """One step of all games; where one ended in the step before, the next begins instead."""
        begin = self._ended
        buffers = self.batch.step(actions)
        if begin.any():
            self.batch.reset(indices=begin)
            buffers.reward[begin] = 0
            buffers.truncated[begin] = False
        self._ended = buffers.truncated.copy()
        given = (self._given(array) for array in (buffers.reward, buffers.terminated, buffers.truncated))
        return self._given(buffers.observation), *given, self._info()


def create(config: Mapping[str, Any]) -> gymnasium.Env | gymnasium.vector.VectorEnv:
    """What RLlib calls with `env_config`: a vector environment if it has put `num_envs` there, else a single one.

    RLlib seeds its environments if `config.debugging(seed=…)` says so; otherwise each draws a seed, so that no two play
    the same games, as they would with one seed for all.
    """
    if "seed" in config:
        raise ConfigError(f"env_config has seed {config['seed']!r}, one for all; use config.debugging(seed=…) instead")
    options = {"seed": secrets.randbits(31), **config}
    if "num_envs" in options:
        return Cage2NextStepVectorEnv(**{"threads": 1, **options})  # more runners are RLlib's way to more cores
    return Cage2Env(**options)


def register() -> None:
    """Makes `cavalcade/Cage2-v0` known to RLlib, here and in all processes of Ray; again does no harm.

    `env_config` has the options of `Cage2`. With `env_runners(gym_env_vectorize_mode="vector_entry_point")` each runner
    steps one batch of `num_envs_per_env_runner` games; with `"sync"` it steps as many single environments in turn.

    Observations are a Box of float32 and actions Discrete(145), as RLlib's default modules take them. Action masks are
    in the infos, where RLlib keeps them with the episodes and callbacks and connectors find them; its default modules
    do not look at infos, so they choose among all 145 actions. A masked action is allowed: it does nothing.
    """
    try:
        import ray.rllib  # noqa: F401
        from ray.tune.registry import register_env
    except ImportError as error:
        raise ConfigError(f"RLlib cannot be imported ({error}): pip install 'cavalcade[ray]'") from None
    register_env(CAGE2_ID, create)
