"""Joins shards of a search into one search, which continues as if it had trained all of them."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cavalcade.config.io import differences
from cavalcade.core.errors import RunError
from cavalcade.runs.advice import resume_command
from cavalcade.runs.checkpoint import load_checkpoint
from cavalcade.runs.directory import checkpoint_in
from cavalcade.runs.durable import make_folder, replacing
from cavalcade.search.config import SearchConfig
from cavalcade.search.decisions import Decision, read
from cavalcade.search.directory import open_search
from cavalcade.search.members import Result
from cavalcade.search.policies import POLICIES
from cavalcade.search.run import Search, results_of


@dataclass
class Shares:
    """Results of the shards of a search."""

    config: SearchConfig  # of the joined search
    paths: dict[int, Path] = field(default_factory=dict)  # by shard
    results: dict[int, Result] = field(default_factory=dict)  # by number of the member
    decisions: dict[int, Decision] = field(default_factory=dict)
    members: int = 0
    updates: int = 0
    seconds: float = 0.0
    scoring_seconds: float = 0.0


def read_shares(paths: Sequence[Path]) -> Shares:
    """Reads finished shards; raises `RunError` unless they are all shards of one search."""
    found: Shares | None = None
    count = 0
    for path in paths:
        run = open_search(path)
        config = run.config()
        if not config.shard:
            raise RunError(f"{path} is not a shard of a search: it was not begun with --shard")
        whole, (which, shares) = replace(config, shard=""), config.share
        found, count = found or Shares(whole), count or shares
        if (changed := differences(found.config, whole, besides=whole.may_change())) or shares != count:
            raise RunError(f"{path} has other settings than {paths[0]}: {'; '.join(changed) or f'1/{shares}'}")
        if which in found.paths:
            raise RunError(f"{path} and {found.paths[which]} are the same shard, {config.shard}")
        _add(found, which, path)
    assert found is not None
    if missing := [f"{i + 1}/{count}" for i in range(count) if i not in found.paths]:
        raise RunError(f"shard {', '.join(missing)} is missing; give all {count} of them")
    return found


def _add(shares: Shares, which: int, path: Path) -> None:
    checkpoint = load_checkpoint(checkpoint_in(path))  # unlike `latest`, leaves alone what a run may be writing
    if checkpoint.info["searching"]:
        raise RunError(f"{path} is not done yet; resume with: {resume_command('search', path)}")
    info = checkpoint.info
    shares.paths[which] = path
    shares.results |= {r.member.number: r for r in results_of(info)}
    shares.decisions |= {d.number: d for d in read(path)}
    shares.members = max(shares.members, int(info["members"]))
    shares.updates += int(info["update"])
    shares.seconds += float(info["seconds"])
    shares.scoring_seconds += float(info["scoring_seconds"])


def take_over(search: Search, shares: Shares) -> None:
    """Loads the results of shards into a new search."""
    horizon, steps = search.config.task.horizon, 0
    folder = search.run.path / POLICIES
    try:
        make_folder(folder)
        for path in shares.paths.values():
            for policy in (path / POLICIES).glob("*.safetensors"):
                with replacing(folder / policy.name) as aside:
                    shutil.copyfile(policy, aside)
    except OSError as error:
        raise RunError(f"policies cannot be copied to {folder}: {error}") from None
    for number in sorted(shares.results):
        result = shares.results[number]
        steps += result.steps
        search.record(replace(result, used=steps / horizon))
    search.log_decisions(shares.decisions[number] for number in sorted(shares.decisions))
    search.made = search.members = shares.members
    search.used_steps = search.steps = steps
    search.updates, search.scoring_seconds = shares.updates, shares.scoring_seconds
    search.seconds_before = shares.seconds
    search.checkpoint()
