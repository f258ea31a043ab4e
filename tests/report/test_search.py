"""Plots of a search."""

import numpy as np

from cavalcade.report.search import cell_colours, precedence_figure, text_colour


def effects(**given):
    """A summary with the effect of each pair: mean, low, high, binding."""
    rows = [(pair.split("_"), numbers) for pair, numbers in given.items()]
    return {
        "best": "a>b>c",
        "effects": [
            {"a": x, "b": y, "mean": mean, "low": low, "high": high, "binding": binding}
            for (x, y), (mean, low, high, binding) in rows
        ],
    }


def test_effects_within_their_uncertainty_are_pale_and_those_beyond_are_not():
    summary = effects(a_b=(9.0, 8.0, 10.0, 3.0), a_c=(9.0, -1.0, 19.0, 3.0), b_c=(0.1, -0.4, 0.6, 0.0))
    figure = precedence_figure(summary)
    axes = figure.axes[0]
    cells = np.asarray(axes.images[0].get_array())
    dark, pale, never = cells[0, 1], cells[0, 2], cells[1, 2]
    assert dark[:3].min() < 0.3
    assert pale[:3].min() > 0.7
    assert len(set(never[:3].tolist())) == 1  # grey
    colour = {text.get_text().split("\n")[0]: text.get_color() for text in axes.texts if text.get_position() == (1, 0)}
    assert colour == {"+9.0": "white"}  # readable on the dark cell
    assert {text.get_color() for text in axes.texts if text.get_position() == (2, 0)} == {"black"}


def test_text_is_readable_on_every_colour():
    for shade in np.linspace(0, 1, 11):
        cell = np.array([shade, shade, shade, 1.0])
        gap = abs(shade - (1.0 if text_colour(cell) == "white" else 0.0))
        assert gap >= 0.5


def test_labels_of_axes_do_not_overlap():
    long = {f"{x}_{y}": (1.0, 0.5, 1.5, 1.0) for x, y in ("ab", "ac", "bc")}
    figure = precedence_figure(effects(**long))
    figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in figure.axes[0].get_yticklabels()]
    assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])
    name, ticks = figure.axes[0].xaxis.label.get_window_extent(), figure.axes[0].get_xticklabels()
    assert not any(name.overlaps(tick.get_window_extent()) for tick in ticks)


def test_colours_of_a_cell():
    full, yes, no = np.array([[[0.0, 0.0, 1.0, 1.0]]]), np.array([[True]]), np.array([[False]])
    assert cell_colours(full, yes, no)[0, 0].tolist() == [0.0, 0.0, 1.0, 1.0]
    assert cell_colours(full, no, no)[0, 0, 0] > 0.5
