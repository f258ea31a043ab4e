"""The memory that a training on MettaGrid needs, and whether this machine has it."""

from typing import NamedTuple

import torch

from cavalcade.config.recurrent import RecurrentPPOConfig, TokenPolicyConfig
from cavalcade.core.errors import ConfigError
from cavalcade.core.memory import memory

_ROOM = 0.8  # share of free memory that may be used
_STATES = {"none": 0, "gru": 1, "lstm": 2}  # tensors of a recurrent state
_SAVED = {"none": 4, "gru": 12, "lstm": 21}  # values per sample and unit of width that backpropagation keeps
_HOSTED = 500_000  # bytes per arena of the package …
_COMPILED = 5_000, 1_000  # … and of the compiled simulator: per arena, per agent


class Sizes(NamedTuple):
    """Sizes of a task that memory depends on."""

    agents: int  # per arena
    actions: int
    tokens: int  # per observation of the environment …
    kept: int  # … and of the network


class Needs(NamedTuple):
    """Bytes of a training."""

    experience: int  # of one update, on the device unless offloaded
    activations: int  # of one piece of a minibatch, forward and backward, on the device; an estimate
    arenas: int  # with the buffers between them and the learner

    @property
    def on_device(self) -> int:
        return self.experience + self.activations


def needs(
    ppo: RecurrentPPOConfig, policy: TokenPolicyConfig, sizes: Sizes, *, hosted: bool, fragments: int = 0
) -> Needs:
    """What a training needs besides the weights: experience is exact, the rest an estimate.

    fragments: of each worker, with staleness.
    """
    state = 4 * policy.width * _STATES[policy.core] / ppo.bptt_horizon
    fields = 3 * sizes.kept + sizes.actions + 4 + 4 * 4 + 1  # tokens, mask, action, four floats, begins
    results = 4 + 1 + 4  # reward, ended, bootstrap
    experience = int(ppo.batch_size * (fields + results + state))
    sample = 2 * 4 * policy.width * _SAVED[policy.core] + 8 * sizes.kept  # their gradients are as large
    activations = ppo.minibatch_size // ppo.grad_accum * sample
    agents = ppo.num_envs * sizes.agents
    arena, agent = (_HOSTED, 0) if hosted else _COMPILED
    arenas = agents * (2 * 3 * sizes.tokens + agent) + ppo.num_envs * arena
    arenas += fragments * ppo.batch_size * (2 * 3 * sizes.tokens + sizes.actions + int(state))
    return Needs(experience, activations, arenas)


def check_memory(found: Needs, *, on_gpu: bool, offload: bool) -> None:
    """Raises `ConfigError` if this machine has too little memory, and suggests settings."""
    here = found.arenas
    if on_gpu:
        there = torch.cuda.mem_get_info()[0]
        needed = found.activations + (0 if offload else found.experience)
        if needed > _ROOM * there:
            raise ConfigError(
                f"experience of {_gib(0 if offload else found.experience)} and activations of "
                f"{_gib(found.activations)} do not fit into {_gib(there)} of the GPU; use --offload, a smaller "
                "--batch-size or --minibatch-size, or --grad-accum"
            )
        here += found.experience if offload else 0
    else:
        here += found.on_device
    free = memory().available
    if here > _ROOM * free:
        raise ConfigError(
            f"buffers of {_gib(here)} do not fit into {_gib(free)} of free memory; lower --batch-size and --num-envs "
            f"to about {_ROOM * free / here:.0%}, or --max-tokens"
        )


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
