"""`cavalcade verify [FILE…]`: are recorded episodes of CybORG the same in our simulator? `verify mettagrid` aside."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cavalcade.cli.options import Positional
from cavalcade.cli.parse import parse
from cavalcade.cli.recorded import expand
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.trace import COMPARED, SHIPPED, load_trace, replay
from cavalcade.runs.waiting import PREPARING, waiting


@dataclass(frozen=True)
class Options:
    """Replays recorded episodes with their random outcomes forced, and compares every field after every step."""

    files: Positional[tuple[Path, ...]] = ()
    """Files of recorded episodes (.npz), or folders of them; by default the episodes that come with Cavalcade."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Device of our simulator."""


def run(args: list[str]) -> int:
    if args[:1] == ["mettagrid"]:
        from cavalcade.cli import verify_mettagrid

        return verify_mettagrid.run(args[1:])
    options = parse(Options, args, "verify")
    return compare(list(expand(options.files or (SHIPPED,))), options.device)


def compare(paths: list[Path], device: str = "cpu") -> int:
    """Replays files and prints what was compared; returns 1 at the first difference."""
    kind = _kind(device)
    episodes = steps = 0
    for path in paths:
        trace = load_trace(path)
        with waiting(PREPARING):
            difference = next(replay(trace, kind), None)
        if difference:
            print(f"{difference}\n1 mismatch in {path.name}, after {episodes} equal episodes")
            return 1
        episodes += trace.episodes
        steps += trace.episodes * trace.steps
        print(f"{path.name}: {trace.episodes} episodes of {trace.steps} steps are equal", flush=True)
    print(
        f"\n{len(paths)} {'file' if len(paths) == 1 else 'files'}, {episodes:,} episodes, {steps:,} steps, 0 mismatches"
    )
    print(f"compared after every step, in both observation variants: {', '.join(COMPARED)}")
    return 0


def _kind(device: str) -> type[Cage2]:
    """Simulator of a device; imports the CUDA one only if requested."""
    if device == "cpu":
        return Cage2
    from cavalcade.core.cuda import check_device
    from cavalcade.envs.cage2.cuda import CudaCage2

    check_device()
    return CudaCage2
