"""`cavalcade export`: writes a trained policy as ONNX, as one file for Cavalcade, or as an agent for CybORG."""

from dataclasses import dataclass
from pathlib import Path

from cavalcade.api import load_policy
from cavalcade.cli.options import Positional
from cavalcade.cli.parse import check_folder, parse
from cavalcade.core.errors import ConfigError, RunError
from cavalcade.runs.directory import is_search
from cavalcade.runs.export import check_onnx, export_onnx, interface
from cavalcade.runs.export_agent import export_agent
from cavalcade.runs.export_order import mask_words
from cavalcade.runs.policies import is_file
from cavalcade.runs.policy_file import SUFFIX, write_policy_file
from cavalcade.targets import target_named

_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Options:
    """Writes a policy as an ONNX graph with observation and action mask as inputs, and checks it against PyTorch.

    The memory of a recurrent policy is an input and an output. --file writes the policy and its settings as one file
    that every command takes in place of a run; --agent an agent for the original CybORG that needs only NumPy.
    """

    policy: Positional[Path]
    """Run, checkpoint, search, policy file or model:NAME."""
    onnx: Path | None = None
    """ONNX file to write."""
    file: Path | None = None
    """Policy file (.safetensors) to write."""
    agent: Path | None = None
    """Python file to write, with the class BlueAgent for a clone of cage-challenge/cage-challenge-2."""
    member: int | None = None
    """Index of the policy in a run with several; by default the best one on validation games.
    Of a search: number of a training in search.csv."""
    order: str | None = None
    """Of a search: order whose policy is written, by name or as types joined with >; by default the best."""


def run(args: list[str]) -> int:
    options = parse(Options, args, "export")
    if options.onnx is options.file is options.agent is None:
        raise ConfigError("nothing to write; give --onnx FILE, --file FILE or --agent FILE")
    if options.file is not None and options.file.suffix != SUFFIX:
        raise ConfigError(f"file is {options.file}; its name must end with {SUFFIX}")
    for given in ("onnx", "file", "agent"):
        check_folder(given, getattr(options, given))
    searched = is_search(options.policy)
    saved = load_policy(options.policy, order=options.order, member=options.member if searched else None)
    member, which = target_named(saved.config.target).member(saved, None if searched else options.member)
    name = f"{saved.path}, {which}" if which else str(saved.path)
    if options.file is not None:
        if searched:
            raise ConfigError(
                f"{options.policy} is a search; --file writes policies of trainings: use --onnx, or train the order "
                f"with: cavalcade train cage2 --order '{saved.order}'"
            )
        _write_file(options.file, saved.path, member)
        print(f"{options.file}: {name}")
    if options.agent is not None:
        export_agent(saved, member, options.agent)
        print(f"{options.agent}: {name}; its first lines say how to play it in CybORG")
    if options.onnx is None:
        return 0
    export_onnx(saved, member, options.onnx)
    gap = check_onnx(saved, member, options.onnx)
    if gap > _TOLERANCE:
        raise RunError(f"{options.onnx} differs from the policy by {gap:.1e}; it must be below {_TOLERANCE:.0e}")
    print(f"{options.onnx}: {name}, largest difference from torch {gap:.1e}")
    print(interface(options.onnx))
    if order := getattr(saved, "order", ""):
        print(f"order {order}: {mask_words(saved)}")
    return 0


def _write_file(path: Path, source: Path, member: int) -> None:
    if is_file(source):
        raise ConfigError(f"{source} is one file already; copy it, or give a run")
    write_policy_file(path, source, member)
