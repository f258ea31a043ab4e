"""MettaGrid, compiled or hosted, with a recurrent policy."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from cavalcade.config.base import Settings, whole
from cavalcade.core.contract import Environment
from cavalcade.core.device import device_named
from cavalcade.core.errors import ConfigError
from cavalcade.core.statistics import half_interval
from cavalcade.core.threads import cores, use_torch_threads
from cavalcade.envs.mettagrid.arenas import Arenas
from cavalcade.envs.mettagrid.device import DeviceArenas
from cavalcade.envs.mettagrid.episode import record_episode
from cavalcade.policy.recurrent import TokenPolicy, seeded
from cavalcade.ppo.auxiliary.contrastive import Contrastive
from cavalcade.ppo.auxiliary.kickstart import Kickstart
from cavalcade.ppo.auxiliary.priority import Prioritised
from cavalcade.ppo.auxiliary.statistics import Statistics
from cavalcade.ppo.collectors.recurrent import RecurrentFragmentEngine
from cavalcade.ppo.distributed import Ranks
from cavalcade.ppo.engine import Engine
from cavalcade.ppo.engines.recurrent.engine import RecurrentEngine
from cavalcade.ppo.engines.recurrent.resident import ResidentEngine
from cavalcade.ppo.engines.recurrent.staged import StagedEngine
from cavalcade.ppo.threads import choose_torch_threads
from cavalcade.ppo.trainer import Callback
from cavalcade.targets.base import LoadPolicy, Prepared, Progress, Saved, Score, Scores, Setup, Target, no_progress
from cavalcade.targets.fragments import check_in_step, playing
from cavalcade.targets.hosting import host_share
from cavalcade.targets.mettagrid import play
from cavalcade.targets.mettagrid.arenas import arenas, game_of, layout_of, who_plays
from cavalcade.targets.mettagrid.callbacks import callbacks_for
from cavalcade.targets.mettagrid.config import MettagridConfig
from cavalcade.targets.mettagrid.policy import RecurrentPolicy, policy_from
from cavalcade.targets.mettagrid.scoring import heldout_rewards, random_actor
from cavalcade.vector.hosted import HELDOUT_SEEDS, Hosted


@dataclass(frozen=True)
class EvaluateOptions(Settings):
    """Evaluates a policy on held-out maps of the task it was trained on, and random actions as a control."""

    arenas: int = whole(16, 2)
    """Arenas; each plays one episode."""
    sampled: bool = True
    """Sample actions instead of acting greedily."""
    seed: int = whole(1, 0)
    """Seed of the maps; they never overlap with training."""


class MettagridTarget(Target[MettagridConfig]):
    name = "mettagrid"
    hardware = True
    tuned_by_speed = False
    Config = MettagridConfig
    EvaluateOptions = EvaluateOptions
    PlayOptions = play.Options

    def run_name(self, config: MettagridConfig) -> str:
        return f"mettagrid-{config.arena.task}"

    def make_env(self, config: MettagridConfig, threads: int = 0, first_index: int = 0) -> Environment:
        return arenas(config, first_index, threads)

    def prepare(self, config: MettagridConfig, setup: Setup) -> Prepared:
        """Plays the arenas here or in workers, and trains in torch, on the CPU or a GPU."""
        if setup.network is not None:
            raise ConfigError("mettagrid is trained with a custom network; its policies are chosen by encoder and core")
        ranks = setup.ranks
        share = max(1, cores() // ranks.local_size)
        hosted = who_plays(config).game is None
        threads = setup.threads or (choose_torch_threads() if hosted and ranks.size == 1 else share)
        use_torch_threads(threads)
        env = self.make_env(config, threads, setup.first_index)
        try:
            engine = _engine(env, config, setup)
            notes = [who_plays(config).note, _in_torch(config), playing(env, config) if config.host.lag else ""]
            return Prepared(engine, threads, [note for note in notes if note])
        except BaseException:
            env.close()
            raise

    def share(self, config: MettagridConfig, ranks: Ranks) -> MettagridConfig:
        """Splits arenas and batch over the ranks."""
        check_in_step(config.host)
        if config.auxiliary.priority_alpha or config.auxiliary.contrastive_coef:
            raise ConfigError(
                "priority_alpha or contrastive_coef on several ranks; both compare samples of one rank, use 0"
            )
        sizes = {
            name: ranks.share(getattr(config.ppo, name), name) for name in ("num_envs", "batch_size", "minibatch_size")
        }
        ppo = replace(config.ppo, **{name: part.stop - part.start for name, part in sizes.items()})
        return replace(config, ppo=ppo, host=host_share(config.host, ppo.num_envs, ranks))

    def callbacks(self, config: MettagridConfig, engine: Engine, folder: Path) -> Sequence[Callback]:
        assert isinstance(engine, RecurrentEngine)
        return callbacks_for(config, engine, folder)

    def policy(self, saved: Saved) -> RecurrentPolicy:
        return policy_from(saved)

    def heldout(self, policy: RecurrentPolicy) -> Scores:
        """Scores sampled actions on held-out maps."""
        return self.evaluate(policy, EvaluateOptions())

    def evaluate(self, policy: RecurrentPolicy, options: Any, progress: Progress = no_progress) -> Scores:
        """Reward per agent-step on held-out maps, and that of random actions."""
        task, count, seed = policy.config.arena, options.arenas, options.seed
        runner = policy.runner(greedy=not options.sampled, seed=seed)
        rewards = heldout_rewards(runner, task, count, seed=seed, backend="shared")
        chance = heldout_rewards(random_actor(seed), task, count, seed=seed, backend="shared")
        mine, random = (
            Score(name, float(x.mean()), half_interval(x), count)
            for name, x in (("reward", rewards), ("random", chance))
        )
        text = (
            f"new maps, {'sampled' if options.sampled else 'greedy'}, {count} arenas: {mine.mean:.5f} ± "
            f"{mine.interval:.5f} reward per agent-step; at random {random.mean:.5f} ± {random.interval:.5f}: "
            f"{mine.mean / max(random.mean, 1e-12):.1f} times"
        )
        plain = {"policy": str(policy.label), "update": policy.update, "mean": mine.mean, "interval": mine.interval}
        return Scores((mine, random), text, plain | {"rewards": rewards.tolist(), "random": chance.tolist()})

    def play(self, options: play.Options, load: LoadPolicy) -> None:
        play.play(options, load)

    def record(self, policy: RecurrentPolicy, folder: Path, options: Any) -> list[str]:
        """Records episodes on held-out maps for MettaScope."""
        game, lines = game_of(policy.config.arena), []
        for i in range(options.episodes):
            path = folder / f"{policy.label.name}-{policy.update:08d}-{options.seed}-{i}.json.z"
            runner = policy.runner(greedy=not options.sampled, seed=options.seed + i)
            total = record_episode(game, HELDOUT_SEEDS + options.seed, runner, path, options.steps, index=i)
            lines.append(f"{path}  mean return of an agent {total:.3f}")
        return [*lines, f"to watch: {play.HOW_TO_OPEN}"]


def _engine(env: Environment, config: MettagridConfig, setup: Setup) -> RecurrentEngine:
    """The engine of a run, with the configured sampling and auxiliary losses."""
    x, c, device = config.auxiliary, config.ppo, device_named(config.machine.device)
    net, actions = config.policy, env.buffers.action_mask.shape[1]
    policy = seeded(
        config.seed,
        lambda: TokenPolicy(layout_of(config.arena), actions, encoder=net.encoder, core=net.core, width=net.width),
    )
    options: Any = {"machine": config.machine, "device": device, "seed": config.seed, "ranks": setup.ranks}
    graphs = config.machine.compile in ("off", "default")  # the other modes capture CUDA graphs of their own
    if config.host.lag:
        assert isinstance(env, Hosted)
        c = replace(c, vtrace=c.vtrace or config.host.vtrace)
        engine = RecurrentFragmentEngine(env, policy, c, staleness=config.host.lag, **options)
    elif device.type == "cpu":
        engine = RecurrentEngine(env, policy, c, **options)
    elif isinstance(env, Arenas) and setup.ranks.size == 1 and not config.machine.offload:
        games = DeviceArenas(env, policy.layout.tokens, device)
        engine = ResidentEngine(games, env, policy, c, graphs=graphs, **options)
    else:
        engine = StagedEngine(env, policy, c, graphs=graphs, **options)
    if x.priority_alpha:
        engine.sampler = Prioritised(config.seed, engine.experience.segments, x.priority_alpha, x.priority_beta)
    if x.teacher:
        engine.auxiliary.append(_kickstart(config, setup, device))
    if x.contrastive_coef:
        engine.auxiliary.append(
            Contrastive(x.contrastive_coef, x.contrastive_temperature, x.contrastive_logsumexp, config.seed)
        )
    if config.statistics_every:
        engine.auxiliary.append(Statistics(config.statistics_every))
    return engine


def _in_torch(config: MettagridConfig) -> str:
    """Why the network on the CPU is computed by torch's modules instead of compiled kernels; empty if it is not."""
    net, m = config.policy, config.machine
    plain = {"encoder": (net.encoder, "bag"), "precision": (m.precision, "fp32"), "compile": (m.compile, "off")}
    found = [f"{name} is {value}" for name, (value, wanted) in plain.items() if value != wanted]
    if not found or device_named(m.device).type != "cpu":
        return ""
    return f"{found[0]}: the network is computed by torch, not by the faster compiled kernels"


def _kickstart(config: MettagridConfig, setup: Setup, device: torch.device) -> Kickstart:
    x = config.auxiliary
    assert setup.load is not None
    teacher = setup.load(x.teacher)
    if not isinstance(teacher, RecurrentPolicy):
        raise ConfigError(f"teacher {x.teacher} was not trained on mettagrid")
    teacher.check_suits(config.arena, "teacher")
    batch = config.ppo.batch_size * setup.ranks.size
    return Kickstart(
        teacher.policy.to(device), teacher.reward_scale, x.kickstart_action, x.kickstart_value, x.kickstart_steps, batch
    )


TARGET = MettagridTarget()
