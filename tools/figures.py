"""Numbers of tables in the documents: kept in docs/data/figures, and written into the pages from there.

    python -m tools.figures                         # every table, what measures it, where and when it was measured
    python -m tools.figures measure models payoff   # runs the commands; scores do not depend on the machine
    python -m tools.figures measure sim speedup     # speeds do: on a quiet machine only
    python -m tools.figures write                   # the tables between <!-- figures: NAME --> and <!-- end -->
    python -m tools.figures record NAME --command COMMAND --machine MACHINE

`record` keeps the table that stands between the comments of NAME: for what a script prints, or what needs a machine
that is not at hand. A cell of a recorded table may be that of another one: {figure: row: column}.
"""

import argparse
import datetime
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.doc_blocks import ROOT, pages
from tools.tables import DATA, FIGURES, markdown, stored

_PLACE = re.compile(r"(<!-- figures: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
_NUMBER = re.compile(r"(?<![\w-])[-−+]?\d")


def show() -> None:
    """Lists all figures."""
    for name in sorted({*FIGURES, *(file.stem for file in DATA.glob("*.json"))}):
        kept = stored(name) if (DATA / f"{name}.json").exists() else {}
        command = kept.get("command") or "; ".join(kept.get("commands", ())) or "made of other files"
        print(f"{name:<22}{kept.get('date', ''):<12}{kept.get('machine', '')}\n{'':<22}{command}")


def measure(names: list[str]) -> None:
    """Runs the commands of figures and keeps what they wrote."""
    for name in names or [name for name, figure in FIGURES.items() if figure.commands]:
        found = []
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "out.json"
            for command in FIGURES[name].commands:
                print(f"$ cavalcade {command}", flush=True)
                run = [sys.executable, "-m", "cavalcade", *command.split(), "--json", str(file)]
                subprocess.run(run, check=True, cwd=ROOT / "examples", stdout=subprocess.DEVNULL)
                found.append(json.loads(file.read_text()))
        about = {"commands": [f"cavalcade {command}" for command in FIGURES[name].commands], "date": _today()}
        machine = found[0].get("machine", {})
        if machine:
            about["machine"] = f"{machine['processor']}, {machine['cores']} cores"
        _store(name, about | {"found": found})


def record(name: str, command: str, machine: str) -> None:
    """Keeps the table that a page has, with the command that printed its numbers and the machine."""
    (table,) = {place[3] for page in pages() for place in _PLACE.finditer(page.read_text()) if place[2] == name}
    head, rule, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines())
    align = "".join("r" if cell.endswith(":") else "l" for cell in rule)
    _store(name, {"command": command, "machine": machine, "date": _today(), "align": align, "table": [head, *rows]})


def write() -> None:
    """Writes all tables."""
    for page in pages():
        text = page.read_text()
        new = written(text)
        if new != text:
            page.write_text(new)
            print(page.relative_to(ROOT))


def written(text: str) -> str:
    """A page with its tables made anew."""
    return _PLACE.sub(lambda place: f"{place[1]}{markdown(place[2])}{place[4]}", text)


def unmarked(text: str) -> Iterator[str]:
    """First lines of the tables of a page that have numbers, and no file that the numbers come from."""
    for table in _TABLE.findall(_PLACE.sub("", _FENCED.sub("", text))):
        head, _, *rows = table.splitlines()
        if _NUMBER.search(re.sub(r"`[^`]*`|\]\([^)]*\)", "", "\n".join(rows))):
            yield head


def _store(name: str, kept: dict[str, Any]) -> None:
    """Writes a file; a row of a table is one line."""
    DATA.mkdir(exist_ok=True)
    table = kept.pop("table", None)
    text = json.dumps(kept, indent=1, ensure_ascii=False)
    if table:
        rows = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in table)
        text = f'{text[:-2]},\n "table": [\n{rows}\n ]\n}}'
    (DATA / f"{name}.json").write_text(text + "\n")


def _today() -> str:
    return datetime.date.today().isoformat()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb")
    measured = [name for name, figure in FIGURES.items() if figure.commands]
    verbs.add_parser("measure").add_argument("names", nargs="*", help=", ".join(measured))
    verbs.add_parser("write")
    recording = verbs.add_parser("record")
    recording.add_argument("name")
    recording.add_argument("--command", required=True)
    recording.add_argument("--machine", required=True)
    given = parser.parse_args()
    if given.verb == "measure":
        if unknown := set(given.names) - set(measured):
            parser.error(f"no command measures {', '.join(unknown)}; it must be one of {', '.join(measured)}")
        measure(given.names)
    elif given.verb == "record":
        record(given.name, given.command, given.machine)
    elif given.verb == "write":
        write()
    else:
        show()


if __name__ == "__main__":
    main()
