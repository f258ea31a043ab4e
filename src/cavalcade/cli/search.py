"""`cavalcade search`: which order is best, and does it matter?"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from cavalcade.api import run_search, search_config
from cavalcade.cli.help import HelpRequested, Page, help_asked
from cavalcade.cli.options import Positional, options_of, with_defaults
from cavalcade.cli.orders import select_reward
from cavalcade.cli.parse import import_from_here, option, parse, values_of
from cavalcade.cli.search_merge import MergeOptions, audit, merge
from cavalcade.cli.targets import parse_resumed
from cavalcade.config.hosting import refuse_idle
from cavalcade.config.io import differences
from cavalcade.core.errors import ConfigError, RunError, at_least
from cavalcade.runs.advice import resume_command
from cavalcade.runs.directory import RunDirectory
from cavalcade.runs.files import SUMMARY
from cavalcade.search.conclusion import over_seeds
from cavalcade.search.config import SearchConfig
from cavalcade.search.directory import default_path, open_search
from cavalcade.search.domains import DOMAINS
from cavalcade.watch.serve import beside

# Options and values of the CAGE-2 workflow-search scripts that have another name here.
ALIASES = {
    "--n-envs": "--num-envs", "--n-workers": "--num-envs", "--red-agent": "--red", "--gp-beta": "--ucb-beta",
    "--n-eval-episodes": "--score-episodes", "--max-steps": "--horizon", "--checkpoint-dir": "--run",
    "B_lineAgent": "bline", "RedMeanderAgent": "meander", "SleepAgent": "sleep",
}  # fmt: skip
RENAMED = {"checkpoints": "gridworld", "replay": "audit"}  # first words of 0.1


@dataclass(frozen=True)
class Options:
    """Searches for the best repair order: trains a policy for each proposed order and scores it on fresh games.

    `cavalcade search merge RUN…` joins shards; `cavalcade search audit RUN` makes the decisions of a search again.
    """

    target: Positional[Literal["cage2", "gridworld", "cyborg"]]
    """CAGE-2, a gridworld in which the order is known to matter, or CAGE-2 in your own checkout of CybORG."""
    config: SearchConfig = field(default_factory=SearchConfig)
    run: Path | None = None
    """Run directory; by default runs/search-TARGET-TIME."""
    seeds: int = 1
    """Number of searches, each with its own seed and directory. Repeat the command to resume them."""
    threads: int = 0
    """CPU threads; 0 measures which number is fastest."""
    watch: bool = False
    """Show the search live in the browser: prints the address of a page, as `cavalcade watch` does."""
    quiet: bool = False
    """Print errors only."""


@dataclass(frozen=True)
class ResumeOptions:
    """Resumes a search from its newest checkpoint, exactly as if it had never stopped.

    Settings that have no effect on results may change, e.g. `--max-restarts`.
    """

    resume: Path
    """Run directory."""
    threads: int = 0
    """CPU threads; 0 for as many as before."""
    watch: bool = False
    """Show the search live in the browser: prints the address of a page, as `cavalcade watch` does."""
    quiet: bool = False
    """Print errors only."""


def run(args: list[str]) -> int:
    import_from_here()
    args, notes = select_reward(translate([*(RENAMED.get(arg, arg) for arg in args[:1]), *args[1:]]))
    if args[:1] == ["merge"]:
        options = parse(MergeOptions, args[1:], "search merge")
        directory, config = merge(options)
        return _search(directory, config, quiet=options.quiet, resume=True)
    if args[:1] == ["audit"]:
        return audit(args[1:])
    if any(arg.split("=")[0] == "--resume" for arg in args):
        directory = open_search(Path(option(args, "resume") or ""))
        resumed = parse_resumed(ResumeOptions, directory.path, directory.config(), args, "search")
        with beside(directory.path, resumed.watch):
            return _search(directory, resumed.config, quiet=resumed.quiet, threads=resumed.threads, resume=True)
    options = _parsed(args)
    at_least("seeds", options.seeds, 1)
    if options.seeds > 1 and options.config.shard:
        raise ConfigError(
            f"seeds is {options.seeds} with shard {options.config.shard}; give --seed to each shard instead"
        )
    config = replace(options.config, target=options.target)
    path = options.run or default_path(options.target)
    common: dict[str, Any] = {"quiet": options.quiet, "threads": options.threads}
    if not options.quiet:
        print("\n".join(notes), end="\n" * len(notes))
    if options.seeds == 1:
        with beside(path, options.watch):
            return _search(RunDirectory(path, SearchConfig), config, **common)
    with beside(path, options.watch, several=True):
        return _searches(path, config, options.seeds, **common)


def _searches(path: Path, config: SearchConfig, seeds: int, **common: Any) -> int:
    """Searches with several seeds, one after the other; those that are done are left as they are."""
    for i in range(seeds):
        directory = RunDirectory(path / f"seed-{config.seed + i}", SearchConfig)
        here = replace(config, seed=config.seed + i)
        resume = directory.exists()
        if resume and (changed := differences(directory.config(), here)):
            raise RunError(f"{directory} has other settings: {'; '.join(changed)}; choose another --run")
        if (directory.path / SUMMARY).exists():
            continue  # done before the command was repeated
        if status := _search(directory, here, resume=resume, **common):
            return status
    if not common["quiet"]:
        print(over_seeds(path, [config.seed + i for i in range(seeds)]))
    return 0


def translate(args: list[str]) -> list[str]:
    """Replaces options and values of the CAGE-2 workflow-search scripts by ours."""
    found = []
    for arg in args:
        flag, sign, value = arg.partition("=")
        found.append(ALIASES.get(flag, flag) + sign + ALIASES.get(value, value) if sign else ALIASES.get(arg, arg))
    return found


def _parsed(args: list[str]) -> Options:
    """Options with the defaults of the domain."""
    named = args[0] if args and args[0] in DOMAINS else ""
    defaults: dict[str, Any] = {"config": DOMAINS[named].defaults} if named else {}
    rows = with_defaults(options_of(Options), defaults)
    if help_asked(args):
        shown = [row for row in rows if not (named and row.positional)]
        raise HelpRequested(Page(f"search {named}".strip(), Options.__doc__ or "", tuple(shown)))
    given = values_of(rows, args, f"search {named}".strip())
    typed = given.get("config", {})
    given["config"] = search_config(given["target"], typed)
    refuse_idle(given["config"], typed)
    return Options(**given)


def _search(directory: RunDirectory[SearchConfig], config: SearchConfig, **options: Any) -> int:
    search, signal = run_search(directory, config, **options)
    if not search.done:
        if not options.get("quiet"):
            print(f"stopped at update {search.updates}; resume with: {resume_command('search', directory.path)}")
        return 128 + signal
    return 0
