"""Runs what the tutorials tell the reader to run, in a fresh folder each, and compares what is printed.

python -m tools.check_docs                     # all tutorials, and long blocks of other pages: some minutes
python -m tools.check_docs defender red        # two tutorials
python -m tools.check_docs README.md           # long blocks of a page
"""

import difflib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools.doc_blocks import ROOT, Block, blocks, commands, differences, pages

TUTORIALS = ROOT / "docs" / "tutorials"


def main(names: list[str]) -> int:
    tutorials = sorted(TUTORIALS.glob("*.md"))
    others = [
        page
        for page in pages()
        if page not in tutorials and any(block.note.startswith("long") for block in blocks(page))
    ]
    if names:
        known = {page.stem: page for page in tutorials} | {str(page.relative_to(ROOT)): page for page in others}
        if unknown := [name for name in names if name not in known]:
            sys.exit(f"{unknown[0]!r} has nothing to check; it must be one of {', '.join(known)}")
        chosen = [known[name] for name in names]
    else:
        chosen = [*tutorials, *others]
    faults = [fault for page in chosen for fault in check(page, page in tutorials)]
    print(*faults, f"{len(faults)} faults", sep="\n")
    return 1 if faults else 0


def check(page: Path, whole: bool) -> list[str]:
    """Runs a page from top to bottom; whole: all of its blocks, else only the long ones."""
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for block in blocks(page):
            if block.note.startswith("skip") or (not whole and not block.note.startswith("long")):
                continue
            start = time.monotonic()
            found = list(_check_block(block, Path(folder)))
            faults += found
            if block.language in ("python", "console", ""):
                print(f"{block.name}: {time.monotonic() - start:.0f} s, {len(found)} faults", flush=True)
    return faults


def _check_block(block: Block, folder: Path) -> list[str]:
    kind, _, name = block.note.partition(" ")
    if kind == "file":
        (folder / name).write_text(block.text)
        return []
    if block.language == "python":
        return [f"{block.name}: {text}" for text in _run([sys.executable, "-c", block.text], folder)[1]]
    faults = []
    for command in commands(block):
        printed, errors = _run(["bash", "-c", command.text], folder)
        shown_error = command.output and any(line.startswith("cavalcade ") for line in command.output)
        faults += [f"{block.name}: {command.text}: {text}" for text in errors if not shown_error]
        missing = differences(command.output or [], printed) if "varies" not in block.note else []
        faults += [
            f"{block.name}: {command.text}\n  shown:   {line}\n  closest: {_closest(line, printed)}" for line in missing
        ]
    return faults


def _closest(line: str, printed: list[str]) -> str:
    """The printed line that is most like one that was expected."""
    return next(iter(difflib.get_close_matches(line, printed, 1, 0.0)), "nothing")


def _run(command: list[str], folder: Path) -> tuple[list[str], list[str]]:
    """Lines that a command prints, and a fault if it fails."""
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = done.stdout.splitlines()
    return lines, [f"exit status {done.returncode}: {' / '.join(lines[-3:])}"] if done.returncode else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
