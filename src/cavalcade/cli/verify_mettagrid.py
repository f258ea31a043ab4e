"""`cavalcade verify mettagrid`: does the compiled simulator play as the mettagrid package does?"""

import platform
import time
from dataclasses import dataclass

from cavalcade.cli.parse import parse
from cavalcade.config.io import parse_options
from cavalcade.core.errors import ConfigError, at_least
from cavalcade.envs.mettagrid.games import GAMES
from cavalcade.envs.mettagrid.lockstep import COMPARED, DifferenceError, compare
from cavalcade.envs.mettagrid.package import installed_version
from cavalcade.envs.mettagrid.supported import VERSION
from cavalcade.envs.mettagrid.tasks import MISSING, load_task
from cavalcade.runs.waiting import PREPARING, waiting


@dataclass(frozen=True)
class Options:
    """Steps the compiled simulator and the mettagrid package side by side with equal random actions."""

    task: str = ""
    """A built-in task, a YAML or JSON file, or module:function; by default all built-in tasks."""
    env_options: tuple[str, ...] = ()
    """Options of the task, each as name=value, e.g. agents=4."""
    steps: int = 2000
    """Steps of each arena."""
    seeds: int = 2
    """Arenas of each task, each with its own maps and actions; every second one also plays actions out of range."""


def run(args: list[str]) -> int:
    options = parse(Options, args, "verify mettagrid")
    at_least("steps", options.steps, 1)
    at_least("seeds", options.seeds, 1)
    if options.env_options and not options.task:
        raise ConfigError("env_options are given without --task; name the task that they are for")
    print(_versions(), flush=True)
    total = 0
    for task in [options.task] if options.task else list(GAMES):
        config = load_task(task, parse_options(options.env_options))
        start, count = time.monotonic(), 0
        for seed in range(options.seeds):
            try:
                with waiting(PREPARING):
                    count += compare(config, options.steps, seed=seed, wild=0.1 * (seed % 2))
            except DifferenceError as error:
                print(f"{task}: {error}\n1 difference, after {total + count:,} equal agent-steps")
                return 1
        total += count
        print(f"{task}: {count:,} agent-steps are equal, {time.monotonic() - start:.0f} s", flush=True)
    print(f"\n{total:,} agent-steps, 0 differences\ncompared: {COMPARED}")
    return 0


def _versions() -> str:
    """The version of the package; raises `ConfigError` if it is another than the one whose rules are compiled."""
    found = installed_version()
    if not found:
        raise ConfigError(MISSING)
    if found != VERSION:
        raise ConfigError(f"mettagrid {found} is installed; the compiled simulator equals {VERSION}")
    here = f"{platform.system()} {platform.machine()}"
    elsewhere = "; equality was proved on Linux x86_64, here tokens may come in another order"
    proved = "" if here == "Linux x86_64" else elsewhere
    return f"mettagrid {found} on {here}{proved}"
