"""The report of training runs: learning curves with the spread over seeds, and final returns."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from cavalcade.report.curves import Curve, smooth
from cavalcade.report.page import page, paragraph, picture, table

_TAIL = 0.05  # last share of a run that its final return is averaged over


def training_report(curves: Sequence[Curve]) -> str:
    """HTML report of runs, each with one or more policies."""
    return page(
        "Training",
        picture(curve_figure(curves)),
        paragraph(
            "Mean return of training episodes, with sampled actions. Line: mean over a run's policies. "
            "Band: minimum and maximum over policies, if a run has several."
        ),
        table(
            ("run", "policies", "episodes each", "seconds", "final return", "minimum", "maximum"),
            [_row(curve) for curve in curves],
        ),
    )


def curve_figure(curves: Sequence[Curve]) -> Figure:
    figure = Figure(figsize=(8, 4.5))
    axes = figure.add_subplot()
    for curve in curves:
        episodes, returns = smooth(curve)
        (drawn,) = axes.plot(episodes, returns.mean(axis=1), label=curve.name, linewidth=1.5)
        if returns.shape[1] > 1:
            axes.fill_between(episodes, returns.min(axis=1), returns.max(axis=1), alpha=0.2, color=drawn.get_color())
    axes.set_yscale("symlog", linthresh=10)
    axes.set_xlabel("episodes per policy")
    axes.set_ylabel("return")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def _row(curve: Curve) -> tuple[object, ...]:
    tail = curve.returns[-max(1, int(_TAIL * len(curve.returns))) :]
    last = np.nanmean(tail, axis=0)
    ends = (f"{last.mean():.2f}", f"{last.min():.2f}", f"{last.max():.2f}")
    return curve.name, len(last), f"{curve.episodes[-1]:,.0f}", f"{curve.seconds[-1]:.1f}", *ends
