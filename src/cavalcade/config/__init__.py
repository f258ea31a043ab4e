"""Settings: frozen dataclasses, each field documented and bounded where it is declared."""

from cavalcade.config.hosting import HostConfig, WorkerConfig
from cavalcade.config.ppo import PPOConfig
from cavalcade.config.recurrent import RecurrentPPOConfig
from cavalcade.config.workflow import WorkflowConfig

__all__ = ["HostConfig", "PPOConfig", "RecurrentPPOConfig", "WorkerConfig", "WorkflowConfig"]
