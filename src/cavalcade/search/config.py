"""Settings of searches."""

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from cavalcade.config.base import RunConfig, Settings, number, whole, within
from cavalcade.config.hosting import WorkerConfig
from cavalcade.config.io import differences
from cavalcade.config.ppo import PPOConfig
from cavalcade.config.workflow import WorkflowConfig
from cavalcade.core.device import Device
from cavalcade.core.errors import ConfigError, one_of, seed_from
from cavalcade.envs.cage2.task import Cage2Task, Original


@dataclass(frozen=True)
class RayConfig(Settings):
    """Ray tasks of a search, with --executor ray."""

    ray_address: str = ""
    """Address of a Ray cluster, e.g. auto or 10.0.0.1:6379.
    Empty starts Ray on this machine, listening on loopback only."""
    task_cpus: int = whole(1, 1)
    """CPUs per task."""
    task_gpus: float = 0.0
    """GPUs per task; fractions share a GPU."""
    task_orders: int = whole(1, 1)
    """Orders that a task trains as one population; a GPU has room for all orders."""
    task_updates: int = whole(50, 1)
    """Updates per task; after a node is lost, at most these are repeated."""
    max_losses: int = whole(5, 0)
    """Consecutive losses of one task after which the search stops."""

    def __post_init__(self):
        super().__post_init__()
        gpus = self.task_gpus
        if not (gpus == 0 or 0.01 <= gpus <= 1 or (gpus <= 64 and gpus == int(gpus))):
            raise ConfigError(
                f"task_gpus is {gpus}; it must be 0, a fraction of at least 0.01, or a whole number up to 64"
            )


@dataclass(frozen=True, kw_only=True)
class SearchConfig(RunConfig):
    """A search for the best repair order."""

    task: Cage2Task = field(default_factory=Cage2Task)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    workflow: WorkflowConfig = field(default_factory=WorkflowConfig)
    target: str = "cage2"
    """Search target."""
    searcher: Literal["gp-ucb", "thompson", "exhaustive", "halving", "random", "fixed"] = "gp-ucb"
    """Strategy that proposes the next order."""
    orders: tuple[str, ...] = ()
    """With searcher fixed: orders, by name (critical_first) or as subtasks joined with >."""
    n_workflows: int = whole(40, 1)
    """Number of trainings in the search; exhaustive and fixed train all orders within the budget instead."""
    rounds: int = whole(1, 1)
    """With searcher exhaustive or fixed: trainings per order; with evaluate-only: number of universal policies."""
    total_episodes: int = whole(200_000, 1)
    """Budget of the search in full-length episodes, counted by steps, never exceeded; confirmation is extra."""
    max_episodes: int = whole(100, 1)
    """Episodes per environment in the training of an order."""
    parallel_orders: int = whole(0, 0)
    """Orders trained side by side (q); 0 chooses a number that suits the machine."""
    ucb_beta: float = number(2.0, 0, 100)
    """β of the upper confidence bound: weight of the posterior standard deviation; 0 for the GP-UCB schedule."""
    kernel: Literal["mallows", "precedences"] = "mallows"
    """Kernel of the Gaussian process: Mallows, or with a weight per pairwise precedence."""
    warm_start: Literal["none", "nearest", "last", "universal"] = "none"
    """Initial weights of an order's policy. none: random, with a fresh seed. Otherwise its own from an earlier visit.
    On the first visit those of the nearest or last trained order, or of a universal policy trained on random orders."""
    evaluate_only: bool = False
    """With warm start universal: spend the budget on --rounds universal policies and score every order with each.
    No order is trained by itself."""
    gate: bool = False
    """Fit the Gaussian process only to policies that reached --compliance-threshold."""
    compliance_threshold: float = number(0.0, 0, 1)
    """Compliance at which the training of an order stops; 0 for never."""
    patience: int = whole(0, 0)
    """Updates without a gain of 0.01 in compliance after which the training of an order stops; 0 for never."""
    score: Literal["heldout", "tail"] = "heldout"
    """heldout: greedy evaluation on fresh games; tail: the last 3 training episodes of every environment."""
    original: Original = field(default_factory=Original)
    host: WorkerConfig = field(default_factory=WorkerConfig)
    score_episodes: int = whole(200, 2)
    """Games per score."""
    confirm: int = whole(10, 0)
    """After the search: trainings of the best order and each rival and control, from scratch; 0 for none."""
    confirm_batches: int = whole(3, 1)
    """Maximum number of confirmation batches; another one is trained while the answer is open.
    Each look at the data gets an equal share of the significance level."""
    rivals: int = whole(5, 0)
    """Orders confirmed beside the best, spread from the second best to the worst."""
    margin: float = 1.0
    """Points of score that matter: yes needs a difference above the margin, no one within it."""
    controls: bool = True
    """Also train controls: a random order per episode, the same unobserved, and plain PPO without orders."""
    device: Device = "auto"
    """Device of simulation and training; auto: a GPU if there is one that supports all settings."""
    precision: Literal["fp32", "tf32", "bf16"] = "tf32"
    """On a GPU: precision of matrix products; weights stay in fp32."""
    executor: Literal["local", "ray"] = "local"
    """local: train the orders in this process, as one population; ray: in Ray tasks, on one machine or many."""
    ray: RayConfig = field(default_factory=RayConfig)
    shard: str = ""
    """With searcher exhaustive or fixed: train only the i-th of n shards of the orders, as i/n.
    `cavalcade search merge` joins them."""
    seed: int = 0
    """Seed of the search."""
    checkpoint_every: int = whole(100, 1)
    """Updates between checkpoints."""
    keep_checkpoints: int = whole(2, 1)
    """Checkpoints kept."""

    free_to_change: ClassVar[tuple[str, ...]] = (*RunConfig.free_to_change, "device", "precision", "ray")
    changeable: ClassVar[tuple[str, ...]] = within("host", WorkerConfig)
    instead: ClassVar[str] = "begin a new search"

    def __post_init__(self):
        super().__post_init__()
        seed_from("seed", self.seed, 10**6)  # leaves room for the seeds of its members
        one_of("target", self.target, tuple(_CHECKS))
        _ = self.share
        self._check_executor()
        _CHECKS[self.target](self)
        if self.device == "cpu" and self.precision != type(self).precision:
            raise ConfigError(f"precision is {self.precision} with device cpu; it applies to GPUs only, leave it out")
        if not 0 < self.margin <= 1e6:
            raise ConfigError(f"margin is {self.margin}; it must be above 0 and at most 1e6")
        if self.gate and not self.compliance_threshold:
            raise ConfigError("gate without compliance_threshold; set the compliance that an order must reach")
        if self.orders and self.searcher != "fixed":
            raise ConfigError(f"orders are given with searcher {self.searcher}; they need --searcher fixed")
        if self.searcher == "fixed" and not self.orders:
            raise ConfigError("searcher is fixed without orders; name one or more with --orders")
        if self.searcher != "gp-ucb":
            self.refuse_without("--searcher gp-ucb", "ucb_beta")
        if self.searcher not in ("exhaustive", "fixed") and not self.evaluate_only:
            self.refuse_without("--searcher exhaustive or fixed, or --evaluate-only", "rounds")
        if self.ppo.replay:
            raise ConfigError(f"replay is {self.ppo.replay}; a search does not support replay, use 0")
        self._check_budget()

    def _check_executor(self) -> None:
        if self.executor == "local":
            if given := differences(RayConfig(), self.ray):
                raise ConfigError(f"{given[0].split()[0]} is given with executor local; it needs --executor ray")
        elif (self.device == "cuda") != bool(self.ray.task_gpus) and self.device != "auto":
            raise ConfigError(
                f"device is {self.device} and task_gpus {self.ray.task_gpus:g}; Ray tasks use GPUs as given "
                "by --task-gpus, leave out --device"
            )

    def _check_budget(self) -> None:
        """Raises `ConfigError` if not even one training fits."""
        if self.evaluate_only and (self.warm_start != "universal" or self.score == "tail"):
            raise ConfigError(
                f"evaluate_only with warm start {self.warm_start} and score {self.score}; it needs --warm-start "
                "universal and --score heldout"
            )
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
                f"{self.ppo.rollout_steps} steps; raise --max-episodes"
            )

    @property
    def share(self) -> tuple[int, int]:
        """Index and number of shards; (0, 1) without --shard."""
        if not self.shard:
            return 0, 1
        i, sign, n = self.shard.partition("/")
        if not (sign and i.isdecimal() and n.isdecimal() and 1 <= int(i) <= int(n)):
            raise ConfigError(f"shard is {self.shard!r}; it must be i/n with i from 1 to n, e.g. 2/4")
        if self.searcher not in ("exhaustive", "fixed") or self.warm_start != "none":
            raise ConfigError(
                f"shard is {self.shard} with searcher {self.searcher} and warm start {self.warm_start}; only "
                "exhaustive and fixed, from scratch, can be sharded: others choose by earlier scores"
            )
        return int(i) - 1, int(n)

    @property
    def episodes_per_order(self) -> int:
        """Episodes per training."""
        return self.ppo.num_envs * self.max_episodes

    @property
    def updates_per_order(self) -> int:
        """Updates per training."""
        return self.max_episodes * self.task.horizon // self.ppo.rollout_steps

    @property
    def universal_updates(self) -> int:
        """Updates of a universal policy: those of a training, or with evaluate-only its share of the budget."""
        if not self.evaluate_only:
            return self.updates_per_order
        return self.total_episodes * self.task.horizon // (self.rounds * self.steps_per_update)

    @property
    def steps_per_update(self) -> int:
        """Environment steps of one member per update."""
        return self.ppo.num_envs * self.ppo.rollout_steps

    @property
    def steps_per_order(self) -> int:
        """Environment steps per training."""
        return self.updates_per_order * self.steps_per_update

    @property
    def updates(self) -> int:
        """Updates within the budget of the search."""
        return self.total_episodes * self.task.horizon // self.steps_per_update


def _check_simulated(config: SearchConfig) -> None:
    """Raises `ConfigError` for options of hosted games."""
    if config.original.cyborg:
        raise ConfigError(f"cyborg is {config.original.cyborg!r} with target {config.target}; it needs target cyborg")
    given = differences(Original(), config.original) + differences(WorkerConfig(), config.host)
    if given:
        raise ConfigError(f"{given[0].split()[0]} is given with {config.target}; only cyborg is hosted in workers")


def _check_cpu_only(config: SearchConfig) -> None:
    if config.device == "cuda":
        raise ConfigError(f"device is cuda with target {config.target}; only cage2 runs on a GPU")
    if config.ray.task_gpus:
        raise ConfigError(f"task_gpus is {config.ray.task_gpus:g} with target {config.target}; only cage2 runs on GPUs")


def _check_gridworld(config: SearchConfig) -> None:
    _check_simulated(config)
    _check_cpu_only(config)
    given = differences(Cage2Task(horizon=config.task.horizon), config.task)
    given += ["open_until"] if config.workflow.open_until != WorkflowConfig().open_until else []
    if given:
        raise ConfigError(f"{given[0].split()[0]} is given with {config.target}; only games of CAGE-2 have it")


def _check_cyborg(config: SearchConfig) -> None:
    _check_cpu_only(config)
    for name in ("task_orders", "task_updates"):
        if (value := getattr(config.ray, name)) != getattr(RayConfig(), name):
            raise ConfigError(
                f"{name} is {value} with target cyborg; games of CybORG cannot be saved, so that each of its trainings "
                "is one task"
            )
    if not config.original.cyborg:
        raise ConfigError("target is cyborg without --cyborg; name your clone of cage-challenge/cage-challenge-2")


_CHECKS = {"cage2": _check_simulated, "gridworld": _check_gridworld, "cyborg": _check_cyborg}


def simulated(config: SearchConfig) -> SearchConfig:
    """The same search in our simulator, whose games have the same interface as the original's."""
    if config.target != "cyborg":
        return config
    return replace(config, target="cage2", original=Original(), host=WorkerConfig())
