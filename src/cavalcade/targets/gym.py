"""Any Gymnasium environment, hosted in this process, in workers or in Ray actors."""

import sys
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, ClassVar, Literal

from cavalcade.config.base import whole, within
from cavalcade.config.encoder import EncoderConfig
from cavalcade.config.hosting import HostConfig, WorkerConfig
from cavalcade.config.memory import MemoryConfig
from cavalcade.config.ppo import PPOConfig
from cavalcade.core.device import Device, learner_device
from cavalcade.core.errors import ConfigError
from cavalcade.ppo.distributed import Ranks
from cavalcade.ppo.mlp_policy import MlpPolicy
from cavalcade.ppo.recurrent_policy import RowRecurrentPolicy
from cavalcade.targets.base import LoadPolicy, Prepared, Progress, Saved, Scores, Setup, Target, no_progress
from cavalcade.targets.encoder import encoder_for
from cavalcade.targets.fragments import check_in_step, prepare_fragments
from cavalcade.targets.hosting import host_share
from cavalcade.targets.population import check_ranks, load_population, prepare_population
from cavalcade.targets.recurrent import has_memory, load_recurrent, prepare_recurrent
from cavalcade.targets.returns import EvaluateOptions, score_on_new_seeds
from cavalcade.targets.stepped import SteppedConfig
from cavalcade.targets.watch import WatchOptions, load_watched, watch
from cavalcade.vector.actions import ActionLayout
from cavalcade.vector.hosted import HELDOUT_SEEDS, Hosted
from cavalcade.vector.pool import SerialPool
from cavalcade.vector.rendered import RENDERED_ROWS, render_modes, why_not_rendered
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
    critic: Literal["observation", "true-state"] = "observation"
    """What the critic sees: the observation, or also what the environment's method true_state() returns; the policy
    never sees that."""
    device: Device = "auto"
    """Device of the updates: cuda, a GPU, which images and recurrent policies also act on; auto is the CPU."""
    checkpoint_every: int = whole(50, 0)
    """Updates between checkpoints; 0 writes one at the end only."""

    free_to_change: ClassVar[tuple[str, ...]] = (
        *SteppedConfig.free_to_change, "host.ray_address", "host.workers", "device",
    )  # fmt: skip
    changeable: ClassVar[tuple[str, ...]] = (
        *SteppedConfig.changeable, *within("host", HostConfig)
    )  # fmt: skip

    def __post_init__(self):
        super().__post_init__()
        if self.host.backend == "ray" and self.ppo.replay:
            raise ConfigError(f"replay is {self.ppo.replay} with backend ray; leave one of them out")
        if self.host.lag and self.ppo.replay:
            raise ConfigError(f"replay is {self.ppo.replay} with staleness {self.host.lag}; leave one of them out")
        if self.recurrence.memory != "none":
            self.recurrence.ppo(self.ppo)
            if self.host.backend == "ray" and not self.host.lag:
                raise ConfigError(f"memory is {self.recurrence.memory} with backend ray and staleness 0; use async")
        if self.critic != "observation" and (self.recurrence.memory != "none" or self.encoding.frame_stack > 1):
            raise ConfigError(f"critic is {self.critic} with memory or frame_stack; leave one of them out")
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
    PlayOptions = WatchOptions

    def run_name(self, config: GymConfig) -> str:
        return config.name

    def make_env(self, config: GymConfig, threads: int = 0, first_index: int = 0) -> Hosted:
        critic = config.critic != "observation"
        return _hosted(config, config.host, config.ppo.num_envs, config.seed, first_index, critic_state=critic)

    def prepare(self, config: GymConfig, setup: Setup) -> Prepared:
        """Trains on CPU threads; with staleness or backend ray, on fragments that workers play by themselves."""
        env = self.make_env(config, first_index=setup.first_index)
        try:
            return self._prepared(env, config, setup)
        except BaseException:
            env.close()
            raise

    def _prepared(self, env: Hosted, config: GymConfig, setup: Setup) -> Prepared:
        network, notes = encoder_for(config, env, setup)
        device = learner_device(config.device)
        if config.recurrence.memory != "none":
            found = prepare_recurrent(env, config, setup, network, device=device)
            return replace(found, notes=[*notes, *found.notes])
        if config.host.backend == "ray" or config.host.lag:
            found = prepare_fragments(env, config, setup)
        else:
            found = prepare_population(lambda *_: env, config, setup, network, device=device)
        return replace(found, notes=[*notes, *found.notes])

    def share(self, config: GymConfig, ranks: Ranks) -> GymConfig:
        """Splits the environments over the ranks."""
        if config.host.backend == "ray":
            raise ConfigError("backend is ray on several ranks; ranks host their environments themselves, use async")
        if config.device == "cuda":
            raise ConfigError("device is cuda on several ranks; ranks train on CPUs, leave out --device")
        check_in_step(config.host)
        check_ranks(config)
        mine = super().share(config, ranks)
        return replace(mine, host=host_share(config.host, mine.ppo.num_envs, ranks))

    def action_layout(self, config: GymConfig) -> ActionLayout:
        return gym_source(config.name, config.options).shapes.actions

    def policy(self, saved: Saved) -> MlpPolicy | RowRecurrentPolicy:
        load = load_recurrent if has_memory(saved) else load_population
        found: MlpPolicy | RowRecurrentPolicy = load(self.Config, saved)
        if found.head.integral:
            return found
        layout = cache(lambda: self.action_layout(found.config))  # makes an environment, once it is needed
        return replace(found, scaled=lambda means: layout().checked(means, len(means)))

    def heldout(self, policy: MlpPolicy | RowRecurrentPolicy) -> Scores:
        """Scores greedy actions on held-out seeds."""
        return self.evaluate(policy, EvaluateOptions())

    def evaluate(
        self, policy: MlpPolicy | RowRecurrentPolicy, options: Any, progress: Progress = no_progress
    ) -> Scores:
        config: GymConfig = policy.config
        count = min(config.ppo.num_envs, options.episodes)
        workers = 0 if config.host.backend == "ray" else min(config.host.workers, count)
        given = config.host  # of the training: an environment that needs patience there needs it here
        backend = "serial" if given.backend == "serial" else "shared"
        patience = {"worker_timeout": given.worker_timeout, "max_restarts": given.max_restarts}
        host = WorkerConfig(backend=backend, workers=workers, **patience)
        make = partial(_hosted, config, host, count)
        return score_on_new_seeds(policy, make, options, self.member(policy, options.member))

    def play(self, options: WatchOptions, load: LoadPolicy) -> None:
        """Shows an episode, rendered by the environment itself if it can be."""
        policy = load_watched(options, load, self)
        mode, note = _render_mode(policy.config, options.render)
        if note:
            print(note, file=sys.stderr)
        here = WorkerConfig(backend="serial")
        env = _hosted(policy.config, here, 1, HELDOUT_SEEDS + options.seed, render=mode)
        try:
            env.reset()
            pool = env.pool
            watch(policy, env, options, pool.rows.frame if mode and isinstance(pool, SerialPool) else None)
        finally:
            env.close()


def _hosted(
    config: GymConfig,
    host: WorkerConfig,
    num_envs: int,
    seed: int,
    first_index: int = 0,
    render: str = "",
    critic_state: bool = False,
) -> Hosted:
    """render: mode in which environments of this process are rendered, empty for not at all; others: `gym_source`."""
    shown = {"render_mode": render} if render else {}
    frames = config.encoding.frame_stack
    more: dict[str, Any] = {"infos": config.infos, "frames": frames, "critic_state": critic_state}
    source = gym_source(config.name, config.options | shown, **more)
    if render:
        source = replace(source, maker=RENDERED_ROWS)
    return Hosted(source, num_envs, host, seed=seed, first_index=first_index)


def _render_mode(config: GymConfig, wanted: str) -> tuple[str, str]:
    """The render mode that is used, empty for none, and a note if a mode that the environment has cannot be used."""
    if wanted == "none":
        return "", ""
    has, terminal, options = render_modes(config.name, config.options), sys.stdout.isatty(), config.options
    if wanted != "auto":
        if wanted not in has:
            raise ConfigError(f"render is {wanted}; {config.name} has {', '.join(has) or 'no render mode'}")
        if wanted == "rgb_array" and not terminal:
            raise ConfigError("render is rgb_array without a terminal to draw on; use ansi, human or none")
        if reason := why_not_rendered(config.name, options, wanted):
            raise ConfigError(f"render is {wanted}; {config.name} cannot be rendered: {reason}")
        return wanted, ""
    note = ""
    for mode in ("ansi", *(["rgb_array"] if terminal else [])):
        if mode in has:
            reason = why_not_rendered(config.name, options, mode)
            if not reason:
                return mode, ""
            note = f"not rendered: {reason}"
    return "", note


TARGET = GymTarget()
