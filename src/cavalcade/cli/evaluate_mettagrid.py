"""`cavalcade evaluate` for runs on MettaGrid: reward on maps that no training has seen, with chance beside it."""

import json
from dataclasses import dataclass
from pathlib import Path

import tyro

from cavalcade.cli.parse import check_folder, import_from_here, parse
from cavalcade.cli.waiting import waiting
from cavalcade.errors import at_least
from cavalcade.runs.mettagrid import heldout_rewards, load_token_policy, random_actor
from cavalcade.statistics import half_interval


@dataclass(frozen=True)
class Options:
    """Scores a policy in new arenas of the task that it was trained on, whole episodes, beside acting at random."""

    policy: tyro.conf.Positional[Path]
    """A run or a checkpoint."""
    arenas: int = 16
    """Arenas; each plays one episode."""
    greedy: bool = False
    """Take the likeliest action instead of drawing by probabilities."""
    seed: int = 1
    """Seed of the maps; they are never those of a training."""
    json: Path | None = None
    """Write the figures to this file."""


def run_mettagrid(args: list[str]) -> int:
    """Prints mean and interval."""
    import_from_here()
    options = parse(Options, args, "evaluate")
    at_least("arenas", options.arenas, 2)
    at_least("seed", options.seed, 0)
    check_folder("json", options.json)
    print_score(options)
    return 0


def print_score(options: Options) -> None:
    """What a run's policy is worth on new maps."""
    with waiting("playing on new maps"):
        saved = load_token_policy(options.policy)
        task = saved.config.arena
        player = saved.player(greedy=options.greedy, seed=options.seed)
        rewards = heldout_rewards(player, task, options.arenas, seed=options.seed, backend="shared")
        chance = heldout_rewards(random_actor(options.seed), task, options.arenas, seed=options.seed, backend="shared")
    how = "greedy" if options.greedy else "sampled"
    print(
        f"new maps, {how}, {options.arenas} arenas: {rewards.mean():.5f} ± {half_interval(rewards):.5f} reward per "
        f"agent-step; at random {chance.mean():.5f} ± {half_interval(chance):.5f}: "
        f"{rewards.mean() / max(chance.mean(), 1e-12):.1f} times"
    )
    if options.json:
        figures = {"policy": str(options.policy), "update": saved.update, "mean": float(rewards.mean())}
        figures |= {"interval": half_interval(rewards), "rewards": rewards.tolist(), "random": chance.tolist()}
        options.json.write_text(json.dumps(figures, indent=1))
