"""The report of a search: ranking, course, effects of precedences, compliance against reward."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from cavalcade.core.errors import RunError
from cavalcade.core.files import plain_json, read_text
from cavalcade.report.page import heading, page, paragraph, picture, table
from cavalcade.runs.files import SUMMARY
from cavalcade.search.records import read_rows
from cavalcade.search.verdict import iqm

_BARS = 25
_MUTED, _GREY = 0.25, (0.85, 0.85, 0.85, 1.0)  # share of the colour of uncertain effects; pairs that never bind


def search_report(summary: dict[str, Any], rows: list[dict[str, str]]) -> str:
    """HTML report of a finished search; see `read_search`."""
    names = _short_names(summary)
    return page(
        f"Workflow search on {summary['config']['target']}",
        paragraph(summary["answer"]),
        *(paragraph(note) for note in summary["notes"]),
        paragraph(
            f"{summary['headline']}. {summary['orders_trained']} orders, {summary['trainings']} trainings, "
            f"{summary['episodes']:,.0f} episodes of search, {summary['seconds']:.0f} s."
        ),
        heading("Ranking"),
        picture(ranking_figure(summary, names)),
        paragraph(
            "Posterior mean with 95 % interval, confirmation included; dots: trainings from scratch on fresh seeds, "
            "scored on held-out games."
        ),
        heading("Course of the search"),
        picture(course_figure(rows)),
        heading("What comes first?"),
        picture(precedence_figure(summary)),
        paragraph(
            "Gain in score of orders that put the row before the column, all else equal, with 95 % intervals "
            "corrected for the number of pairs; pale: within its uncertainty; grey: never binds, a negative control."
        ),
        heading("Compliance and reward"),
        picture(compliance_figure(rows)),
        heading("Controls"),
        table(
            ("trained as", "IQM", "each training"),
            [
                (name, f"{float(iqm(np.asarray(scores))):.2f}", ", ".join(f"{x:.2f}" for x in scores))
                for name, scores in summary["groups"].items()
                if scores
            ],
        ),
        paragraph(f"Initials: {', '.join(f'{short} {name}' for name, short in names.items())}."),
    )


def read_search(path: Path) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """Summary and rows of search.csv."""
    try:
        summary = plain_json(read_text(path / SUMMARY))
    except (OSError, ValueError) as error:
        raise RunError(f"{path} has no finished search to report on ({type(error).__name__})") from None
    return summary, read_rows(path)


def ranking_figure(summary: dict[str, Any], names: dict[str, str]) -> Figure:
    """Orders by posterior mean: the best and the worst."""
    rows = summary["ranking"]
    shown = rows if len(rows) <= _BARS else [*rows[: _BARS - 8], *rows[-8:]]
    figure = Figure(figsize=(8, 0.24 * len(shown) + 1), layout="constrained")
    axes = figure.add_subplot()
    y = np.arange(len(shown))[::-1]
    axes.errorbar(
        [r["mean"] for r in shown], y, xerr=[1.96 * r["deviation"] for r in shown], fmt="o", color="#345", capsize=2
    )
    for at, row in zip(y, shown, strict=True):
        again = [
            r["heldout"]
            for r in summary["results"]
            if r["member"]["purpose"] == "confirm" and r["order"] == row["order"]
        ]
        axes.plot(again, [at] * len(again), ".", color="#d62", markersize=7)
    axes.set_yticks(y, [_short(r["order"], names) for r in shown], family="monospace")
    axes.set_xlabel("score")
    axes.grid(alpha=0.3)
    return figure


def summary_figure(summary: dict[str, Any]) -> Figure:
    """The ranking as a separate figure."""
    return ranking_figure(summary, _short_names(summary))


def course_figure(rows: list[dict[str, str]]) -> Figure:
    """Scores in sequence, their posterior means before training, and the best score so far."""
    mine = [r for r in rows if r["purpose"] == "search" and r["kind"] == "order"]
    scores = np.array([float(r["score"]) for r in mine])
    believed = np.array([float(r["posterior_mean"] or "nan") for r in mine])
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes = figure.add_subplot()
    trainings = np.arange(1, len(scores) + 1)
    axes.plot(trainings, scores, ".", color="#888", label="score")
    axes.plot(trainings, believed, "_", color="#d62", label="posterior mean before")
    axes.step(trainings, np.maximum.accumulate(scores), where="post", color="#345", label="best score so far")
    axes.set_xlabel("trainings")
    axes.set_ylabel("score")
    axes.legend()
    axes.grid(alpha=0.3)
    return figure


def precedence_figure(summary: dict[str, Any]) -> Figure:
    """Effects of precedences as a heat map."""
    names = _subtasks(summary)
    shape = (len(names), len(names))
    effect, words, sure = np.zeros(shape), np.full(shape, "", object), np.zeros(shape, np.bool_)
    for e in summary["effects"]:
        i, j = names.index(e["a"]), names.index(e["b"])
        effect[i, j], effect[j, i] = e["mean"], -e["mean"]
        sure[i, j] = sure[j, i] = e["low"] > 0 or e["high"] < 0
        words[i, j] = f"{e['mean']:+.1f}\n{e['low']:+.1f} … {e['high']:+.1f}"
        words[j, i] = f"{-e['mean']:+.1f}\n{-e['high']:+.1f} … {-e['low']:+.1f}"
        if not e["binding"]:
            effect[i, j] = effect[j, i] = np.nan
    figure = Figure(figsize=(2.5 + 1.2 * len(names), 1.5 + 0.8 * len(names)), layout="constrained")
    axes = figure.add_subplot()
    limit = max(float(np.abs(np.nan_to_num(effect)).max()), 1e-9)
    scale = ScalarMappable(Normalize(-limit, limit), "RdBu")
    colours = cell_colours(scale.to_rgba(effect), sure, np.isnan(effect))
    axes.imshow(colours, aspect="auto")
    for i in range(len(names)):
        for j in range(len(names)):
            if i != j:
                colour = text_colour(colours[i, j])
                axes.text(j, i, words[i, j], ha="center", va="center", fontsize=8, color=colour)
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylabel("first")
    axes.set_xlabel("before")
    figure.colorbar(scale, ax=axes, label="gain in score")
    return figure


def cell_colours(colours: NDArray, sure: NDArray[np.bool_], never: NDArray[np.bool_]) -> NDArray:
    """Colours (n, n, 4) of effects: pale where they are within their uncertainty, grey where the pair never binds."""
    found = np.where(sure[..., None], colours, _MUTED * colours + (1 - _MUTED))
    found[never] = _GREY
    return found


def text_colour(cell: NDArray) -> str:
    """Black or white, whichever is read better on a colour."""
    return "black" if cell[:3] @ (0.299, 0.587, 0.114) > 0.5 else "white"


def compliance_figure(rows: list[dict[str, str]]) -> Figure:
    """Compliance against score, one point per training."""
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.add_subplot()
    for purpose, colour in (("search", "#345"), ("confirm", "#d62"), ("control", "#8a2")):
        mine = [r for r in rows if r["purpose"] == purpose and r["compliance"]]
        axes.plot(
            [float(r["compliance"]) for r in mine], [float(r["score"]) for r in mine], ".", color=colour, label=purpose
        )
    axes.set_xlabel("compliance in fresh games, by Blue's table")
    axes.set_ylabel("score")
    axes.legend()
    axes.grid(alpha=0.3)
    return figure


def _subtasks(summary: dict[str, Any]) -> list[str]:
    """All subtasks, in the best order if there is one."""
    return summary["best"].split(">") if summary["best"] else sorted({e[k] for e in summary["effects"] for k in "ab"})


def _short_names(summary: dict[str, Any]) -> dict[str, str]:
    """The shortest prefixes that distinguish subtasks."""
    names = _subtasks(summary)
    length = next(n for n in range(1, 99) if len({name[:n] for name in names}) == len(names))
    return {name: name[:length].upper() for name in names}


def _short(order: str, names: dict[str, str]) -> str:
    return " ".join(names[name] for name in order.split(">"))
