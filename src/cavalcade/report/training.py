"""The report of training runs: learning curves with the spread over seeds, scores, and the settings that differ."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from cavalcade.report.curves import Curve, smooth
from cavalcade.report.page import heading, page, paragraph, picture, table
from cavalcade.runs.heldout import Heldout
from cavalcade.targets.base import Score

_SETTLED = 0.1  # the axis of returns fits what comes after this share of a run
_NONE = "–"


def training_report(curves: Sequence[Curve], heldout: Sequence[Heldout | str | None] = ()) -> str:
    """HTML report of runs, each with one or more policies; heldout: scores of each, or why there are none."""
    return page(
        "Training",
        picture(curve_figure(curves)),
        paragraph(
            "Mean return of training episodes, with sampled actions. Line: mean over a run's policies. "
            "Band: minimum and maximum over policies, if a run has several. The axis fits all but the first tenth of "
            "each run, which may lie outside."
        ),
        table(
            ("run", "policies", "episodes each", "seconds", "final return", "minimum", "maximum"),
            [_row(curve) for curve in curves],
        ),
        paragraph("Final return: over the last 5 % of updates, or the last update in which an episode ended."),
        *(paragraph(f"{curve.name}: {remark}.") for curve in curves for remark in curve.remarks),
        *_heldout_parts(curves, heldout),
        *_settings_parts(curves),
    )


def curve_figure(curves: Sequence[Curve]) -> Figure:
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    settled = []
    for curve in curves:
        episodes, returns = smooth(curve)
        marker = "o" if len(episodes) == 1 else None
        (drawn,) = axes.plot(episodes, returns.mean(axis=1), marker=marker, label=curve.name, linewidth=1.5)
        if returns.shape[1] > 1:
            axes.fill_between(episodes, returns.min(axis=1), returns.max(axis=1), alpha=0.2, color=drawn.get_color())
        settled.append(returns[int(_SETTLED * len(returns)) :].ravel())
    low, high = float(np.concatenate(settled).min()), float(np.concatenate(settled).max())
    room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    axes.set_ylim(low - room, high + room)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    axes.yaxis.set_major_locator(MaxNLocator(8, min_n_ticks=4))
    axes.ticklabel_format(axis="y", style="plain", useOffset=False)
    axes.set_xlabel("episodes per policy")
    axes.set_ylabel("return")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def _row(curve: Curve) -> tuple[object, ...]:
    known = curve.final[~np.isnan(curve.final)]
    ends = [f"{x:.2f}" for x in (known.mean(), known.min(), known.max())] if len(known) else [_NONE] * 3
    return curve.name, len(curve.final), f"{curve.episodes[-1]:,.0f}", f"{curve.seconds[-1]:.1f}", *ends


def _heldout_parts(curves: Sequence[Curve], heldout: Sequence[Heldout | str | None]) -> list[str]:
    rows, notes = [], []
    for curve, found in zip(curves, heldout, strict=False):
        if isinstance(found, Heldout):
            rows += [(curve.name, s.name, _with_interval(s), f"{s.episodes:,}") for s in found.scores]
            notes += [paragraph(f"{curve.name}: evaluate, export and play use {found.member}.")] * bool(found.member)
        else:
            notes.append(paragraph(f"{curve.name}: {found or 'no checkpoint yet'}."))
    if not rows and not notes:
        return []
    head = ("run", "score", "mean ± 95 %", "episodes")
    return [heading("Held-out episodes"), *([table(head, rows)] if rows else []), *notes]


def _with_interval(score: Score) -> str:
    """Mean and interval, to two digits of the interval."""
    digits = max(0, 1 - math.floor(math.log10(score.interval))) if score.interval > 0 else 2
    return f"{score.mean:.{digits}f} ± {score.interval:.{digits}f}"


def _settings_parts(curves: Sequence[Curve]) -> list[str]:
    """The settings in which runs differ."""
    if len(curves) < 2:
        return []
    names = dict.fromkeys(name for curve in curves for name in curve.settings)
    values = {name: [_shown(curve.settings.get(name, "")) for curve in curves] for name in names}
    rows = [(name, *shown) for name, shown in values.items() if len(set(shown)) > 1]
    if not rows:
        return [heading("Settings"), paragraph("All settings are the same.")]
    return [heading("Settings that differ"), table(("setting", *(curve.name for curve in curves)), rows)]


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) or _NONE if isinstance(value, list) else str(value) if value != "" else _NONE
