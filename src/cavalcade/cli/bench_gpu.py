"""`cavalcade bench gpu`: the simulator on a GPU."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cavalcade.bench import machine
from cavalcade.cli.bench import write_figures
from cavalcade.cli.parse import check_folder, parse
from cavalcade.errors import at_least


@dataclass(frozen=True)
class Options:
    """Measures steps per second of CAGE-2 on one GPU, uniform random Blue."""

    envs: tuple[int, ...] = (4096, 65_536, 262_144, 1_048_576)
    """Numbers of environments."""
    reds: tuple[Literal["bline", "meander"], ...] = ("bline", "meander")
    """Who attacks."""
    json: Path | None = None
    """Write the raw figures to this file."""


def run(args: list[str]) -> int:
    """Prints a table."""
    options = parse(Options, args, "bench gpu")
    check_folder("json", options.json)
    for count in options.envs:
        at_least("envs", count, 1)
    from cavalcade.bench.gpu import simulator
    from cavalcade.envs.cage2.cuda import check_device

    check_device()
    import torch

    name = torch.cuda.get_device_name()
    print(f"{name}; {machine.line()}\nsteps/s, random Blue, packed observations, CUDA graph, median")
    print(f"{'environments':>14}" + "".join(f"{red:>18}" for red in options.reds))
    figures: dict[str, Any] = {"machine": machine.describe(), "device": name, "simulator": {}}
    for count in options.envs:
        found = {red: simulator(count, red) for red in options.reds}
        figures["simulator"][count] = found
        print(f"{count:>14,}" + "".join(f"{rate:>18,.0f}" for rate in found.values()), flush=True)
    write_figures(options.json, figures)
    return 0
