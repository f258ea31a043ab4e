"""Code blocks of the documents: found, run, and their output compared.

A comment above a block says what a test should know: `<!-- test: skip -->` (needs what a test machine lacks),
`<!-- test: long -->` (only `make docs-check` runs it), `<!-- test: varies -->` (runs there, but what it prints is not
compared: it depends on the processor; also `long, varies`), `<!-- test: file late.py -->` (the reader saves it so).
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"(?:^<!-- test: (.*?) -->\n\n?)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What depends on the machine or the moment.
_TIMING = re.compile(
    r"[\d,.]+ ?(k|M|G)? ?(steps/s|agent-steps/s|s\b)|\d+:\d\d(?= left)|\d{8}-\d{6}|[\d.]+%(?= of| coll| learn)"
)
_NUMBER = re.compile(r"[-−+]?\d[\d,]*(?:\.\d+)?(?:e[-+]\d+)?")
_HALF_WIDTH = re.compile(r"± ?[\d.]+")  # of intervals: they differ more between trainings than means do
_NOISE = ("update ", "preparing", "compiling", "evaluating", "measuring")  # lines of progress
_TOLERANCE = 0.25  # other processors round differently, and trainings part


class Block(NamedTuple):
    """One fenced block."""

    page: Path
    line: int
    language: str
    text: str
    note: str  # of the comment above

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


class Command(NamedTuple):
    """A command of a console block and the output that the page shows; None if it shows none."""

    text: str
    output: list[str] | None


def pages() -> list[Path]:
    """All pages: those in the root and those of the site."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(page for page in found if "_build" not in page.parts)


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page."""
    text = page.read_text()
    return [
        Block(page, text.count("\n", 0, match.start(3)), match[2], match[3], match[1] or "")
        for match in _BLOCK.finditer(text)
    ]


def commands(block: Block) -> Iterator[Command]:
    """Commands of a block: lines after `$ ` with their output, or lines that begin with a program's name."""
    if block.language not in ("", "console"):
        return
    current: Command | None = None
    for line in block.text.splitlines():
        if line.startswith("$ "):
            if current:
                yield current
            current = Command(_plain(line[2:]), [])
        elif current and current.output is not None:
            current.output.append(line)
        elif re.match(r"(cavalcade|python|torchrun) ", line):
            yield Command(_plain(line), None)
    if current:
        yield current


def _plain(command: str) -> str:
    """A command without the comment behind it."""
    return re.split(r"\s+# ", command)[0].strip()


def differences(expected: Sequence[str], printed: Sequence[str]) -> list[str]:
    """Lines that the page shows and the command did not print, in sequence.

    `…` stands for anything. Times, speeds and lines of progress are not compared; other numbers may differ
    by a quarter; half-widths of intervals are not compared.
    """
    rest = [line.rstrip() for line in printed]
    missing, at = [], 0
    for line in expected:
        line = line.rstrip()
        if not line or line == "…" or line.lstrip().startswith(_NOISE):
            continue
        found = next((i for i in range(at, len(rest)) if _same(line, rest[i])), None)
        if found is None:
            missing.append(line)
        else:
            at = found + 1
    return missing


def _same(expected: str, printed: str) -> bool:
    parts = [_TIMING.sub("T", part) for part in expected.split("…")]
    printed = _TIMING.sub("T", printed)
    if not re.fullmatch(r".*".join(re.escape(_masked(part)) for part in parts), _masked(printed)):
        return False
    first, last = (_NUMBER.findall(_HALF_WIDTH.sub("", parts[i])) for i in (0, -1))
    numbers = _NUMBER.findall(_HALF_WIDTH.sub("", printed))
    pairs = [*zip(first, numbers, strict=False), *zip(reversed(last), reversed(numbers), strict=False)]
    return all(_close(_value(a), _value(b)) for a, b in pairs)


def _masked(line: str) -> str:
    """A line without numbers, and without spaces, whose number follows from theirs."""
    return "".join(_NUMBER.sub("N", line).split())


def _value(text: str) -> float:
    return float(text.replace(",", "").replace("−", "-"))


def _close(a: float, b: float) -> bool:
    return abs(a - b) <= max(_TOLERANCE * abs(a), 0.2)
