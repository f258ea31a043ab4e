"""Settings: frozen dataclasses, every field documented where it is declared; sizes are checked at construction."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import yaml

from cavalcade.config_workflow import WorkflowConfig
from cavalcade.device import Device
from cavalcade.errors import ConfigError, at_least, one_of, seed_from
from cavalcade.plain import differences


@dataclass(frozen=True)
class PPOConfig:
    """How a policy learns (Schulman et al. 2017, with the options that came to be used with it)."""

    num_envs: int = 50
    """Environments per policy."""
    update_steps: int = 100
    """Steps of every environment between two updates."""
    epochs: int = 4
    """Passes over the samples of an update."""
    minibatches: int = 1
    """Minibatches per pass."""
    accumulate: int = 1
    """Pieces in which a minibatch's gradient is computed: the same mathematics, in less memory."""
    learning_rate: float = 2e-3
    """Step size of Adam."""
    schedule: Literal["linear", "constant"] = "linear"
    """Whether the learning rate falls to 0 over the run."""
    gamma: float = 0.99
    """Discount."""
    gae_lambda: float = 0.95
    """λ of generalised advantage estimation."""
    clip: float = 0.2
    """ε: how far the probability ratio counts."""
    value_coef: float = 0.5
    """Weight of the value loss."""
    value_clip: float = 0.0
    """How far a value may move in an update before its loss is clipped; 0 for no clipping. Needs plain rows."""
    entropy_coef: float = 0.01
    """Weight of the entropy bonus."""
    grad_clip: float = 0.5
    """Largest norm of a gradient; 0 for no clipping."""
    target_kl: float = 0.0
    """A policy whose update has moved it 1.5 times this far (KL divergence) stops it there; 0 for no limit."""
    normalise_advantages: bool = True
    """Advantages to mean 0 and deviation 1, per update."""
    normalise_returns: bool = True
    """Scale rewards by the running deviation of discounted returns."""
    normalise_observations: bool = False
    """Shift and scale observations by their running mean and deviation."""
    horizon_ends: bool = False
    """Treat running out of time as the end of the game, instead of bootstrapping from the last observation."""
    replay: int = 0
    """Recent rollouts to learn from once more, with importance weights. Needs the torch learner."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers, of actor and critic alike."""
    rows: Literal["auto", "distinct", "plain"] = "auto"
    """distinct: compute each different observation once (same mathematics); auto: wherever that can be."""
    learner: Literal["auto", "fused", "torch"] = "auto"
    """fused: compiled kernels on the CPU; torch: the plain reference; auto: fused wherever it can be."""

    def __post_init__(self):
        for name in ("num_envs", "update_steps", "epochs", "minibatches", "accumulate"):
            at_least(name, getattr(self, name), 1)
        at_least("replay", self.replay, 0)
        samples = self.num_envs * self.update_steps
        if samples % (self.minibatches * self.accumulate):
            raise ConfigError(
                f"{self.num_envs} environments × {self.update_steps} steps = {samples} samples do not divide into "
                f"{self.minibatches} minibatches × {self.accumulate} pieces"
            )
        for name, low, high in (
            ("learning_rate", 0, 10), ("gamma", 0, 1), ("gae_lambda", 0, 1), ("clip", 0, 10), ("value_coef", 0, 1e6),
            ("value_clip", 0, 1e6), ("entropy_coef", 0, 1e6), ("grad_clip", 0, 1e6), ("target_kl", 0, 1e6),
        ):  # fmt: skip
            if not low <= getattr(self, name) <= high:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be from {low} to {high:g}")


@dataclass(frozen=True)
class Cage2Task:
    """Which game of CAGE-2 is played."""

    red: Literal["bline", "meander", "sleep", "mixed"] = "bline"
    """Who attacks; mixed draws one of the three for each episode."""
    revision: Literal["head", "leaderboard-2022"] = "head"
    """The game as the repository stands, or as it was when the 2022 leaderboard was made."""
    variant: Literal["challenge", "workflow"] = "challenge"
    """Blue's table through the official wrapper or through that of the workflow-search scripts."""
    green: bool = False
    """Let Green scan ports."""
    horizon: int = 100
    """Steps per episode."""
    extras: tuple[Literal["scans", "decoys", "action", "time"], ...] = ()
    """What the policy sees besides the 52 values of the table."""

    def __post_init__(self):
        at_least("horizon", self.horizon, 1)

    @property
    def shown(self) -> dict[str, Any]:
        """Options of the game that decide what a policy sees."""
        options = {"revision": self.revision, "variant": self.variant, "green": self.green, "extras": self.extras}
        return options | {"dtype": "float32" if "time" in self.extras else "uint8"}


@dataclass(frozen=True)
class HostConfig:
    """How single environments are hosted."""

    backend: Literal["serial", "pipe", "shared", "async", "ray"] = "async"
    """serial: in this process; pipe: workers with pickled messages; shared: workers that write into shared memory;
    async: the same in groups, so that some step while the learner thinks about others; ray: actors on many machines,
    which with gym: play whole rollouts by themselves."""
    workers: int = 0
    """Worker processes; 0 for one per core. With backend ray: actors; 0 for one per CPU of the cluster but one."""
    ray_address: str = ""
    """With Ray: of a cluster, e.g. auto or 10.0.0.1:6379; without one, Ray runs on this machine alone and listens on
    loopback only."""
    staleness: int = 2
    """With backend ray: updates that experience may be old when it is learnt from; 0 waits for all actors each time."""
    correction: bool = True
    """With backend ray: correct for old experience, by V-trace."""
    async_factor: int = 2
    """With backend async: groups of environments."""
    spin: float = 200.0
    """Microseconds that learner and workers look for work before they sleep, as long as it comes that soon."""
    worker_timeout: float = 60.0
    """Seconds after which a worker counts as hanging and is replaced."""
    max_restarts: int = 10
    """Workers replaced after which the run stops, with a checkpoint."""
    true_state_every: int = 0
    """Steps between looks at the true state, for environments with a method true_state(); 0 for never."""
    infos: tuple[str, ...] = ()
    """Infos of the last step of an episode that are kept as figures of it, e.g. is_success."""

    def __post_init__(self):
        for name, least in (
            ("workers", 0),
            ("async_factor", 1),
            ("max_restarts", 0),
            ("true_state_every", 0),
            ("staleness", 0),
        ):
            at_least(name, getattr(self, name), least)
        if not 0 <= self.spin <= 1e6:
            raise ConfigError(f"spin is {self.spin}; it must be from 0 to 1e6 microseconds")
        if not self.worker_timeout > 0:
            raise ConfigError(f"worker_timeout is {self.worker_timeout}; it must be above 0")


@dataclass(frozen=True)
class TrainConfig:
    """A training run."""

    task: Cage2Task = field(default_factory=Cage2Task)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    workflow: WorkflowConfig = field(default_factory=WorkflowConfig)
    target: str = "cage2"
    """What is trained on."""
    order: str = ""
    """Order of host types in which the policies repair, by name or with > between types, e.g. critical_first; none if
    not given."""
    episodes: int = 100_000
    """Episodes that each policy plays."""
    seed: int = 0
    """Seed of the first policy; the others follow on."""
    policies: int = 1
    """Policies trained side by side, each with a seed of its own."""
    device: Device = "auto"
    """Where games and learning run; auto: on the GPU if there is one and it has what is asked for."""
    precision: Literal["fp32", "tf32", "bf16"] = "tf32"
    """On a GPU: of products of matrices; weights stay in single precision."""
    checkpoint_every: int = 500
    """Updates between checkpoints; 0 for one at the end only."""
    keep: int = 3
    """Checkpoints kept."""

    free_to_change: ClassVar[tuple[str, ...]] = ("checkpoint_every", "keep", "device", "precision")

    def __post_init__(self):
        one_of("target", self.target, (type(self).target,))
        seed_from("seed", self.seed)
        for name, least in (("episodes", 1), ("policies", 1), ("checkpoint_every", 0), ("keep", 1)):
            at_least(name, getattr(self, name), least)
        if not self.order and (given := differences(WorkflowConfig(), self.workflow)):
            raise ConfigError(f"{given[0].split()[0]} is given without an order; name one with --order")
        if not self.updates:
            raise ConfigError(
                f"{self.episodes} episodes of {self.task.horizon} steps are fewer than one update of "
                f"{self.ppo.num_envs} environments × {self.ppo.update_steps} steps; give more episodes"
            )

    @property
    def updates(self) -> int:
        """Updates that fit into the budget of episodes; it is never exceeded."""
        return self.episodes * self.task.horizon // (self.ppo.num_envs * self.ppo.update_steps)

    @property
    def seeds(self) -> list[int]:
        """Seeds of the policies."""
        return list(range(self.seed, self.seed + self.policies))


@dataclass(frozen=True)
class CyborgTrainConfig(TrainConfig):
    """A training run in the original CybORG."""

    target: str = "cyborg"
    """What is trained on."""
    cyborg: str = ""
    """A clone of cage-challenge/cage-challenge-2."""
    cyborg_python: str = ""
    """An interpreter with CybORG's old dependencies; this one if not given."""
    host: HostConfig = field(default_factory=HostConfig)

    def __post_init__(self):
        super().__post_init__()
        if self.device == "cuda":
            raise ConfigError("device is cuda with target cyborg; CybORG and its learner run on the CPU")
        if not self.cyborg:
            raise ConfigError("target is cyborg without --cyborg; name your clone of cage-challenge/cage-challenge-2")
        _check_cyborg_host(self.host)


def _check_cyborg_host(host: HostConfig) -> None:
    if host.backend == "ray":
        raise ConfigError("backend is ray with target cyborg; the original is on this machine, take async")
    if host.infos:
        raise ConfigError(f"infos is {', '.join(host.infos)}; CybORG has none that say anything of an episode")


@dataclass(frozen=True)
class GymTrainConfig:
    """A training run on a Gymnasium environment."""

    ppo: PPOConfig = field(default_factory=lambda: GYM_PPO)
    host: HostConfig = field(default_factory=HostConfig)
    target: str = "gym:CartPole-v1"
    """What is trained on: gym: and the name of an environment, or gym:package:name to import a package first."""
    env_options: tuple[str, ...] = ()
    """Options of the environment, each as name=value, e.g. is_slippery=false."""
    steps: int = 500_000
    """Environment steps, never exceeded."""
    seed: int = 0
    """Seed of the policy and of the environments."""
    checkpoint_every: int = 50
    """Updates between checkpoints; 0 for one at the end only."""
    keep: int = 3
    """Checkpoints kept."""

    free_to_change: ClassVar[tuple[str, ...]] = ("checkpoint_every", "keep", "host.ray_address", "host.workers")

    def __post_init__(self):
        for name, least in (("steps", 1), ("checkpoint_every", 0), ("keep", 1)):
            at_least(name, getattr(self, name), least)
        seed_from("seed", self.seed)
        if self.host.ray_address and self.host.backend != "ray":
            raise ConfigError(
                f"ray_address is {self.host.ray_address} with backend {self.host.backend}; take --backend ray"
            )
        if self.host.backend == "ray" and (self.ppo.replay or self.ppo.learner == "fused"):
            raise ConfigError("backend is ray with replay or learner fused; it learns with plain torch, leave them out")
        if not self.target.startswith(GYM) or self.target == GYM:
            raise ConfigError(f"target is {self.target!r}; it must be gym: and the name of an environment")
        if wrong := [text for text in self.env_options if not text.partition("=")[0] or "=" not in text]:
            raise ConfigError(f"env_options has {wrong[0]!r}; each must be name=value")
        if not self.updates:
            raise ConfigError(
                f"{self.steps} steps are fewer than one update of {self.ppo.num_envs} environments × "
                f"{self.ppo.update_steps} steps; give more"
            )

    @property
    def name(self) -> str:
        """The environment's name for gymnasium.make."""
        return self.target.removeprefix(GYM)

    @property
    def options(self) -> dict[str, Any]:
        """The environment's options; values are read as YAML, so that true, 3 and [1, 2] are what they look like."""
        pairs = (text.partition("=") for text in self.env_options)
        return {name: yaml.safe_load(value) for name, _, value in pairs}

    @property
    def updates(self) -> int:
        """Updates that fit into the budget of steps."""
        return self.steps // (self.ppo.num_envs * self.ppo.update_steps)

    @property
    def seeds(self) -> list[int]:
        """The policy's seed."""
        return [self.seed]


GYM = "gym:"  # begins the names of Gymnasium environments
GYM_PPO = PPOConfig(
    num_envs=64, update_steps=64, minibatches=4, learning_rate=1e-3, normalise_observations=True, entropy_coef=0.005
)
if TYPE_CHECKING:
    from cavalcade.config_mettagrid import MettagridTrainConfig

AnyTrainConfig: TypeAlias = "TrainConfig | GymTrainConfig | MettagridTrainConfig"


def training_kind(target: str) -> "type[TrainConfig] | type[GymTrainConfig] | type[MettagridTrainConfig]":
    """The kind of settings that a training on a target has."""
    from cavalcade.config_mettagrid import MettagridTrainConfig

    if target.startswith(GYM):
        return GymTrainConfig
    kinds = {kind.target: kind for kind in (TrainConfig, CyborgTrainConfig, MettagridTrainConfig)}
    if target not in kinds:
        raise ConfigError(f"target is {target!r}; it must be {', '.join(kinds)} or gym: and the name of an environment")
    return kinds[target]


@dataclass(frozen=True)
class RayConfig:
    """How a search is spread with --engine ray."""

    task_cpus: int = 1
    """CPUs of a task."""
    task_gpus: float = 0.0
    """GPUs of a task, or a share of one."""
    task_orders: int = 1
    """Orders that a task trains as one population; a GPU has room for all of them."""
    task_updates: int = 50
    """Updates after which a task hands back where its orders stand; what is lost with a node is repeated from there."""
    max_losses: int = 5
    """Losses of the same task in a row after which the search gives up."""

    def __post_init__(self):
        for name, least in (("task_cpus", 1), ("task_orders", 1), ("task_updates", 1), ("max_losses", 0)):
            at_least(name, getattr(self, name), least)
        gpus = self.task_gpus
        if not (gpus == 0 or 0.01 <= gpus <= 1 or (gpus <= 64 and gpus == int(gpus))):
            raise ConfigError(
                f"task_gpus is {gpus}; it must be 0, a share of one from 0.01 on, or a whole number up to 64"
            )


@dataclass(frozen=True)
class SearchConfig:
    """A search for the best order."""

    task: Cage2Task = field(default_factory=Cage2Task)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    workflow: WorkflowConfig = field(default_factory=WorkflowConfig)
    target: str = "cage2"
    """What is searched on."""
    searcher: Literal["gp-ucb", "thompson", "exhaustive", "halving", "random", "fixed"] = "gp-ucb"
    """Who chooses the next order."""
    orders: tuple[str, ...] = ()
    """With searcher fixed: orders, by name or with > between subtasks, e.g. critical_first."""
    n_workflows: int = 40
    """Trainings in the search; exhaustive and fixed take every order this side of the budget."""
    rounds: int = 1
    """With searcher exhaustive or fixed: trainings of each order; with evaluate-only: universal policies."""
    total_episodes: int = 200_000
    """Episodes of full length that the search may use, counted by steps and never exceeded; what confirms its result
    comes on top."""
    max_episodes: int = 100
    """Episodes of each environment for an order."""
    together: int = 0
    """Orders that train side by side (q); 0 for what suits the machine."""
    ucb_beta: float = 2.0
    """Weight of the deviation in the upper confidence bound; 0 for the schedule of GP-UCB."""
    kernel: Literal["mallows", "precedences"] = "mallows"
    """Of the Gaussian process."""
    warm_start: Literal["none", "nearest", "last", "universal"] = "none"
    """What an order's policy starts from: nothing, each time on a fresh seed; or its own of an earlier visit, and at
    first that of the nearest or the last trained order, or of a universal policy trained on random orders."""
    evaluate_only: bool = False
    """With warm start universal: train universal policies (--rounds of them) with the whole budget and score every
    order from each, without training any order by itself."""
    gate: bool = False
    """Tell the Gaussian process only of policies that reached the compliance threshold."""
    compliance_threshold: float = 0.0
    """Compliance at which an order's training stops; 0 for never."""
    patience: int = 0
    """Updates without a gain of 0.01 in compliance after which it stops; 0 for never."""
    score: Literal["heldout", "tail"] = "heldout"
    """What counts: greedy play on fresh games, or the last 3 training episodes of every environment."""
    cyborg: str = ""
    """With target cyborg: a clone of cage-challenge/cage-challenge-2."""
    cyborg_python: str = ""
    """With target cyborg: an interpreter with CybORG's old dependencies; this one if not given."""
    host: HostConfig = field(default_factory=HostConfig)
    score_episodes: int = 200
    """Fresh games per score."""
    confirm: int = 10
    """Trainings from scratch, on fresh seeds, of the best order and of rivals, after the search; 0 for none."""
    confirm_batches: int = 3
    """Times that many at most: while the answer is open, another batch is trained. Each look at the data has an equal
    share of the level of the test."""
    rivals: int = 5
    """Orders that the best is confirmed against, from the second best to the worst."""
    margin: float = 1.0
    """Points of score that matter: yes takes a difference beyond it, no one within."""
    controls: bool = True
    """Also train with another order in each episode, the same without seeing which, and plain PPO without orders."""
    device: Device = "auto"
    """Where games and learning run; auto: on the GPU if there is one and it has what is asked for."""
    precision: Literal["fp32", "tf32", "bf16"] = "tf32"
    """On a GPU: of products of matrices; weights stay in single precision."""
    engine: Literal["local", "ray"] = "local"
    """Who trains the orders: this process, as one population; or tasks of Ray, on one machine or many."""
    ray: RayConfig = field(default_factory=RayConfig)
    shard: str = ""
    """With searcher exhaustive or fixed: i/n trains the i-th of n shares of the orders and nothing else; `cavalcade
    search merge` joins them."""
    seed: int = 0
    """Seed of the search."""
    checkpoint_every: int = 100
    """Updates between checkpoints."""
    keep: int = 2
    """Checkpoints kept."""

    free_to_change: ClassVar[tuple[str, ...]] = (
        "checkpoint_every",
        "keep",
        "device",
        "precision",
        "ray",
        "host.ray_address",
    )

    def __post_init__(self):
        self.share  # noqa: B018 — refuses what is no share
        if self.engine == "ray":
            self._check_ray()
        elif given := differences(RayConfig(), self.ray):
            raise ConfigError(f"{given[0].split()[0]} is given with engine local; it needs --engine ray")
        for name, least in (
            ("n_workflows", 1), ("rounds", 1), ("total_episodes", 1), ("max_episodes", 1), ("together", 0),
            ("patience", 0), ("score_episodes", 2), ("confirm", 0), ("confirm_batches", 1), ("rivals", 0),
            ("checkpoint_every", 1), ("keep", 1),
        ):  # fmt: skip
            at_least(name, getattr(self, name), least)
        seed_from("seed", self.seed, 10**6)  # leaves room for the seeds of its members
        one_of("target", self.target, ("cage2", "checkpoints", "cyborg"))
        if (self.target == "cyborg") != bool(self.cyborg):
            raise ConfigError(
                f"target is {self.target} and cyborg is {self.cyborg!r}; target cyborg, and no other, needs a clone of "
                "cage-challenge/cage-challenge-2"
            )
        free = HostConfig(ray_address=self.host.ray_address)
        if self.host.ray_address and self.engine != "ray":
            raise ConfigError(f"ray_address is {self.host.ray_address} with engine local; it needs --engine ray")
        if self.target != "cyborg" and (given := differences(free, self.host)):
            raise ConfigError(f"{given[0].split()[0]} is given with {self.target}; only cyborg is hosted in workers")
        _check_cyborg_host(self.host)
        if self.device == "cuda" and self.target != "cage2":
            raise ConfigError(f"device is cuda with target {self.target}; only cage2 runs on a GPU")
        if self.target == "checkpoints":
            own = WorkflowConfig().open_until
            given = differences(Cage2Task(horizon=self.task.horizon), self.task)
            given += ["open_until"] if self.workflow.open_until != own else []
            if given:
                raise ConfigError(f"{given[0].split()[0]} is given with {self.target}; only games of CAGE-2 have it")
        if not 0 <= self.compliance_threshold <= 1:
            raise ConfigError(f"compliance_threshold is {self.compliance_threshold}; it must be from 0 to 1")
        if not 0 <= self.ucb_beta <= 100:
            raise ConfigError(f"ucb_beta is {self.ucb_beta}; it must be from 0 to 100")
        if not 0 < self.margin <= 1e6:
            raise ConfigError(f"margin is {self.margin}; it must be above 0 and at most 1e6")
        if self.evaluate_only and (self.warm_start != "universal" or self.score == "tail"):
            raise ConfigError(
                f"evaluate_only with warm start {self.warm_start} and score {self.score}; it needs --warm-start "
                "universal and --score heldout"
            )
        if self.gate and not self.compliance_threshold:
            raise ConfigError("gate without compliance_threshold; say which compliance lets an order through")
        if self.orders and self.searcher != "fixed":
            raise ConfigError(f"orders are given with searcher {self.searcher}; they need --searcher fixed")
        if self.searcher == "fixed" and not self.orders:
            raise ConfigError("searcher is fixed without orders; name one or more with --orders")
        if self.ppo.replay:
            raise ConfigError(f"replay is {self.ppo.replay}; members of a search come and go, they have none")
        if self.score == "tail" and self.episodes_per_order < 2:
            raise ConfigError("score is tail with one episode per order; it takes two, raise --max-episodes")
        trainings = 2 if self.warm_start == "universal" and not self.evaluate_only else 1
        if self.total_episodes < trainings * self.episodes_per_order:
            first = " after the universal policy" if trainings == 2 else ""
            raise ConfigError(
                f"total_episodes is {self.total_episodes}; one order{first} takes "
                f"{trainings * self.episodes_per_order} ({self.ppo.num_envs} environments × {self.max_episodes}), "
                f"give more or lower --max-episodes"
            )
        if self.updates_per_order < 1:
            raise ConfigError(
                f"{self.max_episodes} episodes of {self.task.horizon} steps are fewer than one update of "
                f"{self.ppo.update_steps} steps; raise --max-episodes"
            )

    def _check_ray(self) -> None:
        if self.target == "cyborg":
            raise ConfigError("engine is ray with target cyborg; the original is on this machine, take --engine local")
        if self.ray.task_gpus and self.target != "cage2":
            raise ConfigError(f"task_gpus is {self.ray.task_gpus:g} with target {self.target}; only cage2 runs on GPUs")
        if (self.device == "cuda") != bool(self.ray.task_gpus) and self.device != "auto":
            raise ConfigError(
                f"device is {self.device} and task_gpus {self.ray.task_gpus:g}; tasks of Ray use GPUs if --task-gpus "
                "says so, leave out --device"
            )

    @property
    def share(self) -> tuple[int, int]:
        """Which of how many shares of the orders is trained; the first of one is all of them."""
        if not self.shard:
            return 0, 1
        i, sign, n = self.shard.partition("/")
        if not (sign and i.isdecimal() and n.isdecimal() and 1 <= int(i) <= int(n)):
            raise ConfigError(f"shard is {self.shard!r}; it must be i/n with i from 1 to n, e.g. 2/4")
        if self.searcher not in ("exhaustive", "fixed") or self.warm_start != "none":
            raise ConfigError(
                f"shard is {self.shard} with searcher {self.searcher} and warm start {self.warm_start}; only "
                "exhaustive and fixed, from scratch, can be shared out: others choose by what was found"
            )
        return int(i) - 1, int(n)

    @property
    def episodes_per_order(self) -> int:
        """Episodes of a training."""
        return self.ppo.num_envs * self.max_episodes

    @property
    def updates_per_order(self) -> int:
        """Updates of a training."""
        return self.max_episodes * self.task.horizon // self.ppo.update_steps

    @property
    def universal_updates(self) -> int:
        """Updates of a universal policy: a training's, or with evaluate-only its share of the whole budget."""
        if not self.evaluate_only:
            return self.updates_per_order
        return self.total_episodes * self.task.horizon // (self.rounds * self.steps_per_update)

    @property
    def steps_per_update(self) -> int:
        """Environment steps of one member in an update."""
        return self.ppo.num_envs * self.ppo.update_steps

    @property
    def steps_per_order(self) -> int:
        """Environment steps of a training."""
        return self.updates_per_order * self.steps_per_update
