"""`cavalcade evaluate` for runs on Gymnasium environments: returns on seeds that no training has seen."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import tyro

from cavalcade.cli.parse import check_folder, import_from_here, parse
from cavalcade.cli.waiting import waiting
from cavalcade.config import GymTrainConfig, HostConfig
from cavalcade.errors import at_least
from cavalcade.runs.directory import open_run
from cavalcade.runs.environments import hosted_for
from cavalcade.runs.policy import load_policy
from cavalcade.runs.scoring import hosted_returns
from cavalcade.statistics import half_interval
from cavalcade.vector.hosted import HELDOUT_SEEDS


@dataclass(frozen=True)
class Options:
    """Scores a policy on new seeds of the environment that it was trained on."""

    policy: tyro.conf.Positional[Path]
    """A run."""
    episodes: int = 100
    """Episodes; each environment plays equally many."""
    max_steps: int = 10_000
    """Steps after which an episode is given up."""
    sampled: bool = False
    """Draw actions by their probabilities instead of taking the likeliest."""
    seed: int = 1
    """Seed of the episodes; they are never those of a training."""
    json: Path | None = None
    """Write the figures to this file."""


def run_hosted(args: list[str]) -> int:
    """Prints mean and interval."""
    import_from_here()
    options = parse(Options, args, "evaluate")
    for name, least in (("episodes", 2), ("max_steps", 1), ("seed", 0)):
        at_least(name, getattr(options, name), least)
    check_folder("json", options.json)
    return 0 if print_score(open_run(options.policy).config(), options) else 1


def print_score(config: GymTrainConfig, options: Options) -> bool:
    """What a run's policy is worth on new seeds; whether any episode ended."""
    saved = load_policy(options.policy)
    count = min(config.ppo.num_envs, options.episodes)
    workers = 0 if config.host.backend == "ray" else min(config.host.workers, count)
    together = HostConfig(backend="serial" if config.host.backend == "serial" else "shared", workers=workers)
    env = hosted_for(replace(config, host=together), count, HELDOUT_SEEDS + options.seed)
    try:
        with waiting("playing on new seeds"):
            env.reset()
            player = saved.player(0, greedy=not options.sampled, seed=options.seed)
            returns, unfinished = hosted_returns(player, env, options.episodes, options.max_steps)
    finally:
        env.close()
    how = "sampled" if options.sampled else "greedy"
    head = f"new seeds, {how}, {len(returns)} episodes"
    if unfinished:
        head += f", {unfinished} environments without an end in {options.max_steps:,} steps"
    if len(returns) < 2:
        print(f"{head}: too few for a score; raise --max-steps")
        return False
    print(f"{head}: {returns.mean():.2f} ± {half_interval(returns):.2f}")
    if options.json:
        figures = {"policy": str(options.policy), "update": saved.update, "mean": float(returns.mean())}
        figures |= {"interval": half_interval(returns), "returns": returns.tolist()}
        options.json.write_text(json.dumps(figures, indent=1))
    return True
