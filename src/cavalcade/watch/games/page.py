"""A game as one HTML file that needs nothing else: modules, style and data of the live page in one text."""

import html
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

STATIC = Path(__file__).parents[1] / "static"
ENTRY = "standalone"
_STYLES = ("base.css", "game.css")
_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?:async )?(?:function|class|const) (\w+)", re.MULTILINE)
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'; \
style-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
<header class="bar"><span class="brand">Cavalcade</span><span class="spring"></span>
<button id="theme" class="icon" type="button" aria-label="Switch between light and dark">◐</button></header>
<main id="main" tabindex="-1"></main>
<noscript>This page needs JavaScript.</noscript>
<script type="application/json" id="game">{data}</script>
<script type="module">
{script}
</script>
</body>
</html>
"""


def game_page(game: dict[str, Any]) -> str:
    """The page of a game given as plain data."""
    meta = game["meta"]
    title = meta["title"] if game["kind"] == "grid" else f"{meta['blue']} against {meta['red']}"
    data = json.dumps(game, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    style = "\n".join((STATIC / name).read_text(encoding="utf-8") for name in _STYLES)
    return _PAGE.format(title=html.escape(title), style=style, data=data, script=bundled(ENTRY))


@cache
def bundled(entry: str) -> str:
    """A module and all that it imports as one script; each module becomes a function that returns its exports.

    Modules import by name from their own folder (`import { a, b } from "./x.js";`) and export declarations.
    """
    done: list[str] = []
    parts: list[str] = []

    def add(name: str) -> None:
        if name in done:
            return
        done.append(name)
        source = (STATIC / f"{name}.js").read_text(encoding="utf-8")
        for _, other in _IMPORT.findall(source):
            add(other)
        exported = ", ".join(_EXPORT.findall(source))
        body = _IMPORT.sub(lambda found: f"const {{{found[1]}}} = modules.{found[2]};\n", source)
        body = re.sub(r"^export ", "", body, flags=re.MULTILINE)
        parts.append(f"modules.{name} = (() => {{\n{body}\nreturn {{ {exported} }};\n}})();")

    add(entry)
    return "const modules = {};\n" + "\n".join(parts)
