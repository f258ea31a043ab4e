"""`cavalcade report`: pictures of runs in one HTML file."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from cavalcade.cli.parse import parse
from cavalcade.errors import ConfigError
from cavalcade.report.curves import read_curve
from cavalcade.report.page import save_picture
from cavalcade.report.training import curve_figure, training_report
from cavalcade.runs.directory import write_whole


@dataclass(frozen=True)
class Options:
    """Draws the learning curves of runs, with the spread of their seeds, into a self-contained HTML file."""

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
    curves = [read_curve(path) for path in options.runs]
    out = options.out or options.runs[0] / "report.html"
    write_whole(out, training_report(curves))
    print(out)
    if options.picture:
        save_picture(curve_figure(curves), options.picture)
        print(options.picture)
    return 0
