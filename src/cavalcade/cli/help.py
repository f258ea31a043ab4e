"""Help of a verb as text: the options people need first, how to resume, recipes, examples; all options on demand."""

import shutil
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cavalcade.cli.examples import COMMON, EXAMPLES
from cavalcade.cli.options import Option
from cavalcade.config.presets import recipe_names

HELP, HELP_ALL = ("-h", "--help"), "--help-all"
_SHORT = 14  # options that are shown without asking for all
_RESUME = Option("resume", "path", help="Resume a run from its newest checkpoint; instead of a target.")


def help_asked(args: Sequence[str]) -> bool:
    return any(arg in (*HELP, HELP_ALL) for arg in args)


@dataclass(frozen=True)
class Page:
    """The help page of a command."""

    command: str  # e.g. train cage2
    about: str
    options: tuple[Option, ...]

    @property
    def key(self) -> str:
        """The command without the name behind a prefix: train gym: stands for all Gymnasium environments."""
        return self.command[: self.command.find(":") + 1] or self.command

    @property
    def usage(self) -> str:
        """The command with its mandatory arguments."""
        places = [option.spelt for option in self.options if option.positional]
        needed = [option.spelt for option in self.options if option.required and not option.positional]
        return " ".join(["cavalcade", self.command, *places, *needed, "[options]"])


class HelpRequested(Exception):  # noqa: N818 — not an error
    """Raised instead of running a command whose arguments ask for help."""

    def __init__(self, page: Page):
        super().__init__(page.command)
        self.page = page


def render(page: Page, everything: bool, width: int = 0) -> str:
    """A page as text: the common options, or all."""
    width = min(width or shutil.get_terminal_size().columns, 110)
    verb, _, target = page.command.partition(" ")
    named = _named(page)
    shown = named if everything or len(named) <= _SHORT else list(_first(named, _common(page, named)))
    parts = [f"usage: {page.usage}", _filled(page.about, width)]
    if places := [option for option in page.options if option.positional]:
        parts.append("\n".join(["arguments:", *_rows(places, width)]))
    if shown:
        parts.append("\n".join(["options:" if len(shown) == len(named) else "common options:", *_rows(shown, width)]))
    if any(option.name == "recipe" for option in named):
        names = [name for name in recipe_names() if name.startswith(target) or not target]
        parts += [_filled(f"recipes: {', '.join(names)}", width)] if names else []
    if examples := EXAMPLES.get(page.key) or EXAMPLES.get(verb):
        parts.append("\n".join(["examples:", *(f"  {example}" for example in examples)]))
    if len(shown) < len(named):
        parts.append(f"All {len(named)} options: cavalcade {page.command} --help-all")
    return "\n\n".join(parts)


def common_first(page: Page) -> list[Option]:
    """All arguments and options of a page: arguments, then the common options, then the others."""
    named = _named(page)
    first = list(_first(named, _common(page, named)))
    places = [option for option in page.options if option.positional]
    return [*places, *first, *(option for option in named if option not in first)]


def _named(page: Page) -> list[Option]:
    """Options of a page that have a flag, with --resume."""
    verb, _, target = page.command.partition(" ")
    named = [option for option in page.options if not option.positional]
    if verb in ("train", "search") and target not in ("merge", "audit") and all(o.name != "resume" for o in named):
        named.insert(0, _RESUME)
    return named


def _common(page: Page, named: Sequence[Option]) -> Sequence[str]:
    """Names of the options people need first."""
    verb = page.command.partition(" ")[0]
    return COMMON.get(page.key) or COMMON.get(verb) or [option.name for option in named[:_SHORT]]


def _first(options: Sequence[Option], names: Sequence[str]) -> Iterator[Option]:
    """The options people need first; without a target, those that all targets have, and the budget."""
    for name in names:
        for option in options:
            if option.name == name and (not option.targets or name in ("episodes", "steps")):
                yield option


def _filled(text: str, width: int) -> str:
    """Paragraphs at the width of the terminal."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
    return "\n\n".join(textwrap.fill(paragraph, width, break_on_hyphens=False) for paragraph in paragraphs if paragraph)


def _rows(options: Sequence[Option], width: int) -> Iterator[str]:
    column = 2 + min(max(len(option.spelt) for option in options), 26) + 2
    for option in options:
        head = f"  {option.spelt}"
        lines = textwrap.wrap(described(option), max(width - column, 30), break_on_hyphens=False) or [""]
        if len(head) + 2 > column:
            yield head
        else:
            lines[0] = head.ljust(column) + lines[0]
        for i, line in enumerate(lines):
            yield line if i == 0 and len(head) + 2 <= column else " " * column + line


def described(option: Option) -> str:
    """What an option does, and its default."""
    text = (f"[{option.targets}] " if option.targets else "") + option.help
    value = option.default
    if option.kind == "switch" and value:
        text = f"Turn off: {text[:1].lower()}{text[1:]}"
    if option.kind == "switch" or option.required or value in (None, ""):
        return text
    if isinstance(value, list):
        value = ",".join(map(str, value))
    return f"{text} (default: {f'{value:g}' if isinstance(value, float) else value})"
