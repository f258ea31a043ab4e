"""Games of the scoring protocol, by their rank in a cell."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.errors import ConfigError
from cavalcade.envs.cage2.protocol import CELLS, Cell, cell, episode_returns, first_index
from cavalcade.watch.games.choice import RANKS, Choice
from cavalcade.watch.games.defender import Defender


class Ranking(NamedTuple):
    """The games of a cell."""

    cell: Cell
    returns: NDArray[np.float64]  # (E,), as played
    order: NDArray[np.int64]  # (E,): their numbers, the worst first; of equal ones the earlier first

    def number(self, rank: str) -> int:
        """The number of a game by its rank."""
        last = len(self.order) - 1
        place = int(rank) if rank.isdecimal() else {"worst": 0, "median": last // 2, "best": last}[rank]
        if place > last:
            raise ConfigError(
                f"rank is {rank}; the cell has {last + 1:,} games, numbered from 0, or {', '.join(RANKS)}"
            )
        return int(self.order[place])


def ranking(defender: Defender, choice: Choice) -> Ranking:
    """Plays a cell as `cavalcade evaluate` does."""
    if defender.draws:
        raise ConfigError(
            f"{defender.name} draws its actions, differently in each batch; games of a cell are ranked for greedy Blues"
        )
    horizon, red = CELLS[choice.cell]
    env = defender.game(choice, choice.episodes, first=first_of(choice), autoreset=True)
    returns = episode_returns(defender.fast_actor(), env)
    return Ranking(cell(horizon, red, returns), returns, np.argsort(returns, kind="stable"))


def first_of(choice: Choice) -> int:
    """Index of the first game of a cell."""
    horizon, red = CELLS[choice.cell]
    return first_index(horizon, red, choice.episodes)


def ranking_data(found: Ranking) -> dict[str, Any]:
    """A cell as plain data: score, and the numbers and returns of its games at some ranks."""
    named = {rank: found.number(rank) for rank in RANKS}
    counts, edges = np.histogram(found.returns, bins=24)
    return {
        **found.cell._asdict(),
        "games": {rank: {"number": i, "return": float(found.returns[i])} for rank, i in named.items()},
        "histogram": {"counts": counts.tolist(), "edges": [round(float(x), 3) for x in edges]},
    }
