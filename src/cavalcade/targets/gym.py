"""Any Gymnasium environment, hosted in this process, in workers or in Ray actors."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch

from cavalcade.config.base import RunConfig, whole
from cavalcade.config.encoder import EncoderConfig
from cavalcade.config.hosting import HostConfig, WorkerConfig
from cavalcade.config.memory import MemoryConfig
from cavalcade.config.ppo import PPOConfig
from cavalcade.core.errors import ConfigError
from cavalcade.core.threads import use_threads
from cavalcade.ppo.distributed import Ranks
from cavalcade.ppo.mlp_policy import MlpPolicy
from cavalcade.ppo.recurrent_policy import RowRecurrentPolicy
from cavalcade.ppo.threads import choose_threads, choose_torch_threads
from cavalcade.targets.base import Prepared, Saved, Scores, Setup, Target
from cavalcade.targets.encoder import encoder_for
from cavalcade.targets.hosting import host_share
from cavalcade.targets.population import check_ranks, load_population, prepare_population
from cavalcade.targets.recurrent import has_memory, load_recurrent, prepare_recurrent
from cavalcade.targets.returns import EvaluateOptions, score_on_new_seeds
from cavalcade.targets.stepped import SteppedConfig
from cavalcade.vector.hosted import HELDOUT_SEEDS, Hosted
from cavalcade.vector.source import gym_source

GYM = "gym:"
GYM_PPO = PPOConfig(
    num_envs=64, rollout_steps=64, minibatches=4, learning_rate=1e-3, normalise_observations=True, entropy_coef=0.005
)


@dataclass(frozen=True, kw_only=True)
class GymConfig(SteppedConfig):
    """A training run on a Gymnasium environment."""

    ppo: PPOConfig = field(default_factory=lambda: GYM_PPO)
    encoding: EncoderConfig = field(default_factory=EncoderConfig)
    recurrence: MemoryConfig = field(default_factory=MemoryConfig)
    host: HostConfig = field(default_factory=HostConfig)
    target: str = "gym:CartPole-v1"
    """Training target: gym:NAME, or gym:PACKAGE:NAME to import a package first."""
    infos: tuple[str, ...] = ()
    """Keys of an episode's last info to record as episode statistics, e.g. is_success."""
    staleness: int = whole(2, 0)
    """With backend ray: maximum age of experience, in updates; 0 waits for all actors each time."""
    vtrace: bool = True
    """With backend ray: correct for stale experience with V-trace."""
    checkpoint_every: int = whole(50, 0)
    """Updates between checkpoints; 0 writes one at the end only."""

    free_to_change: ClassVar[tuple[str, ...]] = (*RunConfig.free_to_change, "host.ray_address", "host.workers")

    def __post_init__(self):
        super().__post_init__()
        if self.host.backend == "ray" and (self.ppo.replay or self.ppo.engine == "cpu"):
            raise ConfigError("backend is ray with replay or engine cpu; it needs the torch engine, leave them out")
        if self.host.backend != "ray" and self.staleness != type(self).staleness:
            raise ConfigError(f"staleness is {self.staleness} with backend {self.host.backend}; use --backend ray")
        if self.recurrence.memory != "none":
            self.recurrence.ppo(self.ppo)
            if self.host.backend == "ray":
                raise ConfigError(f"memory is {self.recurrence.memory} with backend ray; use another backend")
        if self.host.backend != "ray" and not self.vtrace:
            raise ConfigError(f"no-vtrace is given with backend {self.host.backend}; use --backend ray")
        if not self.target.startswith(GYM) or self.target == GYM:
            raise ConfigError(f"target is {self.target!r}; it must be gym: and the name of an environment")

    @property
    def name(self) -> str:
        """Name for gymnasium.make."""
        return self.target.removeprefix(GYM)

    @property
    def seeds(self) -> list[int]:
        return [self.seed]


class GymTarget(Target[GymConfig]):
    """Gymnasium environments."""

    name, prefix = GYM, True
    Config = GymConfig
    EvaluateOptions = EvaluateOptions

    def run_name(self, config: GymConfig) -> str:
        return config.name

    def make_env(self, config: GymConfig, threads: int = 0, first_index: int = 0) -> Hosted:
        return _hosted(config, config.host, config.ppo.num_envs, config.seed, first_index)

    def prepare(self, config: GymConfig, setup: Setup) -> Prepared:
        """Trains on CPU threads; with backend ray, on rollouts that actors collect asynchronously."""
        env = self.make_env(config, first_index=setup.first_index)
        try:
            return self._prepared(env, config, setup)
        except BaseException:
            env.close()
            raise

    def _prepared(self, env: Hosted, config: GymConfig, setup: Setup) -> Prepared:
        network, notes = encoder_for(config, env, setup)
        if config.recurrence.memory != "none":
            found = prepare_recurrent(env, config, setup, network)
            return replace(found, notes=[*notes, *found.notes])
        if config.host.backend != "ray":
            found = prepare_population(lambda *_: env, config, setup, network)
            return replace(found, notes=[*notes, *found.notes])
        from cavalcade.ppo.collectors.ray import RayCollectorEngine

        threads = setup.threads or choose_threads()
        use_threads(threads)
        engine = RayCollectorEngine(env, config.ppo, config.seeds, staleness=config.staleness, vtrace=config.vtrace)
        torch.set_num_threads(setup.threads or choose_torch_threads())
        actors = len(env.groups)
        notes.append(f"on Ray: {actors} actors with {config.ppo.num_envs // actors} environments each")
        return Prepared(engine, threads, notes)

    def share(self, config: GymConfig, ranks: Ranks) -> GymConfig:
        """Splits the environments over the ranks."""
        if config.host.backend == "ray":
            raise ConfigError("backend is ray on several ranks; ranks host their environments themselves, use async")
        check_ranks(config)
        mine = super().share(config, ranks)
        return replace(mine, host=host_share(config.host, mine.ppo.num_envs, ranks))

    def policy(self, saved: Saved) -> MlpPolicy | RowRecurrentPolicy:
        return (load_recurrent if has_memory(saved) else load_population)(self.Config, saved)

    def heldout(self, policy: MlpPolicy | RowRecurrentPolicy) -> Scores:
        """Scores greedy actions on held-out seeds."""
        return self.evaluate(policy, EvaluateOptions())

    def evaluate(self, policy: MlpPolicy | RowRecurrentPolicy, options: Any) -> Scores:
        config: GymConfig = policy.config
        count = min(config.ppo.num_envs, options.episodes)
        workers = 0 if config.host.backend == "ray" else min(config.host.workers, count)
        host = WorkerConfig(backend="serial" if config.host.backend == "serial" else "shared", workers=workers)
        seed = HELDOUT_SEEDS + options.seed
        return score_on_new_seeds(policy, lambda: _hosted(config, host, count, seed), options)


def _hosted(config: GymConfig, host: WorkerConfig, num_envs: int, seed: int, first_index: int = 0) -> Hosted:
    source = gym_source(config.name, config.options, infos=config.infos, frames=config.encoding.frame_stack)
    return Hosted(source, num_envs, host, seed=seed, first_index=first_index)


TARGET = GymTarget()
