"""PufferLib beside ours: its workers on CartPole and on MettaGrid's forage arena, and PuffeRL, its PPO, on the latter.

    python benchmarks/peers/puffer.py [envs] [stepping] [training] [--seconds S] [--rounds N] [--workers W]

PufferLib must be installed beside Cavalcade: `pip install 'cavalcade[mettagrid]' pufferlib-core`. Prints the tables of
`cavalcade bench envs --parts cheap` and of `cavalcade bench mettagrid --parts stepping,training` with its rows. PuffeRL
is unmodified; where its compiled extension is missing, its advantages are computed by the same formula in torch.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 — its usual name
from torch import Tensor, nn

from cavalcade.cli.bench import envs, mettagrid
from cavalcade.envs.mettagrid.tasks import load_task
from cavalcade.policy.tokens import END
from cavalcade.tuning import machine

_FEATURES, _TAGS = 32, 16


# Workers.


def cartpole(num_envs: int, workers: int) -> envs.Contender:
    """PufferLib's processes around CartPole."""
    import pufferlib.emulation  # pyright: ignore[reportMissingImports]
    import pufferlib.vector  # pyright: ignore[reportMissingImports]

    def make(buf: Any = None, seed: int = 0) -> Any:
        return pufferlib.emulation.GymnasiumPufferEnv(gymnasium.make(envs.CHEAP), buf=buf)

    env = pufferlib.vector.make(
        make, backend=pufferlib.vector.Multiprocessing, num_envs=num_envs, num_workers=workers, batch_size=num_envs
    )
    env.reset(seed=0)
    return envs.peer("PufferLib Multiprocessing", env, num_envs)


def arenas(count: int, name: str, backend: str, **options: Any) -> envs.Contender:
    """PufferLib's vectorisers around the package's own environment."""
    import pufferlib.vector as pv  # pyright: ignore[reportMissingImports]
    from mettagrid.envs.mettagrid_puffer_env import MettaGridPufferEnv
    from mettagrid.simulator import Simulator

    config = load_task(mettagrid.TASK, {})

    def make(buf: Any = None, seed: int = 0) -> Any:
        return MettaGridPufferEnv(Simulator(), config, buf=buf, seed=seed)

    env = pv.make(make, backend=getattr(pv, backend), num_envs=count, **options)
    env.async_reset(0)
    size = env.agents_per_batch
    drawn = np.random.default_rng(0).integers(0, 5, (64, size)).astype(np.int32)
    steps = [0]

    def step() -> int:
        env.recv()
        steps[0] += 1
        env.send(drawn[steps[0] % 64])
        return size

    return envs.Contender(name, step, env.close)


def print_envs(seconds: float, rounds: int, workers: int) -> None:
    """CartPole in our backends, and in those of others."""
    found = {}
    for n in (64, 512):
        found[n] = envs.cheap(n, workers, seconds)
        found[n] |= _alone(cartpole(n, workers), seconds)
    envs.print_cheap(found, workers)


def print_stepping(seconds: float, rounds: int, workers: int) -> None:
    """MettaGrid in our backends, and in PufferLib's."""
    found = {}
    for n in (8, 64):
        half = {"num_workers": workers, "batch_size": n // 2, "overwork": True}
        found[n] = mettagrid.stepping(n, workers, seconds)
        found[n] |= _alone(arenas(n, "PufferLib Serial", "Serial"), seconds)
        found[n] |= _alone(arenas(n, "PufferLib Multiprocessing", "Multiprocessing", **half), seconds)
    mettagrid.print_stepping(found, workers)


def _alone(contender: envs.Contender, seconds: float) -> dict[str, float]:
    """Its workers never sleep: they are measured by themselves."""
    found = envs.rates([contender], seconds)
    contender.close()
    return found


# PuffeRL.

PEERS = {
    "PuffeRL, flat feed-forward 128": {"net": "flat", "rnn": False},
    "PuffeRL, embedding bag feed-forward 128": {"net": "bag", "rnn": False},
    "PuffeRL, flat LSTM-128": {"net": "flat", "rnn": True},
}


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


def train(task: dict[str, Any]) -> dict[str, float]:
    """Trains for a while: agent-steps per second, and reward per agent-step."""
    import pufferlib.models as models  # pyright: ignore[reportMissingImports]
    import pufferlib.vector as vector  # pyright: ignore[reportMissingImports]
    from mettagrid.envs.mettagrid_puffer_env import MettaGridPufferEnv
    from mettagrid.simulator import Simulator
    from pufferlib import pufferl  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(task["threads"])
    torch.manual_seed(0)
    if not getattr(pufferl, "_C_AVAILABLE", True):
        pufferl.compute_puff_advantage = advantages
    config = load_task(mettagrid.TASK, {})

    def make(buf: Any = None, seed: int = 0) -> Any:
        return MettaGridPufferEnv(Simulator(), config, buf=buf, seed=seed)

    count, horizon = task["arenas"], 64
    vec: Any = vector.make(make, backend=vector.Serial, num_envs=count)
    policy: Any = {"flat": Flat, "bag": Bag}[task["net"]](vec.driver_env, 128)
    if task["rnn"]:
        policy = models.LSTMWrapper(vec.driver_env, policy, 128, 128)
    batch = 24 * count * horizon
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


def peer(seconds: float, **task: Any) -> dict[str, float] | None:
    """PuffeRL in a process of its own; none where it fails, with the reason on stderr."""
    with tempfile.TemporaryDirectory() as folder:
        given = {"seconds": seconds, "folder": folder, "threads": 1, "arenas": 16, "minibatch": 8192, **task}
        command = [sys.executable, "-W", "ignore", __file__, "--train", json.dumps(given)]
        done = subprocess.run(command, capture_output=True, text=True)
    if lines := [line for line in done.stdout.splitlines() if line.startswith("{")]:
        return json.loads(lines[-1])
    print(f"PuffeRL failed: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
    return None


def trainings(seconds: float, rounds: int) -> Iterator[tuple[str, float]]:
    """Agent-steps per second of trainings, PuffeRL's and ours, in turns; each name comes once per round."""
    for _ in range(rounds):
        for name, options in PEERS.items():
            if found := peer(seconds, **options):
                yield name, found["rate"]
        yield from mettagrid.training(seconds, 1)


def print_training(seconds: float, rounds: int, workers: int) -> None:
    """Trainings, the best round of each, and ours beside the best of PuffeRL's of its kind."""
    best: dict[str, float] = {}
    for name, rate in trainings(seconds, rounds):
        best[name] = max(best.get(name, 0.0), rate)
    print(f"\n{'Trainings, forage, 24 agents, agent-steps/s':<52}{'':>14}{'to the best peer of its kind':>32}")
    for name, rate in best.items():
        kind = [other for peer, other in best.items() if peer in PEERS and ("LSTM" in peer) == ("LSTM" in name)]
        ratio = f"{rate / max(kind):.2f}×" if kind and name not in PEERS else ""
        print(f"  {name:<50}{rate:>14,.0f}{ratio:>32}", flush=True)


PARTS = {"envs": print_envs, "stepping": print_stepping, "training": print_training}


def main() -> None:
    if sys.argv[1:2] == ["--train"]:  # what `peer` starts
        print(json.dumps(train(json.loads(sys.argv[2]))), flush=True)
        os._exit(0)  # its threads would not end
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)}; all of them if none is named")
    parser.add_argument("--seconds", type=float, default=20.0, help="time for each row")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of training, the best of which counts")
    parser.add_argument("--workers", type=int, default=2, help="worker processes")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"unknown part {min(unknown)!r}; it must be one of {', '.join(PARTS)}")
    print(machine.line(), flush=True)
    for part in options.parts or PARTS:
        PARTS[part](options.seconds, options.rounds, options.workers)


if __name__ == "__main__":
    main()
