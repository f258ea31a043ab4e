"""`cavalcade bench envs`: which backend for which environment, beside those of others."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cavalcade.bench import envs, kills, machine
from cavalcade.cli.bench import write_figures
from cavalcade.cli.parse import check_folder, check_seconds, parse
from cavalcade.cli.waiting import waiting
from cavalcade.envs.cage2.cyborg import check_clone
from cavalcade.errors import ConfigError, at_least

_SYNC = "Gymnasium SyncVectorEnv"
_PROCESSES = ("Gymnasium AsyncVectorEnv", "SB3 SubprocVecEnv", "PufferLib Multiprocessing")
_STEPS = 60  # of uneven length

Part = Literal["cheap", "scaling", "uneven", "waiting", "cyborg", "kills"]


@dataclass(frozen=True)
class Options:
    """Measures how environments are hosted: all backends, and those of others, in one run."""

    parts: tuple[Part, ...] = ("cheap", "scaling", "uneven", "waiting")
    """What to measure; cyborg needs a clone, kills takes minutes."""
    seconds: float = 5.0
    """Time for each row."""
    envs: tuple[int, ...] = (64, 512)
    """Numbers of cheap environments."""
    workers: int = 2
    """Worker processes."""
    kills: int = 500
    """With part kills: workers to kill during one training."""
    cyborg: Path | None = None
    """With part cyborg: a clone of cage-challenge/cage-challenge-2."""
    cyborg_python: Path | None = None
    """With part cyborg: an interpreter with CybORG's old dependencies."""
    json: Path | None = None
    """Write the raw figures to this file."""


def run(args: list[str]) -> int:
    """Prints table by table."""
    options = parse(Options, args, "bench envs")
    check_seconds(options.seconds)
    check_folder("json", options.json)
    at_least("workers", options.workers, 1)
    at_least("kills", options.kills, 1)
    for count in options.envs:
        at_least("envs", count, 4 * options.workers)
    if "cyborg" in options.parts:
        if options.cyborg is None:
            raise ConfigError("parts has cyborg without --cyborg; name your clone of cage-challenge/cage-challenge-2")
        check_clone(options.cyborg)
    figures: dict[str, Any] = {"machine": machine.describe()}
    print(machine.line(), flush=True)
    tables: dict[str, Callable[[Options], Any]] = {
        "cheap": _cheap, "scaling": _scaling, "uneven": _uneven,
        "waiting": _waiting, "cyborg": _cyborg, "kills": _kills,
    }  # fmt: skip
    for part in options.parts:
        with waiting(f"measuring: {part}"):
            figures[part] = tables[part](options)
    write_figures(options.json, figures)
    return 0


def _cheap(options: Options) -> Any:
    """CartPole in every backend and every peer that is installed."""
    found = {n: envs.cheap(n, options.workers, options.seconds) for n in options.envs}
    print(f"\n{envs.CHEAP}, steps/s, {options.workers} workers" + "".join(f"{n:>22}" for n in options.envs))
    for name in next(iter(found.values())):
        row = "".join(f"{rates[name]:>13,.0f} {rates[name] / rates[_SYNC]:>6.2f}× " for rates in found.values())
        print(f"  {name:<30}{row}")
    for n, rates in found.items():
        processes = {name: rates[name] for name in _PROCESSES if name in rates}
        best = max(processes.values())
        for name in ("shared", "async"):
            print(f"  {name} at {n}: {rates[name] / best:.1f}× the best of {', '.join(processes)}")
    return found


def _scaling(options: Options) -> Any:
    """Shared and async over workers and environments."""
    workers, counts = (1, 2, 4), (16, 64, 256, 1024)
    print(f"\n{envs.CHEAP}, steps/s of shared / async" + "".join(f"{n:>9} envs   " for n in counts))
    found = {}
    for w in workers:
        rows = [envs.cheap(n, w, options.seconds / 2, peers=False) for n in counts]
        found[w] = dict(zip(counts, rows, strict=True))
        print(f"  {w} workers" + " " * 22 + "".join(f"{r['shared']:>8,.0f}/{r['async']:<8,.0f}" for r in rows))
    return found


def _uneven(options: Options) -> Any:
    """Steps of 1 to 5 ms, waited for and worked for."""
    found = {}
    for title, work, workers in (
        ("waiting for another program, 8 workers", False, 8),
        (f"computing, {options.workers} workers", True, options.workers),
    ):
        print(f"\nsteps of 1 to 5 ms, {title}, 16 environments, with the learner's forward passes")
        print(
            f"  {'':<18}{'steps/s':>9}{'':>8}{'learner waits':>15}{'longest wait':>14}{'longest step of a group':>25}"
        )
        first = None
        for u in envs.uneven(work, 16, workers, _STEPS):
            first = first or u.rate
            print(
                f"  {u.name:<18}{u.rate:>9,.0f}{u.rate / first:>7.2f}×{u.idle:>15.0%}{1000 * u.longest_wait:>11.1f} ms"
                f"{1000 * u.longest_step:>22.1f} ms",
                flush=True,
            )
            found[f"{title}: {u.name}"] = u._asdict()
    return found


def _waiting(options: Options) -> Any:
    """What the parent costs while it waits."""
    found = envs.waiting_share(min(options.seconds, 3.0), options.workers)
    shares = ", ".join(f"{name} {share:.1%}" for name, share in found.items())
    print(f"\nCPU share of the parent while workers take 20 ms for a step: {shares}", flush=True)
    return found


def _cyborg(options: Options) -> Any:
    """CybORG with its true state in every step."""
    assert options.cyborg is not None
    print(f"\nCybORG with true state, 20 games{'':<14}{'steps/s':>10}{'':>9}waits in an episode of 100 steps")
    found, first = {}, None
    for c in envs.cyborg(options.cyborg, options.cyborg_python, 20, options.workers, 100):
        first = first or c.rate
        waits = f"{c.waits_per_episode:>12,.0f} for {c.games} games each"
        print(f"  {c.name:<44}{c.rate:>10,.0f}{c.rate / first:>8.2f}×{waits}", flush=True)
        found[c.name] = c._asdict()
    return found


def _kills(options: Options) -> Any:
    """Workers killed all through a training."""
    found = kills.hail(options.kills, workers=options.workers)
    print(
        f"\n{found.kills} workers killed during a training of {found.updates} updates in {found.seconds:.0f} s: "
        f"{found.transitions:,} transitions, {found.wrong} of them lost, repeated or out of order; {found.broken} "
        f"episodes broken off; {found.restarts} restarts; {found.handles} files left open",
        flush=True,
    )
    return found._asdict()
