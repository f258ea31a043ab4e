"""`cavalcade report`: plots of runs in one HTML file."""

from dataclasses import dataclass
from pathlib import Path

from cavalcade.cli.options import Positional
from cavalcade.cli.parse import check_folder, import_from_here, parse
from cavalcade.core.errors import CavalcadeError, ConfigError, RunError
from cavalcade.report.curves import read_curve
from cavalcade.report.page import save_picture
from cavalcade.report.search import read_search, search_report, summary_figure
from cavalcade.report.training import curve_figure, training_report
from cavalcade.runs.directory import write_whole
from cavalcade.runs.files import REPORT, SEARCH, SUMMARY
from cavalcade.runs.heldout import Heldout, heldout_of
from cavalcade.runs.policies import load_policy
from cavalcade.runs.waiting import waiting
from cavalcade.targets import target_named


@dataclass(frozen=True)
class Options:
    """Plots a search, or the learning curves of training runs, in a self-contained HTML file."""

    runs: Positional[tuple[Path, ...]]
    """Run directories."""
    out: Path | None = None
    """File to write; by default report.html in the first run directory."""
    picture: Path | None = None
    """Also write the plot to this file; the suffix selects PNG, SVG or PDF."""
    member: int | None = None
    """Of training runs: show this policy only, by its index."""
    heldout: bool = True
    """Of training runs: also show scores on held-out episodes, and play them now if a run was not scored at its end."""


def _heldout(path: Path, member: int | None) -> Heldout | str | None:
    """Scores of a run or of one of its policies, or why there are none."""
    try:
        with waiting("evaluating on held-out games"):
            if member is None:
                return heldout_of(path, lambda: load_policy(path))
            policy = load_policy(path)[member]
            scores = target_named(policy.config.target).heldout(policy).scores
            named = (s._replace(name=s.name.partition(" seed ")[0]) for s in scores)  # the run says which policy it is
            return Heldout(policy.update, "", tuple(named))
    except CavalcadeError as error:
        return f"no scores, {error}"


def run(args: list[str]) -> int:
    import_from_here()
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
        if options.member is not None:
            raise ConfigError(f"member is {options.member}; {first} is a search, its report shows all: leave it out")
        try:
            summary, rows = read_search(first)
            text, figure = search_report(summary, rows), summary_figure(summary)
        except CavalcadeError:
            raise
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
            what = f"{SUMMARY} or {SEARCH} is damaged ({type(error).__name__})"
            raise RunError(f"{first} cannot be reported on: {what}; restore it") from None
    else:
        curves = [read_curve(path) for path in options.runs]
        if options.member is not None:
            curves = [curve.only(options.member) for curve in curves]
        heldout = [_heldout(path, options.member) for path in options.runs] if options.heldout else []
        text, figure = training_report(curves, heldout), curve_figure(curves)
    write_whole(out, text)
    print(out)
    if options.picture:
        save_picture(figure, options.picture)
        print(options.picture)
    return 0
