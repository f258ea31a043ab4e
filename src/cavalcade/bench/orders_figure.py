"""A picture of all orders: what each is worth, and which precedence divides them."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from cavalcade.bench.orders import ORDERS, Trained, interval_of
from cavalcade.envs.cage2.orders import CAGE2

_FIRST, _SECOND = CAGE2.names.index("enterprise"), CAGE2.names.index("user")
_COLOURS = ("#345", "#d62")


def orders_figure(games: Sequence[Trained]) -> Figure:
    """A panel per game: every order by its IQM with its trainings, coloured by enterprise before or after user."""
    columns = 2
    figure = Figure(figsize=(9, 2.6 * -(-len(games) // columns)), layout="constrained")
    panels = figure.subplots(-(-len(games) // columns), columns, squeeze=False).flatten()
    for axes, t in zip(panels, games, strict=False):
        means = np.array([interval_of(t.scores[order]).estimate for order in range(len(ORDERS))])
        ranked = np.argsort(-means)
        after = np.array([ORDERS[order].index(_FIRST) > ORDERS[order].index(_SECOND) for order in ranked])
        for colour, mine in zip(_COLOURS, (~after, after), strict=True):
            places = np.flatnonzero(mine)
            each = [(place, score) for place in places for score in t.scores[int(ranked[place])]]
            axes.plot(*zip(*each, strict=True), ".", color=colour, markersize=2, alpha=0.5, rasterized=True)
            axes.plot(places, means[ranked[places]], "_", color=colour, markersize=5)
        low = np.quantile([x for some in t.scores.values() for x in some], 0.02)
        axes.set_ylim(low - 1, max(x for some in t.scores.values() for x in some) + 1)
        axes.set_title(f"{t.game.red}, {t.game.revision}, {t.game.episodes:,} episodes", fontsize=9)
        axes.set_xlabel("orders, best first", fontsize=8)
        axes.set_ylabel("score", fontsize=8)
        axes.grid(alpha=0.3)
    for axes in panels[len(games) :]:
        axes.set_axis_off()
    handles = [panels[0].plot([], [], ".", color=c)[0] for c in _COLOURS]
    figure.legend(handles, ["enterprise before user", "user before enterprise"], loc="outside upper right", fontsize=8)
    return figure
