"""Help pages of all verbs as package data: help and completion need no import of what a verb works with.

`python -m cavalcade.cli.write_pages` writes them anew; a test compares them with the dataclasses.
"""

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from cavalcade.cli.help import Page
from cavalcade.cli.options import Option
from cavalcade.targets import SHIPPED

FILE = files("cavalcade.cli") / "pages.json"
NO_PAGE = Page("", "", ())
# The first words of each verb that have a page of their own; RUN stands for any other word.
FIRST_WORDS = {
    "bench": ("envs", "sim", "images", "mettagrid", "gpu", "gp", "orders", "speedup", "distributed", "train"),
    "completion": (),
    "evaluate": (),
    "export": (),
    "models": (),
    "payoff": (),
    "play": ("cage2", "mettagrid"),
    "profile": SHIPPED,
    "record": ("RUN",),
    "report": (),
    "search": ("cage2", "gridworld", "cyborg", "merge", "audit"),
    "train": SHIPPED,
    "tune": SHIPPED,
    "verify": ("mettagrid", "RUN"),
    "watch": (),
}


def commands() -> list[str]:
    """All commands with a page."""
    found = [f"{verb} {word}" for verb, words in FIRST_WORDS.items() for word in words]
    return sorted([*found, *(verb for verb in FIRST_WORDS if verb != "bench")])  # it lists its measurements itself


def page_of(verb: str, args: Sequence[str]) -> Page | None:
    """The stored page for a command line; None if only the verb itself knows, as for targets of other packages."""
    words, first = FIRST_WORDS.get(verb, ()), args[0] if args and not args[0].startswith("-") else ""
    if not first or not words:
        return stored().get(verb)
    for word in words:
        if first == word or (word.endswith(":") and first.startswith(word)):
            page = stored()[f"{verb} {word}"]
            return Page(f"{verb} {first}", page.about, page.options)
    page = stored().get(f"{verb} RUN")
    return page and Page(verb, page.about, page.options)


@cache
def stored() -> dict[str, Page]:
    """All stored pages by command."""
    plain = json.loads(FILE.read_text())
    options = [_option(row) for row in plain["options"]]
    return {
        command: Page(command, page["about"], tuple(options[i] for i in page["options"]))
        for command, page in plain["pages"].items()
    }


def _option(row: dict[str, Any]) -> Option:
    row |= {name: tuple(row.get(name, ())) for name in ("path", "choices")}
    return Option(**row)
