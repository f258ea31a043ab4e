"""CAGE-2 on a GPU: choice of the device, and the CUDA engine."""

import torch

from cavalcade.config.ppo import PPOConfig
from cavalcade.core.contract import Environment
from cavalcade.core.device import Device, device_named
from cavalcade.core.errors import ConfigError, TrainingError
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.device_games import DeviceCage2
from cavalcade.envs.cage2.red_choice import check_gpu
from cavalcade.envs.cage2.task import Cage2Task
from cavalcade.ppo.engines.cuda.engine import TOO_LARGE, CudaEngine, check


def cuda_device(name: Device, ppo: PPOConfig, task: Cage2Task) -> tuple[torch.device, list[str]]:
    """Device of a training; falls back to the CPU and notes why, unless a GPU was requested."""
    device = device_named(name)
    if device.type == "cuda":
        try:
            from cavalcade.core.cuda import check_device

            check_device()
            check(ppo, task.horizon)
            check_gpu(task.red)
            if "belief" in task.extras:
                raise ConfigError("extras has belief, which no GPU computes; leave it out or take --device cpu")
        except (ConfigError, ImportError) as error:
            if name == "cuda":
                raise
            return torch.device("cpu"), [f"on the CPU: {error}"]
    return device, []


def cuda_engine(env: Environment, ppo: PPOConfig, seeds: list[int], device: torch.device, precision: str) -> CudaEngine:
    """Makes the CUDA engine of a batch of games; raises `TrainingError` if it does not fit into GPU memory."""
    assert isinstance(env, Cage2)
    try:
        return CudaEngine(env, DeviceCage2(env, device), ppo, seeds, precision=precision)
    except torch.OutOfMemoryError:
        raise TrainingError(TOO_LARGE) from None
