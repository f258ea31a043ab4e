"""`cavalcade verify mettagrid`: does the compiled simulator play as the mettagrid package does?"""

import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cavalcade.cli.options import Positional
from cavalcade.cli.parse import parse
from cavalcade.cli.recorded import expand
from cavalcade.config.io import parse_options
from cavalcade.core.errors import ConfigError, at_least
from cavalcade.envs.mettagrid import lockstep, trace
from cavalcade.envs.mettagrid.arena import DifferenceError
from cavalcade.envs.mettagrid.games import GAMES
from cavalcade.envs.mettagrid.package import installed_version
from cavalcade.envs.mettagrid.supported import VERSION
from cavalcade.envs.mettagrid.tasks import MISSING, load_task
from cavalcade.runs.waiting import PREPARING, waiting

_WINDOWS = ((3, 3), (5, 9), (7, 7), (11, 11), (13, 13), (15, 15))
_AGENTS = (1, 2, 7, 24, 60, 128)
_LEAST = 100  # steps of a random configuration


@dataclass(frozen=True)
class Options:
    """Steps the compiled simulator and the mettagrid package side by side; without it, replays recorded episodes."""

    files: Positional[tuple[Path, ...]] = ()
    """Files of recorded episodes (.npz), or folders of them, to replay; without the package, by default those that come
    with Cavalcade."""
    task: str = ""
    """A built-in task, a YAML or JSON file, or module:function; by default all built-in tasks."""
    env_options: tuple[str, ...] = ()
    """Options of the task, each as name=value, e.g. agents=4."""
    steps: int = 2000
    """Steps of each arena; random configurations play a tenth of them, at least 100."""
    seeds: int = 2
    """Arenas of each task, each with its own maps and actions; every second one also plays actions out of range."""
    random: int = 0
    """Also this many random configurations: objects, handlers, limits, rewards, teams; windows from 3 to 15, and 1 to
    128 agents."""
    record: Path | None = None
    """Records episodes of the package to files in this folder instead of comparing."""


def run(args: list[str]) -> int:
    options = parse(Options, args, "verify mettagrid")
    at_least("steps", options.steps, 1)
    at_least("seeds", options.seeds, 1)
    at_least("random", options.random, 0)
    if options.env_options and not options.task:
        raise ConfigError("env_options are given without --task; name the task that they are for")
    if options.files or not (installed_version() or options.task or options.random or options.record):
        return _replay(list(expand(options.files or (trace.SHIPPED,))))
    print(_versions(), flush=True)
    if options.record:
        return _record(options, options.record)
    total, start = 0, time.monotonic()
    for name, config, steps, seed in _games(options):
        try:
            with waiting(PREPARING):
                count = lockstep.compare(config(), steps, seed=seed, wild=_wild(seed))
        except DifferenceError as error:
            print(f"{name}: {error}\n1 difference, after {total:,} equal agent-steps")
            return 1
        total += count
        print(f"{name}: {count:,} agent-steps are equal; {total:,} in {time.monotonic() - start:.0f} s", flush=True)
    print(f"\n{total:,} agent-steps, 0 differences\ncompared: {lockstep.COMPARED}")
    return 0


def _games(options: Options) -> Iterator[tuple[str, Callable[[], Any], int, int]]:
    """Name, configuration, steps and seed of what is played."""
    for task in [options.task] if options.task else list(GAMES):
        config = load_task(task, parse_options(options.env_options))
        for seed in range(options.seeds):
            yield f"{task}, seed {seed}", lambda config=config: config, options.steps, seed
    steps = min(options.steps, max(_LEAST, options.steps // 10))
    for i in range(options.random):
        agents, window = _AGENTS[i // len(_WINDOWS) % len(_AGENTS)], _WINDOWS[i % len(_WINDOWS)]
        yield f"random configuration {i}", lambda i=i, a=agents, w=window: _random(i, a, w), steps, i


def _random(seed: int, agents: int, window: tuple[int, int]) -> Any:
    from cavalcade.envs.mettagrid.random_configs import random_config

    return random_config(seed, agents=agents, window=window)


def _wild(seed: int) -> float:
    """Share of actions out of range."""
    return 0.1 * (seed % 2)


def _record(options: Options, folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    for name, config, steps, seed in _games(options):
        path = folder / f"{name.replace(', seed', '').replace(' configuration', '').replace(' ', '-')}.npz"
        trace.save_trace(path, trace.record(config(), steps, seed=seed, wild=_wild(seed)))
        print(f"{path}: {path.stat().st_size:,} bytes", flush=True)
    return 0


def _replay(paths: list[Path]) -> int:
    """Replays recorded episodes and prints what was compared; returns 1 at the first difference."""
    total = 0
    for path in paths:
        found = trace.load_trace(path)
        try:
            with waiting(PREPARING):
                trace.replay(found)
        except DifferenceError as error:
            print(f"{path.name}: {error}\n1 difference, after {total:,} equal agent-steps")
            return 1
        total += found.agent_steps
        print(f"{path.name}: {found.agent_steps:,} agent-steps are equal", flush=True)
    count = f"{len(paths)} recorded {'file' if len(paths) == 1 else 'files'} of mettagrid {VERSION}"
    print(f"\n{count}, {total:,} agent-steps, 0 differences\ncompared after every step: {', '.join(trace.COMPARED)}")
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
