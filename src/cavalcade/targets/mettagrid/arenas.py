"""Trainings on MettaGrid: the learner of a run, its policy from disk, scores on held-out maps, recorded episodes."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from numpy.typing import NDArray

from cavalcade.config import HostConfig
from cavalcade.config_mettagrid import MettagridTask, MettagridTrainConfig
from cavalcade.device import device_named
from cavalcade.envs.contract import Environment
from cavalcade.envs.mettagrid.layout import token_layout
from cavalcade.envs.mettagrid.source import mettagrid_source
from cavalcade.envs.mettagrid.tasks import load_task
from cavalcade.errors import ConfigError, RunError
from cavalcade.plain import from_dict
from cavalcade.policy.recurrent import TokenPolicy
from cavalcade.policy.tokens import TokenLayout
from cavalcade.ppo.bptt.learner import BpttLearner
from cavalcade.ppo.bptt.player import TokenPlayer
from cavalcade.ppo.extras.contrastive import Contrastive
from cavalcade.ppo.extras.kickstart import Kickstart
from cavalcade.ppo.extras.priority import Prioritised
from cavalcade.ppo.extras.statistics import Statistics
from cavalcade.ppo.population import load_into
from cavalcade.ppo.ranks import ALONE, Ranks
from cavalcade.runs.checkpoint import Checkpoint, load_checkpoint
from cavalcade.runs.directory import checkpoint_in
from cavalcade.vector.hosted import HELDOUT_SEEDS, Hosted, cores

_ROOM = 0.8  # share of free memory that buffers may take


@cache
def game_of(task: MettagridTask) -> Any:
    """The configuration of a task."""
    return load_task(task.task, task.options)


def layout_of(task: MettagridTask) -> TokenLayout:
    """What a task's tokens mean."""
    return token_layout(game_of(task), task.max_tokens)


def arenas(config: MettagridTrainConfig, first_index: int = 0) -> Hosted:
    """The arenas of a training, of which the first has an index."""
    source = mettagrid_source(config.arena.task, config.arena.options, stats=config.arena.stats)
    agents = config.ppo.num_envs * source.agents
    config.ppo.steps(agents)
    check_fits(config, source.agents)
    return Hosted(source, agents, config.host, seed=config.seed, first_index=first_index * source.agents)


def check_fits(config: MettagridTrainConfig, agents: int) -> None:
    """Refuses settings that this machine is too small for, with a proposal."""
    c, here = config.ppo, cores()
    if config.host.workers > here and config.host.backend != "serial":
        fewer = max(1, here)
        size = f"--workers {fewer} --num-envs {max(1, c.num_envs * fewer // config.host.workers)}"
        raise ConfigError(
            f"{config.host.workers} workers on {here} cores: each step would wait for the slowest; take {size} with a "
            "--batch-size and --minibatch-size to match, or --hardware laptop"
        )
    on_gpu = device_named(config.machine.device).type == "cuda" and not config.machine.offload
    state = 8 * config.policy.width / c.bptt_horizon
    experience = int(c.batch_size * (3 * config.arena.max_tokens + 32 + state))
    needed = 0 if on_gpu else experience
    needed += c.num_envs * agents * 2 * 3 * game_of(config.arena).game.obs.num_tokens + c.num_envs * 500_000
    if on_gpu:
        there = torch.cuda.mem_get_info()[0]
        if experience > _ROOM * there:
            raise ConfigError(
                f"experience of {experience / 2**30:.1f} GiB does not fit into {there / 2**30:.1f} GiB of the GPU; "
                "take --offload, or a smaller --batch-size"
            )
    free = psutil.virtual_memory().available
    if needed > _ROOM * free:
        share = _ROOM * free / needed
        raise ConfigError(
            f"buffers of {needed / 2**30:.1f} GiB do not fit into {free / 2**30:.1f} GiB of free memory; lower "
            f"--batch-size and --num-envs to about {share:.0%}, or --max-tokens"
        )


def learner_for(env: Environment, config: MettagridTrainConfig, ranks: Ranks = ALONE) -> BpttLearner:
    """The learner of a run, with the extras that were asked for."""
    x, c, device = config.extras, config.ppo, device_named(config.machine.device)
    learner = BpttLearner(env, layout_of(config.arena), config, device, ranks)
    if x.priority_alpha:
        segments = learner.experience.segments
        learner.sampler = Prioritised(config.seed, segments, x.priority_alpha, x.priority_beta)
    if x.teacher:
        teacher = load_token_policy(x.teacher)
        teacher.check_suits(config.arena, "teacher")
        policy = teacher.policy.to(device)
        learner.extras.append(
            Kickstart(
                policy, teacher.scale, x.kickstart_action, x.kickstart_value, x.kickstart_steps,
                c.batch_size * ranks.size,
            )
        )  # fmt: skip
    if x.contrastive_coef:
        learner.extras.append(
            Contrastive(x.contrastive_coef, x.contrastive_temperature, x.contrastive_logsumexp, config.seed)
        )
    if config.statistics_every:
        learner.extras.append(Statistics(config.statistics_every))
    return learner


@dataclass(frozen=True)
class SavedTokenPolicy:
    """The policy of a run as it was at a checkpoint."""

    path: Path
    config: MettagridTrainConfig
    update: int
    policy: TokenPolicy
    scale: float  # what rewards were multiplied by
    features: tuple[str, ...]  # that its observations had
    tags: int

    def player(self, *, greedy: bool = False, seed: int = 0) -> TokenPlayer:
        """The policy at play."""
        return TokenPlayer(self.policy, greedy=greedy, seed=seed)

    def check_suits(self, task: MettagridTask, what: str) -> None:
        """Refuses a task whose tokens mean something else, or that has other actions."""
        layout, actions, mine = layout_of(task), len(game_of(task).game.actions.actions()), self.policy.layout
        same = layout.features == self.features and layout.tags == self.tags and actions == self.policy.actions
        window = (layout.height, layout.width, layout.scales) == (mine.height, mine.width, mine.scales)
        if not same or not window:
            raise ConfigError(
                f"{what} {self.path} was trained on {self.config.arena.task}, whose observations or actions are others "
                f"than those of {task.task}"
            )


def load_token_policy(path: str | Path) -> SavedTokenPolicy:
    """The policy in a run's newest checkpoint, or in the checkpoint given."""
    return token_policy_from(load_checkpoint(checkpoint_in(Path(path))))


def token_policy_from(checkpoint: Checkpoint) -> SavedTokenPolicy:
    """The policy in a checkpoint."""
    info, network = checkpoint.info, checkpoint.info["network"]
    if info["config"].get("target") != MettagridTrainConfig.target:
        raise RunError(f"{checkpoint.path} was trained on {info['config'].get('target')}, not on mettagrid")
    config = from_dict(MettagridTrainConfig, info["config"])
    shape = {name: network[name] for name in ("encoder", "core", "width")}
    policy = TokenPolicy(layout_of(config.arena), network["actions"], **shape)
    saved = SavedTokenPolicy(
        checkpoint.path, config, int(info["update"]), policy, _reward_scale(config, checkpoint.learner),
        tuple(network["features"]), int(network["tags"]),
    )  # fmt: skip
    saved.check_suits(config.arena, "policy")
    load_into({name: p.detach() for name, p in policy.named_parameters()}, checkpoint.policy)
    return saved


def _reward_scale(config: MettagridTrainConfig, saved: dict[str, torch.Tensor]) -> float:
    """What a training multiplied rewards by in the end."""
    if not config.ppo.normalise_returns or not float(saved["return_count"]):
        return 1.0
    return float(1 / torch.sqrt(saved["return_square"] / saved["return_count"] + 1e-8))


def heldout_rewards(
    actor: Any, task: MettagridTask, count: int, *, seed: int, backend: Any = "serial", steps: int = 0
) -> NDArray:
    """Rewards per agent-step of whole episodes in arenas that no training has seen, (count,)."""
    source = mettagrid_source(task.task, task.options)
    steps = steps or game_of(task).game.max_steps or 1000
    env = Hosted(source, count * source.agents, HostConfig(backend=backend), seed=HELDOUT_SEEDS + seed)
    try:
        env.reset()
        total = np.zeros(env.spec.num_envs)
        for _ in range(steps):
            total += env.step(actor(env)).reward
    finally:
        env.close()
    return total.reshape(count, source.agents).mean(1) / steps


def random_actor(seed: int) -> Any:
    """Acts at random: the control."""
    rng = np.random.default_rng(seed)
    return lambda env: rng.integers(0, env.buffers.action_mask.shape[1], env.spec.num_envs).astype(np.int32)
