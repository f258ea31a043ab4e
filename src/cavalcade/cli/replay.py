"""`cavalcade replay`: episodes of a policy on MettaGrid, in the format that MettaScope shows."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from cavalcade.cli.parse import import_from_here, parse
from cavalcade.cli.waiting import waiting
from cavalcade.envs.mettagrid.episode import record_episode
from cavalcade.errors import ConfigError, at_least
from cavalcade.runs.mettagrid import game_of, load_token_policy
from cavalcade.vector.hosted import HELDOUT_SEEDS


@dataclass(frozen=True)
class Options:
    """Records episodes of a run on maps that no training has seen, as .json.z files for MettaScope."""

    policy: tyro.conf.Positional[Path]
    """A run or a checkpoint."""
    out: Path
    """Folder for the files."""
    episodes: int = 1
    """Episodes, each on its own map."""
    steps: int = 0
    """Steps of each; 0 for the whole episode."""
    greedy: bool = False
    """Take the likeliest action instead of drawing by probabilities."""
    seed: int = 1
    """Seed of the maps."""


def run(args: list[str]) -> int:
    """Writes files, says which."""
    import_from_here()
    options = parse(Options, args, "replay")
    for name, least in (("episodes", 1), ("steps", 0), ("seed", 0)):
        at_least(name, getattr(options, name), least)
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"out is {options.out}; it cannot be made: {error.strerror}") from None
    saved = load_token_policy(options.policy)
    game = game_of(saved.config.arena)
    for i in range(options.episodes):
        path = options.out / f"{options.policy.name}-{saved.update:08d}-{options.seed}-{i}.json.z"
        player = saved.player(greedy=options.greedy, seed=options.seed + i)
        with waiting("playing"):
            total = record_episode(game, HELDOUT_SEEDS + options.seed, player, path, options.steps, index=i)
        print(f"{path}  mean return of an agent {total:.3f}")
    return 0
