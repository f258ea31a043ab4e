"""CAGE-2 for RLlib (new API stack) under its Gymnasium name, as a single environment and as a vector environment.

RLlib's env runner assumes next-step autoreset and does not check the mode: on a same-step vector environment it would
take the first observation of a new episode for the last of the old one, and lose the first step of every episode but
the first. So it gets its own vector environment. Ray is imported when `register` is called.
"""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from cavalcade.core.errors import ConfigError
from cavalcade.envs import CAGE2_ID
from cavalcade.envs.cage2.gym import Cage2Env, Cage2VectorEnv


class Cage2NextStepVectorEnv(Cage2VectorEnv):
    """`Cage2VectorEnv` with next-step autoreset, as RLlib requires; it plays the same games.

    In the step that ends an episode, the observation is its last. The next step ignores the row's action: the next
    episode begins, the observation is its first and the reward 0.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs: int = 1, **options: Any):
        super().__init__(num_envs, autoreset=False, **options)
        self._ended = np.zeros(num_envs, np.bool_)

    def reset(self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None):
        """Begins the next episodes, or with a seed the first of that seed; `reset_mask` in the options selects rows."""
        given = super().reset(seed=seed, options=options)
        rows = (options or {}).get("reset_mask")
        self._ended[slice(None) if rows is None else rows] = False
        return given

    def step(self, actions):
        """Steps all games; where a game ended in the previous step, begins the next instead."""
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
    """Environment creator for RLlib: a vector environment if `env_config` has `num_envs`, else a single one.

    RLlib seeds its environments if `config.debugging(seed=…)` is set; otherwise each draws a random seed, so that no
    two play the same games.
    """
    if "seed" in config:
        raise ConfigError(f"env_config has seed {config['seed']!r}, one for all; use config.debugging(seed=…) instead")
    options = {"seed": secrets.randbits(31), **config}
    if "num_envs" in options:
        return Cage2NextStepVectorEnv(**{"threads": 1, **options})  # RLlib uses more cores by more env runners
    return Cage2Env(**options)


def register() -> None:
    """Registers `cavalcade/Cage2-v0` with RLlib, in this and all Ray processes; can be called again.

    `env_config` has the options of `Cage2`. With `env_runners(gym_env_vectorize_mode="vector_entry_point")` each runner
    steps one batch of `num_envs_per_env_runner` games; with `"sync"` it steps as many single environments in turn.

    Observations are a Box of float32 and actions Discrete(145), as RLlib's default modules expect. Action masks are in
    the infos, where callbacks and connectors find them with the episodes; RLlib's default modules do not read infos, so
    they choose among all 145 actions. A masked action is allowed: it has no effect.
    """
    try:
        import ray.rllib  # noqa: F401
        from ray.tune.registry import register_env
    except ImportError as error:
        raise ConfigError(f"RLlib cannot be imported ({error}): pip install 'cavalcade[ray]'") from None
    register_env(CAGE2_ID, create)
