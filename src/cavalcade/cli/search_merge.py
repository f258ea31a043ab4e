"""`cavalcade search merge` and `cavalcade search audit`: join shards of a search, and repeat its decisions."""

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from cavalcade.cli.options import Positional
from cavalcade.cli.parse import parse
from cavalcade.core.errors import RunError
from cavalcade.runs.checkpoint import checkpoints, load_checkpoint
from cavalcade.runs.directory import RunDirectory, checkpoint_in
from cavalcade.runs.files import DECISIONS
from cavalcade.runs.waiting import PREPARING, waiting
from cavalcade.search.config import SearchConfig
from cavalcade.search.decisions import again, read
from cavalcade.search.directory import default_path, open_search
from cavalcade.search.domains import subtasks_of
from cavalcade.search.merge import read_shares, take_over
from cavalcade.search.run import Search, results_of


@dataclass(frozen=True)
class MergeOptions:
    """Joins the shards of a search into one run and continues it: confirmation, controls, report."""

    shares: Positional[tuple[Path, ...]]
    """Run directories that were begun with --shard 1/n … n/n."""
    run: Path | None = None
    """Directory of the joined run; by default runs/search-TARGET-TIME."""
    threads: int = 0
    """CPU threads; 0 measures which number is fastest."""
    quiet: bool = False
    """Print errors only."""


@dataclass(frozen=True)
class AuditOptions:
    """Makes every decision of a search again, from what was known at the time, and compares."""

    run: Positional[Path]
    """Run directory of the search."""


def merge(options: MergeOptions) -> tuple[RunDirectory[SearchConfig], SearchConfig]:
    """Creates a run with the results of all shards, ready to be resumed."""
    if not options.shares:
        raise RunError("no shards are given; name the directories of all of them")
    shares = read_shares(options.shares)
    path = options.run or default_path(shares.config.target)
    directory = RunDirectory(path, SearchConfig)
    with directory.locked(), nullcontext() if options.quiet else waiting(PREPARING):
        _begin_again(directory, shares.config)
        search = Search(directory, shares.config, threads=options.threads)
        try:
            take_over(search, shares)
        finally:
            search.close()
    if not options.quiet:
        print(f"{len(shares.results)} trainings of {len(shares.paths)} shards in {directory}")
    return directory, shares.config


def _begin_again(directory: RunDirectory[SearchConfig], config: SearchConfig) -> None:
    """Forgets a merge of the same shards that was killed before it had taken over anything."""
    if directory.exists() and not checkpoints(directory.checkpoint_folder) and directory.config() == config:
        directory.config_file.unlink()


def audit(args: list[str]) -> int:
    """Prints whether the log leads to the same decisions; returns 1 if not."""
    path = parse(AuditOptions, args, "search audit").run
    config, checkpoint = open_search(path).config(), load_checkpoint(checkpoint_in(path))
    decisions = read(path, int(checkpoint.info["logs"].get(DECISIONS, 0)))
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
