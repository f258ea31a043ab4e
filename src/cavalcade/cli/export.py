"""`cavalcade export`: writes a trained policy as ONNX."""

from dataclasses import dataclass
from pathlib import Path

from cavalcade.api import load_policy
from cavalcade.cli.options import Positional
from cavalcade.cli.parse import check_folder, parse
from cavalcade.core.errors import RunError
from cavalcade.runs.directory import is_search
from cavalcade.runs.export import check_onnx, export_onnx, interface
from cavalcade.runs.export_order import mask_words
from cavalcade.targets import target_named

_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Options:
    """Writes a policy as an ONNX graph with observation and action mask as inputs, and checks it against PyTorch.

    The memory of a recurrent policy is an input and an output.
    """

    policy: Positional[Path]
    """Run, checkpoint or search."""
    onnx: Path
    """File to write."""
    member: int | None = None
    """Index of the policy in a run with several; by default the best one on validation games.
    Of a search: number of a training in search.csv."""
    order: str | None = None
    """Of a search: order whose policy is written, by name or as types joined with >; by default the best."""


def run(args: list[str]) -> int:
    options = parse(Options, args, "export")
    check_folder("onnx", options.onnx)
    searched = is_search(options.policy)
    saved = load_policy(options.policy, order=options.order, member=options.member if searched else None)
    member, which = target_named(saved.config.target).member(saved, None if searched else options.member)
    export_onnx(saved, member, options.onnx)
    gap = check_onnx(saved, member, options.onnx)
    if gap > _TOLERANCE:
        raise RunError(f"{options.onnx} differs from the policy by {gap:.1e}; it must be below {_TOLERANCE:.0e}")
    name = f"{saved.path}, {which}" if which else str(saved.path)
    print(f"{options.onnx}: {name}, largest difference from torch {gap:.1e}")
    print(interface(options.onnx))
    if order := getattr(saved, "order", ""):
        print(f"order {order}: {mask_words(saved)}")
    return 0
