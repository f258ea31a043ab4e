"""One arena of the compiled simulator to look at: a single episode, drawn as text. Needs no package."""

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.contract import Buffers
from cavalcade.core.errors import StateError
from cavalcade.envs.mettagrid.arenas import Arenas
from cavalcade.envs.mettagrid.game import Game
from cavalcade.envs.mettagrid.tables import AGENT, numbered

LETTERS = {"wall": "#", "agent": "@", "empty": "."}


def letter(name: str) -> str:
    """How an object is drawn: # walls, @ agents, others by their first letter."""
    return LETTERS.get(name, name[:1].upper())


class ShownArena(Arenas):
    """The first episode of arena `index` of a batch with this seed; `over` says when it has ended."""

    def __init__(self, game: Game, seed: int, *, index: int = 0):
        super().__init__(game, game.agents, seed=seed, first_index=index, threads=1)
        self.total, self.over = np.zeros(game.agents), False
        self.reset()

    @property
    def current_step(self) -> int:
        return int(self.state.step[0])

    def recv(self) -> Buffers:
        if self.over:
            raise StateError("the episode is over; make another")
        found = super().recv()
        self.total += found.reward
        return found

    def _end(self, arenas: NDArray[np.int64]) -> None:
        """Stays at the end of the episode instead of beginning the next."""
        self.over = True

    def picture(self) -> str:
        """The map as text."""
        t, (height, width) = self.tables, (self._maps.height, self._maps.width)
        letters = np.full(256, LETTERS["empty"])
        letters[AGENT : AGENT + len(self.game.roles)] = LETTERS["agent"]
        for number, kind in numbered(self.game):
            letters[number] = letter(kind.name)
        codes = self.state.grid[0].astype(np.int64)
        if self.state.role.size:
            holding = codes >= AGENT
            codes[holding] = AGENT + self.state.role[0, codes[holding] - AGENT]
        else:
            codes[codes >= AGENT] = AGENT
        rows = codes.reshape(-1, t.stride)[t.margin : t.margin + height, t.margin : t.margin + width]
        return "\n".join("".join(letters[row]) for row in rows)

    def held(self) -> dict[str, int]:
        """The resources that all agents hold together, by name."""
        amounts = self.state.inventory[0, : self.game.agents].astype(np.int64).sum(0)
        return dict(zip(self.game.resources, amounts.tolist(), strict=True))
