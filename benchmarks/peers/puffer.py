"""PuffeRL, PufferLib's PPO, on the forage arena: `python -m cavalcade.bench.puffer JSON` trains for a while.

Prints JSON: agent-steps per second and reward per agent-step. The trainer is PufferLib's own, unmodified; where its
compiled extension is missing, its advantages are computed by the same formula in torch.
"""

import json
import os
import sys
import time
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 — its usual name
from torch import Tensor, nn

from cavalcade.envs.mettagrid.tasks import load_task
from cavalcade.policy.tokens import END

_FEATURES, _TAGS = 32, 16


class Flat(nn.Module):
    """One layer over all bytes of an observation."""

    is_continuous = False

    def __init__(self, env: Any, width: int):
        super().__init__()
        self.hidden_size = width
        self.first = nn.Linear(int(np.prod(env.single_observation_space.shape)), width)
        self.actor, self.critic = nn.Linear(width, env.single_action_space.n), nn.Linear(width, 1)
        nn.init.orthogonal_(self.actor.weight, 0.01)

    def encode_observations(self, observation: Tensor, state: Any = None) -> Tensor:
        """As PufferLib calls it."""
        return F.gelu(self.first(observation.flatten(1).float() / 255))

    def decode_actions(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and values."""
        return self.actor(hidden), self.critic(hidden)

    def forward_eval(self, observation: Tensor, state: Any = None) -> tuple[Tensor, Tensor]:
        """Both."""
        return self.decode_actions(self.encode_observations(observation))

    forward = forward_eval


class Bag(Flat):
    """Sums of embeddings of (cell, feature) in plain torch, and a layer."""

    def __init__(self, env: Any, width: int):
        super().__init__(env, width)
        self.rows = 256 * (_FEATURES + _TAGS)
        self.table, self.first = nn.Parameter(torch.randn(self.rows + 1, width) * 0.05), nn.Linear(width, width)

    def encode_observations(self, observation: Tensor, state: Any = None) -> Tensor:
        """Over the tokens in use."""
        used = int((observation[..., 0] != END).sum(1).max())
        place, feature, value = observation[:, :used].long().unbind(-1)
        tag, pad = feature == 6, place == END
        kind = torch.where(tag, _FEATURES + value.clamp(max=_TAGS - 1), feature.clamp(max=_FEATURES - 1))
        row = torch.where(pad, self.rows, place * (_FEATURES + _TAGS) + kind)
        weight = torch.where(tag, 1.0, torch.where(feature == 1, value / 255, value / 10)).float().masked_fill(pad, 0.0)
        return F.relu(self.first(F.relu(F.embedding_bag(row, self.table, mode="sum", per_sample_weights=weight))))


def advantages(values, rewards, dones, ratio, out, gamma, decay, rho_clip, c_clip):
    """What PufferLib's extension computes."""
    last = torch.zeros(len(values))
    rho, c = ratio.clamp(max=rho_clip), ratio.clamp(max=c_clip)
    for t in range(values.shape[1] - 2, -1, -1):
        going_on = 1.0 - dones[:, t + 1]
        delta = rho[:, t] * (rewards[:, t + 1] + gamma * values[:, t + 1] * going_on - values[:, t])
        last = delta + gamma * decay * c[:, t] * last * going_on
        out[:, t] = last
    return out


def main(task: dict[str, Any]) -> dict[str, float]:
    """Trains."""
    import pufferlib.models as models  # pyright: ignore[reportMissingImports]
    import pufferlib.vector as vector  # pyright: ignore[reportMissingImports]
    from mettagrid.envs.mettagrid_puffer_env import MettaGridPufferEnv
    from mettagrid.simulator import Simulator
    from pufferlib import pufferl  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(task["threads"])
    torch.manual_seed(0)
    if not getattr(pufferl, "_C_AVAILABLE", True):
        pufferl.compute_puff_advantage = advantages
    config = load_task("forage", {})

    def make(buf: Any = None, seed: int = 0) -> Any:
        return MettaGridPufferEnv(Simulator(), config, buf=buf, seed=seed)

    arenas, horizon = task["arenas"], 64
    vec: Any = vector.make(make, backend=vector.Serial, num_envs=arenas)
    policy: Any = {"flat": Flat, "bag": Bag}[task["net"]](vec.driver_env, 128)
    if task["rnn"]:
        policy = models.LSTMWrapper(vec.driver_env, policy, 128, 128)
    batch = 24 * arenas * horizon
    settings = {
        "env": "mettagrid", "device": "cpu", "total_timesteps": 10**9, "minibatch_size": min(task["minibatch"], batch),
        "max_minibatch_size": 32768, "batch_size": "auto", "bptt_horizon": horizon, "data_dir": task["folder"],
        "checkpoint_interval": 10**9, "seed": 1, "use_rnn": task["rnn"], "torch_deterministic": True,
        "cpu_offload": False, "optimizer": "adam", "anneal_lr": False, "precision": "float32", "learning_rate": 9.2e-4,
        "gamma": 0.995, "gae_lambda": 0.9, "update_epochs": 1, "clip_coef": 0.2, "vf_coef": 2.0, "vf_clip_coef": 0.2,
        "max_grad_norm": 1.5, "ent_coef": 0.01, "adam_beta1": 0.95, "adam_beta2": 0.999, "adam_eps": 1e-8,
        "compile": False, "compile_mode": "default", "compile_fullgraph": False, "vtrace_rho_clip": 1.0,
        "vtrace_c_clip": 1.0, "prio_alpha": 0.8, "prio_beta0": 0.2,
    }  # fmt: skip
    pufferl.PuffeRL.print_dashboard = lambda *_, **__: None
    trainer = pufferl.PuffeRL(settings, vec, policy)
    trainer.evaluate()
    trainer.train()
    begun, before, rewards = time.perf_counter(), trainer.global_step, []
    while time.perf_counter() - begun < task["seconds"]:
        trainer.evaluate()
        rewards.append(float(trainer.rewards.mean()))
        trainer.train()
    seconds = time.perf_counter() - begun
    tail = rewards[-max(1, len(rewards) // 5) :]
    return {"rate": (trainer.global_step - before) / seconds, "reward": float(np.mean(tail))}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))), flush=True)
    os._exit(0)  # its threads would not end
