"""Writes the help pages: `python -m cavalcade.cli.write_pages`, after options were changed."""

import json
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from cavalcade.cli.help import HelpRequested, Page
from cavalcade.cli.options import Option
from cavalcade.cli.pages import FILE, commands


def live(command: str) -> Page:
    """A page from the dataclasses: the verb itself is asked for help."""
    verb, *words = command.split()
    try:
        import_module(f"cavalcade.cli.{verb}").run([*words, "--help"])
    except HelpRequested as asked:
        return Page(command, asked.page.about, asked.page.options)
    raise AssertionError(f"{command} --help is not answered by a page")


def as_text(pages: Sequence[Page]) -> str:
    """Pages as JSON, an option per line; options that are the same in several pages are stored once."""
    rows: list[str] = []
    found: dict[str, Any] = {}
    for page in pages:
        texts = [json.dumps(_row(option), ensure_ascii=False) for option in page.options]
        rows += [text for text in dict.fromkeys(texts) if text not in rows]
        found[page.command] = {"about": page.about, "options": [rows.index(text) for text in texts]}
    lines = [f"{json.dumps(command)}: {json.dumps(page, ensure_ascii=False)}" for command, page in found.items()]
    return '{"options": [\n' + ",\n".join(rows) + '\n],\n"pages": {\n' + ",\n".join(lines) + "\n}}\n"


def _row(option: Option) -> dict[str, Any]:
    """An option without what is as by default."""
    usual = Option(option.name)
    return {"name": option.name} | {k: v for k, v in vars(option).items() if v != getattr(usual, k)}


def main() -> None:
    text = as_text([live(command) for command in commands()])
    with open(str(FILE), "w") as file:
        file.write(text)
    print(f"{FILE}: {len(text):,} bytes")


if __name__ == "__main__":
    main()
