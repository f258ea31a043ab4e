"""`cavalcade report`: pictures of runs in one HTML file."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from cavalcade.cli.parse import parse
from cavalcade.errors import ConfigError
from cavalcade.report.curves import read_curve
from cavalcade.report.page import save_picture
from cavalcade.report.search import search_report, summary_figure
from cavalcade.report.training import curve_figure, training_report
from cavalcade.runs.directory import SEARCH, write_whole


@dataclass(frozen=True)
class Options:
    """Draws a search, or the learning curves of training runs, into a self-contained HTML file."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run directories."""
    out: Path | None = None
    """File to write; report.html in the first run's folder if not given."""
    picture: Path | None = None
    """Also write the picture alone to this file, as PNG, SVG or PDF by its ending."""


def run(args: list[str]) -> int:
    """Writes the page."""
    options = parse(Options, args, "report")
    if not options.runs:
        raise ConfigError("no run given; name one or more run directories")
    first = options.runs[0]
    out = options.out or first / "report.html"
    if (first / SEARCH).exists():
        if len(options.runs) > 1:
            raise ConfigError(f"{first} is a search; a search has a report of its own, name one at a time")
        text, figure = search_report(first), summary_figure(first)
    else:
        curves = [read_curve(path) for path in options.runs]
        text, figure = training_report(curves), curve_figure(curves)
    write_whole(out, text)
    print(out)
    if options.picture:
        save_picture(figure, options.picture)
        print(options.picture)
    return 0
