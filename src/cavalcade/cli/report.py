"""`cavalcade report`: plots of runs in one HTML file."""

from dataclasses import dataclass
from pathlib import Path

from cavalcade.cli.options import Positional
from cavalcade.cli.parse import check_folder, parse
from cavalcade.core.errors import ConfigError
from cavalcade.report.curves import read_curve
from cavalcade.report.page import save_picture
from cavalcade.report.search import search_report, summary_figure
from cavalcade.report.training import curve_figure, training_report
from cavalcade.runs.directory import REPORT, SEARCH, write_whole


@dataclass(frozen=True)
class Options:
    """Plots a search, or the learning curves of training runs, in a self-contained HTML file."""

    runs: Positional[tuple[Path, ...]]
    """Run directories."""
    out: Path | None = None
    """File to write; by default report.html in the first run directory."""
    picture: Path | None = None
    """Also write the plot to this file; the suffix selects PNG, SVG or PDF."""


def run(args: list[str]) -> int:
    options = parse(Options, args, "report")
    if not options.runs:
        raise ConfigError("no run given; name one or more run directories")
    check_folder("out", options.out)
    check_folder("picture", options.picture)
    first = options.runs[0]
    out = options.out or first / REPORT
    if (first / SEARCH).exists():
        if len(options.runs) > 1:
            raise ConfigError(f"{first} is a search, which has its own report; name one at a time")
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
