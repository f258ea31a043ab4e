"""The arrays of a batch of arenas, and the tables of their game. N arenas, A agents each, P cells, R resources.

A cell holds a code: 0 for nothing, 1 … for kinds of objects, OUTSIDE beyond the map, AGENT + a for agent a, and codes
after those for objects that hold resources; H agents and objects have inventories. Maps have a margin on all sides, so
that windows never leave the array.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.errors import StateError
from cavalcade.envs.mettagrid.game import Game
from cavalcade.envs.mettagrid.mersenne import WORDS
from cavalcade.envs.mettagrid.programs import OP, TRANSFER
from cavalcade.envs.mettagrid.statistics import COUNTS, FAILED, uncounted
from cavalcade.envs.mettagrid.tables import AGENT, MOST_HOLDERS, Tables, holding


class State(NamedTuple):
    """Arenas in progress. Fields from `place` on have a row for each agent."""

    grid: NDArray[np.uint8]  # (N, P)
    words: NDArray[np.uint32]  # (N, 624): random generator
    position: NDArray[np.int32]  # (N,)
    step: NDArray[np.int32]  # (N,)
    seed: NDArray[np.int64]  # (N,)
    index: NDArray[np.int64]  # (N,): row of the first agent in the whole batch
    episode: NDArray[np.int64]  # (N,)
    things: NDArray[np.int32]  # (N,): agents and objects that hold resources; empty if only agents do
    order: NDArray[np.int32]  # (N, A): in which agents act
    place: NDArray[np.int32]  # (N, A): cell
    spawn: NDArray[np.int32]
    noted: NDArray[np.int32]  # place after the latest action
    before: NDArray[np.int32]  # place before the latest step; empty if it is not shown
    inventory: NDArray[np.uint16]  # (N, H, R)
    held: NDArray[np.uint8]  # (N, H, R): resources held, in the order of tokens
    kinds: NDArray[np.uint8]  # (N, H): how many
    role: NDArray[np.uint8]  # (N, H), or (N, 0) if there is one role only
    last: NDArray[np.uint8]  # executed action
    still: NDArray[np.int32]  # steps without motion
    worth: NDArray[np.float32]  # (N, A, E): latest value of each reward
    total: NDArray[np.float32]  # return
    counts: NDArray[np.float32]  # (N, A, C): statistics, see COUNTS
    gained: NDArray[np.float32]  # (N, A, R)
    lost: NDArray[np.float32]  # (N, A, R)
    deposited: NDArray[np.float32]  # (N, A, R), or (N, A, 0) if nothing is ever transferred
    visited: NDArray[np.uint8]  # (N, A, P), or (N, A, 0) if not counted


ARENA_FIELDS = State._fields[: State._fields.index("order")]
_TYPES: dict[str, Any] = {
    **dict.fromkeys(("grid", "held", "kinds", "role", "last", "visited"), np.uint8), "words": np.uint32,
    **dict.fromkeys(("seed", "index", "episode"), np.int64), "inventory": np.uint16,
    **dict.fromkeys(("worth", "total", "counts", "gained", "lost", "deposited"), np.float32),
}  # fmt: skip
AGENT_FIELDS = State._fields[State._fields.index("order") :]


def allocate(game: Game, tables: Tables, arenas: int, *, visited: bool) -> State:
    """Arrays for arenas that have not begun."""
    n, a, r, cells = arenas, game.agents, len(game.resources), tables.cells
    objects = len(holding(game)) > 0
    h = MOST_HOLDERS if objects else a
    transfers = (tables.program[:, OP] == TRANSFER).any()
    entries = max(len(role.rewards) for role in game.roles)
    shapes = {
        "grid": (n, cells), "words": (n, WORDS), "things": (n if objects else 0,),
        "before": (n, a if "last_action_move" in game.shown else 0), "inventory": (n, h, r), "held": (n, h, r),
        "kinds": (n, h), "role": (n, h if len(tables.limits) > 1 else 0), "worth": (n, a, entries),
        "counts": (n, a, len(COUNTS)), "gained": (n, a, r), "lost": (n, a, r), "deposited": (n, a, r * transfers),
        "visited": (n, a, cells if visited else 0),
    }  # fmt: skip
    made: Any = {}
    for name in State._fields:
        made[name] = np.zeros(shapes.get(name, (n,) if name in ARENA_FIELDS else (n, a)), _TYPES.get(name, np.int32))
    return State(**made)


def statistic(state: State, game: Game, name: str) -> NDArray[np.float32] | None:
    """A statistic of all agents by its name in the original, (N, A); None if it is not counted here."""
    if name in COUNTS:
        return state.counts[..., COUNTS.index(name)]
    if name == "action.failed":
        return state.counts[..., FAILED]
    if uncounted(game.resources, [name]):
        return None
    resource, _, what = name.rpartition(".")
    found = (state.inventory[:, : game.agents] if what == "amount" else getattr(state, what)).astype(np.float32)
    return found[..., game.resources.index(resource)] if found.shape[2] else np.zeros(found.shape[:2], np.float32)


def check_state(saved: State, tables: Tables, game: Game) -> None:
    """Raises `StateError` if saved arenas are not possible in this game."""
    agents = (saved.grid >= AGENT) & (saved.grid < AGENT + game.agents)
    amounts = saved.inventory[:, : game.agents]
    if (amounts >= tables.worth.shape[1]).any() or not ((saved.position >= 0) & (saved.position < WORDS)).all():
        raise StateError("saved arenas are damaged: amounts or random generators are out of range")
    if not (agents.sum(1) == game.agents).all():
        raise StateError("saved arenas are damaged: they hold other agents than the game has")
    if (saved.role >= len(tables.limits)).any() or (saved.things > MOST_HOLDERS).any():
        raise StateError("saved arenas are damaged: they hold other objects than the game has")
    at = np.take_along_axis(saved.grid, saved.place.astype(np.int64) % tables.cells, 1)
    if not (at == AGENT + np.arange(game.agents)).all():
        raise StateError("saved arenas are damaged: agents are not where the map shows them")
