"""Directives that show options as a table, from the rows that `--help` prints: those of a command, or of a dataclass.

```{command} train cage2
```

```{options} cavalcade.targets.watch:WatchOptions
```
"""

from collections.abc import Iterator
from importlib import import_module

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

from cavalcade.cli.examples import EXAMPLES
from cavalcade.cli.help import Page, common_first, described
from cavalcade.cli.options import Option, options_of
from cavalcade.cli.pages import stored


class Command(Directive):
    """Usage, what the command does, arguments, options and examples."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        page = stored().get(self.arguments[0])
        if page is None:
            raise self.error(f"no command {self.arguments[0]!r}; it must be one of {', '.join(stored())}")
        return list(_parts(page))


class Options(Directive):
    """Options of a dataclass that no page of help shows, as module:name."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        module, _, name = self.arguments[0].partition(":")
        return [_table(options_of(getattr(import_module(module), name)))]


def _parts(page: Page) -> Iterator[nodes.Node]:
    yield nodes.literal_block(page.usage, page.usage, language="text")
    yield from (nodes.paragraph("", text) for text in page.about.split("\n\n") if text)
    yield _table(common_first(page))
    examples = EXAMPLES.get(page.key, ())
    if examples:
        text = "\n".join(f"$ {example}" for example in examples)
        yield nodes.literal_block(text, text, language="console")


def _table(options: list[Option]) -> nodes.Node:
    group = nodes.tgroup(cols=2)
    group += [nodes.colspec(colwidth=30), nodes.colspec(colwidth=70)]
    group += nodes.tbody("", *(_row(option) for option in options))
    return nodes.table("", group, classes=["options"])


def _row(option: Option) -> nodes.Node:
    name = nodes.entry("", nodes.paragraph("", "", nodes.literal("", option.spelt)))
    return nodes.row("", name, nodes.entry("", nodes.paragraph("", described(option))))


def setup(app: Sphinx) -> dict[str, bool]:
    """Adds the directives."""
    app.add_directive("command", Command)
    app.add_directive("options", Options)
    return {"parallel_read_safe": True}
