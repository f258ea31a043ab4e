"""User-defined environments that follow the batch contract: env:module:name, or a class passed to `cavalcade.train`.

`name` is a class or function. It is called with the number of environments and, as keywords, `seed` and the options of
the environment, and returns a `cavalcade.core.contract.Environment`. Packages can register a short name, env:NAME, with
an entry point of the group `cavalcade.environments`.
"""

from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from cavalcade.config.base import whole
from cavalcade.core.contract import Environment
from cavalcade.core.errors import ConfigError
from cavalcade.ppo.distributed import Ranks
from cavalcade.ppo.mlp_policy import MlpPolicy
from cavalcade.targets.base import LoadPolicy, Prepared, Progress, Saved, Scores, Setup, Target, no_progress
from cavalcade.targets.population import load_population, prepare_population
from cavalcade.targets.returns import EvaluateOptions, MakeEnv, best_on_new_seeds, score_on_new_seeds
from cavalcade.targets.stepped import SteppedConfig
from cavalcade.targets.watch import WatchOptions, load_watched, watch
from cavalcade.vector.hosted import HELDOUT_SEEDS

ENV = "env:"
GROUP = "cavalcade.environments"


@dataclass(frozen=True, kw_only=True)
class EnvConfig(SteppedConfig):
    """A training run on a user-defined environment."""

    target: str = "env:"
    """Training target: env:MODULE:NAME, or env:NAME of an installed package."""
    policies: int = whole(1, 1)
    """Policies trained side by side, each with its own seed."""

    def __post_init__(self):
        super().__post_init__()
        if not self.target.startswith(ENV) or self.target == ENV:
            raise ConfigError(f"target is {self.target!r}; it must be env: and module:name")

    @property
    def seeds(self) -> list[int]:
        return list(range(self.seed, self.seed + self.policies))


def _imported(path: str) -> Any:
    module, _, name = path.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError):
        raise ConfigError(f"environment {path!r} cannot be imported; it must be module:name") from None


def _make(config: EnvConfig, num_envs: int, seed: Any) -> Environment:
    name = config.target.removeprefix(ENV)
    points = entry_points(group=GROUP, name=name)
    make = next(iter(points)).load() if points else _imported(name)
    env = make(num_envs, seed=seed, **config.options)
    if not isinstance(env, Environment):
        raise ConfigError(f"{name} returns {type(env).__name__}; it must be a cavalcade.core.contract.Environment")
    return env


def _maker(config: EnvConfig, options: EvaluateOptions) -> MakeEnv:
    return lambda seed: _make(config, min(config.ppo.num_envs, options.episodes), [seed])


class EnvTarget(Target[EnvConfig]):
    """User-defined environments."""

    name, prefix = ENV, True
    Config = EnvConfig
    EvaluateOptions = EvaluateOptions
    PlayOptions = WatchOptions

    def run_name(self, config: EnvConfig) -> str:
        return config.target.removeprefix(ENV).rpartition(":")[2]

    def make_env(self, config: EnvConfig, threads: int = 0, first_index: int = 0) -> Environment:
        return _make(config, config.policies * config.ppo.num_envs, config.seeds)

    def prepare(self, config: EnvConfig, setup: Setup) -> Prepared:
        return prepare_population(self.make_env, config, setup)

    def share(self, config: EnvConfig, ranks: Ranks) -> EnvConfig:
        raise ConfigError("target is env: on several ranks; only cage2, mettagrid and gym: support ranks")

    def policy(self, saved: Saved) -> MlpPolicy:
        return load_population(self.Config, saved)

    def heldout(self, policy: MlpPolicy) -> Scores:
        """Scores greedy actions on held-out seeds."""
        return self.evaluate(policy, EvaluateOptions())

    def best_member(self, policy: MlpPolicy) -> int:
        return best_on_new_seeds(policy, _maker(policy.config, EvaluateOptions()))

    def evaluate(self, policy: MlpPolicy, options: Any, progress: Progress = no_progress) -> Scores:
        return score_on_new_seeds(policy, _maker(policy.config, options), options, self.member(policy, options.member))

    def play(self, options: WatchOptions, load: LoadPolicy) -> None:
        """Shows an episode as numbers: the batch contract has no rendering."""
        if options.render not in ("auto", "none"):
            raise ConfigError(f"render is {options.render}; environments of env: are not rendered, leave it out")
        policy = load_watched(options, load, self)
        env = _make(policy.config, 1, [HELDOUT_SEEDS + options.seed])
        try:
            env.reset()
            watch(policy, env, options)
        finally:
            env.close()


TARGET = EnvTarget()
