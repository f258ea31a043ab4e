"""Joins the shares of a search that were trained apart, into a search that goes on as if it had trained them all."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cavalcade.config import SearchConfig
from cavalcade.errors import RunError
from cavalcade.plain import differences
from cavalcade.runs.checkpoint import load_checkpoint
from cavalcade.runs.directory import checkpoint_in, open_search, taking_over
from cavalcade.search.decisions import DECISIONS, Decision, read
from cavalcade.search.engine import Search, results_of
from cavalcade.search.members import Result
from cavalcade.search.policies import POLICIES


@dataclass
class Shares:
    """What the shares of a search have found."""

    config: SearchConfig  # of the whole
    paths: dict[int, Path] = field(default_factory=dict)  # by share
    results: dict[int, Result] = field(default_factory=dict)  # by number
    decisions: dict[int, Decision] = field(default_factory=dict)
    members: int = 0
    updates: int = 0
    seconds: float = 0.0
    scoring_seconds: float = 0.0


def read_shares(paths: Sequence[Path]) -> Shares:
    """Reads shares that are done; refuses what does not make up a whole."""
    found: Shares | None = None
    count = 0
    for path in paths:
        run = open_search(path)
        config = run.config()
        if not config.shard:
            raise RunError(f"{path} is no share of a search: it was not begun with --shard")
        whole, (which, shares) = replace(config, shard=""), config.share
        found, count = found or Shares(whole), count or shares
        if (changed := differences(found.config, taking_over(whole, found.config))) or shares != count:
            raise RunError(f"{path} has other settings than {paths[0]}: {'; '.join(changed) or f'1/{shares}'}")
        if which in found.paths:
            raise RunError(f"{path} and {found.paths[which]} are the same share, {config.shard}")
        _add(found, which, path)
    assert found is not None
    if missing := [f"{i + 1}/{count}" for i in range(count) if i not in found.paths]:
        raise RunError(f"share {', '.join(missing)} is missing; give all {count} of them")
    return found


def _add(shares: Shares, which: int, path: Path) -> None:
    checkpoint = load_checkpoint(checkpoint_in(path))  # without clearing away what a run may be writing
    if checkpoint.info["searching"]:
        raise RunError(f"{path} is not done yet; go on with: cavalcade search --resume {path}")
    info = checkpoint.info
    shares.paths[which] = path
    shares.results |= {r.member.number: r for r in results_of(info)}
    try:
        shares.decisions |= {d.number: d for d in read((path / DECISIONS).read_text())}
    except (OSError, ValueError, TypeError) as error:
        raise RunError(f"{path / DECISIONS} cannot be read ({type(error).__name__}); restore it") from None
    shares.members = max(shares.members, int(info["members"]))
    shares.updates += int(info["update"])
    shares.seconds += float(info["seconds"])
    shares.scoring_seconds += float(info["scoring_seconds"])


def take_over(search: Search, shares: Shares) -> None:
    """Gives a search that has just begun everything that the shares have found."""
    horizon, steps = search.config.task.horizon, 0
    folder = search.run.path / POLICIES
    try:
        folder.mkdir(exist_ok=True)
        for path in shares.paths.values():
            for policy in (path / POLICIES).glob("*.safetensors"):
                shutil.copyfile(policy, folder / policy.name)
    except OSError as error:
        raise RunError(f"policies cannot be copied to {folder}: {error}") from None
    for number in sorted(shares.results):
        result = shares.results[number]
        steps += result.steps
        search.book(replace(result, used=steps / horizon))
    search.log_decisions(shares.decisions[number] for number in sorted(shares.decisions))
    search.made = search.members = shares.members
    search.used_steps = search.steps = steps
    search.updates, search.scoring_seconds = shares.updates, shares.scoring_seconds
    search.seconds_before = shares.seconds
    search.checkpoint()
