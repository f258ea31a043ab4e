"""Self-contained HTML reports: text, tables, inline plots."""

import html
import io
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib.figure import Figure

from cavalcade.core.errors import ConfigError, RunError
from cavalcade.runs.durable import replacing

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1rem 0; } td, th { padding: .2rem .8rem; text-align: right; }
th { border-bottom: 1px solid #888; } td:first-child, th:first-child { text-align: left; }
svg { max-width: 100%; height: auto; } code { background: #f3f3f3; padding: 0 .2rem; }
"""


def page(title: str, *parts: str) -> str:
    return (
        f"<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>{html.escape(title)}</title>"
        f"<style>{_STYLE}</style></head>\n<body><h1>{html.escape(title)}</h1>\n{chr(10).join(parts)}\n</body></html>\n"
    )


def heading(text: str) -> str:
    return f"<h2>{html.escape(text)}</h2>"


def paragraph(text: str) -> str:
    return f"<p>{html.escape(text)}</p>"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    top = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{top}</tr>{body}</table>"


def picture(figure: Figure) -> str:
    """A figure as inline SVG."""
    text = io.StringIO()
    figure.savefig(text, format="svg", bbox_inches="tight")
    drawn = text.getvalue()
    return drawn[drawn.index("<svg") :]


def save_picture(figure: Figure, path: Path) -> None:
    """Saves a figure to a file; the suffix selects the format."""
    kinds = sorted(figure.canvas.get_supported_filetypes())
    if path.suffix.removeprefix(".") not in kinds:
        raise ConfigError(f"picture is {path}; it must end in one of {', '.join(kinds)}")
    try:
        with replacing(path) as aside:
            figure.savefig(aside, bbox_inches="tight", dpi=150, format=path.suffix.removeprefix("."))
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror}") from None
