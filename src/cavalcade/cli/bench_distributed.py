"""`cavalcade bench distributed`: what Ray and torchrun cost beside this process, and what more machines would give."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cavalcade.bench import distributed, machine, scaling
from cavalcade.cli.bench import write_figures
from cavalcade.cli.parse import check_folder, check_seconds, parse
from cavalcade.cli.waiting import waiting
from cavalcade.config import GYM_PPO, SearchConfig
from cavalcade.jit import all_threads
from cavalcade.vector.source import gym_source

_PARTS = ("search", "environments", "ranks", "scaling")


@dataclass(frozen=True)
class Options:
    """Does the same work here, on Ray and over ranks, all on this machine. Takes about ten minutes."""

    parts: tuple[Literal["search", "environments", "ranks", "scaling"], ...] = _PARTS
    """search: trainings of orders; environments: hosted ones; ranks: torchrun; scaling: what messages cost, and what
    more machines would give."""
    seconds: float = 10.0
    """Time for each measurement, about."""
    json: Path | None = None
    """Write the raw figures to this file."""


def run(args: list[str]) -> int:
    """Prints each part as soon as it is measured."""
    options = parse(Options, args, "bench distributed")
    check_seconds(options.seconds)
    check_folder("json", options.json)
    figures: dict[str, Any] = {"machine": machine.describe()}
    print(machine.line())
    measure = {"search": _search, "environments": _environments, "ranks": _ranks, "scaling": _scaling}
    for part in options.parts:
        figures[part] = measure[part](options, figures)
    write_figures(options.json, figures)
    return 0


def _search(options: Options, _: dict[str, Any]) -> dict[str, float]:
    with waiting("training orders here and on Ray"):
        found = distributed.searches(options.seconds)
    print("\nsearch: the same 16 orders trained and scored, seconds")
    _beside_first(found, ".2f")
    return found


def _beside_first(found: dict[str, float], form: str) -> None:
    """A table of figures, each also as a multiple of the first."""
    first = next(iter(found.values()))
    for name, figure in found.items():
        print(f"    {name:<28}{figure:>10{form}}{figure / first:8.2f}×", flush=True)


def _environments(options: Options, _: dict[str, Any]) -> dict[str, dict[str, float]]:
    with waiting("training on hosted environments"):
        found = distributed.environments(options.seconds)
    print("\nenvironments: training included, two workers or actors, steps/s")
    for case, rates in found.items():
        print(f"  {case}")
        _beside_first(rates, ",.0f")
    return found


def _ranks(options: Options, _: dict[str, Any]) -> dict[str, dict[str, float]]:
    with waiting("training over ranks"):
        found = distributed.ranks(options.seconds)
    print("\nranks: CAGE-2, 200 environments × 100 steps, 4 epochs × 4 minibatches, steps/s")
    for case, rates in found.items():
        print(f"  {case:<18}" + "   ".join(f"{name} {rate:,.0f}" for name, rate in rates.items()), flush=True)
    return found


def _scaling(options: Options, figures: dict[str, Any]) -> dict[str, Any]:
    search, ppo = SearchConfig(), distributed.RANKS
    with waiting("measuring messages"):
        state, gradient = distributed.slice_bytes(search), distributed.gradient_bytes(ppo)
        c = distributed.constants(state)
        costs = distributed.fragment_costs(gym_source("CartPole-v1"), GYM_PPO)
    print(
        f"\nmessages on loopback: Ray task with its state {c.task * 1e3:.2f} ms, actor call {c.call * 1e3:.2f} ms, "
        f"object store {c.store / 1e9:.2f} GB/s; all-reduce of two ranks {c.reduce * 1e3:.2f} ms, "
        f"{c.reduce_bytes / 1e9:.2f} GB/s\n"
        f"CartPole: an actor plays {costs.play:,.0f} steps/s and sends {costs.step:.0f} bytes each, a learner learns "
        f"from {costs.learn:,.0f}/s on a core, a policy is {costs.weights:,} bytes\n"
        f"CAGE-2: where the training of an order stands is {state:,} bytes, a gradient {gradient:,}"
    )
    tables: dict[str, list[scaling.Row]] = {}
    if "search" in figures:
        seconds = all_threads() * figures["search"]["in this process"] / distributed.ORDERS  # of one core
        tasks = -(-int(10 * options.seconds) // search.ray.task_updates)
        tables["search on Ray, 120 orders × 5 rounds, trainings per hour"] = scaling.searching(
            trainings=600, seconds=seconds, state=state, tasks=tasks, task=c.task
        )
    fragment = GYM_PPO.update_steps * GYM_PPO.num_envs
    for what, play in (("CartPole", costs.play), ("steps of 1 ms", 1 / (1e-3 + 1 / costs.play))):
        tables[f"collection on Ray, {what}, a learner of 16 cores, steps/s"] = scaling.collecting(
            actor=play, learner=16 * costs.learn, step=costs.step, fragment=fragment, call=c.call, weights=costs.weights
        )
    if "ranks" in figures:
        samples, sums = ppo.num_envs * ppo.update_steps, ppo.epochs * ppo.minibatches
        tables[f"ranks of two cores, CAGE-2, {samples:,} samples of each and {sums} sums per update, steps/s"] = (
            scaling.sharing(
                rate=figures["ranks"]["64-64, fused"]["2 threads"], samples=samples, sums=sums,
                others=distributed.MESSAGES, gradient=gradient, latency=c.reduce,
            )
        )  # fmt: skip
    print("\nmodel: nodes of 16 cores unless said otherwise, 10 Gbit/s, 50 µs between machines (assumed)")
    for name, rows in tables.items():
        print(f"\n{name}")
        for row in rows:
            print(f"  {row.nodes:>5} nodes{row.rate:>16,.0f}   limited by {row.limit}")
    model = {name: [row._asdict() for row in rows] for name, rows in tables.items()}
    return {"constants": c._asdict(), "costs": costs._asdict(), "state": state, "gradient": gradient, "model": model}
