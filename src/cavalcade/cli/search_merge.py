"""`cavalcade search merge` and `cavalcade search replay`: what becomes of searches that ran elsewhere."""

import time
from dataclasses import dataclass
from pathlib import Path

import tyro

from cavalcade.cli.parse import parse
from cavalcade.cli.waiting import COMPILING, waiting
from cavalcade.config import SearchConfig
from cavalcade.errors import RunError
from cavalcade.runs.checkpoint import load_checkpoint
from cavalcade.runs.directory import RunDirectory, checkpoint_in, open_search
from cavalcade.search.decisions import DECISIONS, again, read
from cavalcade.search.domains import subtasks_of
from cavalcade.search.engine import Search, results_of
from cavalcade.search.merge import read_shares, take_over


@dataclass(frozen=True)
class MergeOptions:
    """Joins the shares of a search into one run, and goes on with it: confirmation, controls, report."""

    shares: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of the runs that were begun with --shard 1/n … n/n."""
    run: Path | None = None
    """Folder of the joined run; runs/search-TARGET-TIME if not given."""
    threads: int = 0
    """CPU threads; 0 measures how many are worth using."""
    quiet: bool = False
    """Show nothing but errors."""


@dataclass(frozen=True)
class ReplayOptions:
    """Makes every decision of a search again, from what was known at the time, and compares."""

    run: tyro.conf.Positional[Path]
    """Folder of the search."""


def merged(options: MergeOptions) -> tuple[RunDirectory[SearchConfig], SearchConfig]:
    """A run with all that the shares have found, ready to be resumed."""
    if not options.shares:
        raise RunError("no shares are given; name the folders of all of them")
    shares = read_shares(options.shares)
    path = options.run or Path("runs", f"search-{shares.config.target}-{time.strftime('%Y%m%d-%H%M%S')}")
    directory = RunDirectory(path, SearchConfig)
    with directory.locked(), waiting(COMPILING):
        search = Search(directory, shares.config, threads=options.threads)
        try:
            take_over(search, shares)
        finally:
            search.close()
    if not options.quiet:
        print(f"{len(shares.results)} trainings of {len(shares.paths)} shares in {directory}")
    return directory, shares.config


def replay(args: list[str]) -> int:
    """Prints whether the log leads to the same decisions."""
    path = parse(ReplayOptions, args, "search replay").run
    config, checkpoint = open_search(path).config(), load_checkpoint(checkpoint_in(path))
    try:
        end = int(checkpoint.info["logs"].get(DECISIONS, 0))
        decisions = read((path / DECISIONS).read_bytes()[:end].decode())
    except (OSError, ValueError, TypeError) as error:
        raise RunError(f"{path / DECISIONS} cannot be read ({type(error).__name__}); restore it") from None
    subtasks = subtasks_of(config)
    orders, differ = subtasks.orders(), 0
    with waiting(f"making {len(decisions)} decisions again"):
        found = again(config, orders, results_of(checkpoint.info), decisions)
    for d, proposal in zip(decisions, found, strict=True):
        if proposal is None or (proposal.order, proposal.rung) != (d.order, d.rung):
            differ += 1
            now = "nothing" if proposal is None else subtasks.text(orders[proposal.order])
            print(f"member {d.number}: {subtasks.text(orders[d.order])} was chosen; from the log it is {now}")
    print(f"{len(decisions)} decisions made again, {differ} differ")
    return 1 if differ else 0
