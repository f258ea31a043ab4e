"""Settings of recurrent policies of targets whose policies are feed-forward by default."""

from dataclasses import dataclass, fields
from typing import Literal

from cavalcade.config.base import Settings, whole
from cavalcade.config.ppo import CommonPPOConfig, PPOConfig
from cavalcade.config.recurrent import RecurrentPPOConfig
from cavalcade.core.errors import ConfigError

_OTHERS = ("replay", "dedup", "engine")  # settings of engines for feed-forward policies


@dataclass(frozen=True)
class MemoryConfig(Settings):
    """What the policy remembers."""

    memory: Literal["none", "lstm", "gru"] = "none"
    """Recurrent core after the hidden layers, which actor and critic then share; as wide as the last of them."""
    bptt_horizon: int = whole(0, 0)
    """With memory: steps that gradients are propagated through time; 0 for whole rollouts."""

    def __post_init__(self):
        super().__post_init__()
        if self.bptt_horizon and self.memory == "none":
            raise ConfigError(f"bptt_horizon is {self.bptt_horizon} without memory; choose --memory lstm or gru")

    def ppo(self, ppo: PPOConfig) -> RecurrentPPOConfig:
        """Settings of PPO for the recurrent engine; raises `ConfigError` for those that it does not support."""
        for name in _OTHERS:
            if (value := getattr(ppo, name)) != getattr(PPOConfig, name) and (name, value) != ("engine", "torch"):
                raise ConfigError(f"{name} is {value} with memory {self.memory}, which does not use it; leave it out")
        horizon = self.bptt_horizon or ppo.rollout_steps
        if ppo.rollout_steps % horizon:
            raise ConfigError(f"rollout_steps {ppo.rollout_steps} do not divide into bptt_horizon {horizon}")
        segments = ppo.num_envs * (ppo.rollout_steps // horizon)
        if segments % ppo.minibatches:
            raise ConfigError(
                f"{ppo.num_envs} environments × {ppo.rollout_steps // horizon} segments of {horizon} steps do not "
                f"divide into {ppo.minibatches} minibatches"
            )
        common = {f.name: getattr(ppo, f.name) for f in fields(CommonPPOConfig)}
        batch = ppo.num_envs * ppo.rollout_steps
        return RecurrentPPOConfig(
            **common,
            num_envs=ppo.num_envs,
            batch_size=batch,
            minibatch_size=batch // ppo.minibatches,
            bptt_horizon=horizon,
        )
