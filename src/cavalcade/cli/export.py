"""`cavalcade export`: a trained policy for use elsewhere."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from cavalcade.cli.parse import parse
from cavalcade.errors import RunError
from cavalcade.runs.export import check_onnx, export_onnx
from cavalcade.runs.policy import load_policy

_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Options:
    """Writes a policy as an ONNX graph with observation and action mask as inputs, and checks it against ours."""

    policy: tyro.conf.Positional[Path]
    """A run or a checkpoint."""
    onnx: Path
    """File to write."""
    member: int = 0
    """Which policy of a run with several."""


def run(args: list[str]) -> int:
    """Writes and checks."""
    options = parse(Options, args, "export")
    saved = load_policy(options.policy)
    saved.player(options.member)  # refuses a policy that is not there
    export_onnx(saved, options.member, options.onnx)
    gap = check_onnx(saved, options.member, options.onnx)
    if gap > _TOLERANCE:
        raise RunError(f"{options.onnx} differs from the policy by {gap:.1e}; it must be below {_TOLERANCE:.0e}")
    print(f"{options.onnx}: policy {options.member} of {saved.path}, largest difference to torch {gap:.1e}")
    return 0
