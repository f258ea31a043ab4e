"""Whether games and learning can stay on a GPU, and the learner that does it."""

from collections.abc import Sequence

import torch

from cavalcade.config import PPOConfig
from cavalcade.cuda import check_device
from cavalcade.device import Device, device_named
from cavalcade.envs.cage2.env import Cage2
from cavalcade.envs.cage2.resident import ResidentCage2
from cavalcade.envs.contract import Environment
from cavalcade.errors import ConfigError, TrainingError
from cavalcade.ppo.resident.learner import TOO_LARGE, ResidentLearner, check


def resident_device(name: Device, config: PPOConfig, horizon: int) -> tuple[torch.device, list[str]]:
    """Where a training on CAGE-2 runs, and what there is to say about it."""
    device = device_named(name)
    if device.type == "cuda":
        try:
            check_device()
            check(config, horizon)
        except (ConfigError, ImportError) as error:
            if name == "cuda":
                raise
            return torch.device("cpu"), [f"on the CPU: {error}"]
    return device, []


def resident_learner(
    env: Environment, config: PPOConfig, seeds: Sequence[int], device: torch.device, precision: str
) -> ResidentLearner:
    """The learner of games that have begun."""
    assert isinstance(env, Cage2)
    try:
        return ResidentLearner(env, ResidentCage2(env, device), config, seeds, precision=precision)
    except torch.OutOfMemoryError:
        raise TrainingError(TOO_LARGE) from None
