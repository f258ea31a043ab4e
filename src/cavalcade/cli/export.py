"""`cavalcade export`: a trained policy for use elsewhere."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from cavalcade.cli.orders import open_policy
from cavalcade.cli.parse import parse
from cavalcade.config import SearchConfig
from cavalcade.errors import RunError
from cavalcade.runs.export import check_onnx, export_onnx, mask_words

_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Options:
    """Writes a policy as an ONNX graph with observation and action mask as inputs, and checks it against ours."""

    policy: tyro.conf.Positional[Path]
    """A run or a checkpoint; of a search, the run."""
    onnx: Path
    """File to write."""
    member: int | None = None
    """Which policy of a run with several; the first if not given. Of a search: the number of a training."""
    order: str | None = None
    """Of a search: the order whose policy is written, by name or with > between types, or best, the default."""


def run(args: list[str]) -> int:
    """Writes and checks."""
    options = parse(Options, args, "export")
    saved = open_policy(options.policy, options.order, options.member)
    member = 0 if isinstance(saved.config, SearchConfig) else options.member or 0
    saved.player(member)  # refuses a policy that is not there
    export_onnx(saved, member, options.onnx)
    gap = check_onnx(saved, member, options.onnx)
    if gap > _TOLERANCE:
        raise RunError(f"{options.onnx} differs from the policy by {gap:.1e}; it must be below {_TOLERANCE:.0e}")
    print(f"{options.onnx}: policy {member} of {saved.path}, largest difference to torch {gap:.1e}")
    if saved.order:
        print(f"order {saved.order}: {mask_words(saved)}")
    return 0
