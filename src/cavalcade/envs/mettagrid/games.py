"""The built-in games.

The arenas that come with MettaGrid reward hearts, which nothing yields, so these have their own economy: an agent uses
an object by moving into it; mines give ore, generators turn ore into batteries, altars turn batteries into hearts.
"""

from collections.abc import Callable
from typing import Any

from cavalcade.core.errors import at_least
from cavalcade.envs.mettagrid.game import Game, Inventory, Kind, Limit, RandomMap, Reward, Role, held
from cavalcade.envs.mettagrid.handlers import use

RESOURCES = ("ore", "battery", "heart")


def forage(
    *,
    agents: int = 24,
    size: int = 25,
    window: int = 11,
    tokens: int = 200,
    max_steps: int = 1000,
    mines: int = 10,
    generators: int = 5,
    altars: int = 5,
    walls: int = 10,
    batteries: int = 3,
    shaped: bool = True,
) -> Game:
    """The economy; `shaped` rewards the first ore and batteries too, not only hearts.

    Args:
        agents: number of agents in the arena.
        size: side of the square arena.
        window: side of the square that an agent sees around it.
        tokens: maximum number of tokens of an observation.
        max_steps: length of an episode.
        mines: number of mines.
        generators: number of generators.
        altars: number of altars.
        walls: number of walls besides the border.
        batteries: batteries per heart.
        shaped: whether ore and batteries are rewarded too.
    """
    kinds = (
        Kind("mine", "mine", use({}, {"ore": 1})),
        Kind("generator", "generator", use({"ore": 1}, {"ore": -1, "battery": 1})),
        Kind("altar", "altar", use({"battery": batteries}, {"battery": -batteries, "heart": 1})),
    )
    rewards = [held("heart", 1.0)]
    if shaped:
        rewards += [held("ore", 0.1, most=0.1), held("battery", 0.3, most=0.9)]
    counts = {"wall": walls, "mine": mines, "generator": generators, "altar": altars}
    limits = {"ore": 10, "battery": 10, "heart": 255}
    return _game(agents, size, window, tokens, max_steps, kinds, counts, rewards, limits)


def forage_easy(**options: Any) -> Game:
    """The economy with more mines, generators and altars, and one battery per heart."""
    return forage(**{"mines": 30, "generators": 20, "altars": 20, "batteries": 1, **options})


def forage_sparse(**options: Any) -> Game:
    """The economy with rewards for hearts only."""
    return forage(**{"shaped": False, **options})


def navigation(
    *,
    agents: int = 24,
    size: int = 25,
    window: int = 11,
    tokens: int = 200,
    max_steps: int = 500,
    flags: int = 8,
    walls: int = 60,
) -> Game:
    """Find flags between walls; each touch is worth 1.

    Args:
        agents: number of agents in the arena.
        size: side of the square arena.
        window: side of the square that an agent sees around it.
        tokens: maximum number of tokens of an observation.
        max_steps: length of an episode.
        flags: number of flags.
        walls: number of walls besides the border.
    """
    kinds = (Kind("flag", "flag", use({}, {"heart": 1})),)
    counts = {"wall": walls, "flag": flags}
    return _game(agents, size, window, tokens, max_steps, kinds, counts, [held("heart", 1.0)], {"heart": 255})


GAMES: dict[str, Callable[..., Game]] = {
    "forage": forage, "forage-easy": forage_easy, "forage-sparse": forage_sparse, "navigation": navigation,
}  # fmt: skip


def _game(
    agents: int,
    size: int,
    window: int,
    tokens: int,
    max_steps: int,
    kinds: tuple[Kind, ...],
    counts: dict[str, int],
    rewards: list[Reward],
    limits: dict[str, int],
) -> Game:
    at_least("max_steps", max_steps, 0)
    at_least("size", size, 3)
    for name, value in {"agents": agents, "window": window, "tokens": tokens}.items():
        at_least(name, value, 1)
    for name, value in counts.items():
        at_least(f"{name}s", value, 0)
    inventory = Inventory(tuple(Limit((name,), most) for name, most in limits.items()), default_limit=50)
    return Game(
        agents=agents,
        max_steps=max_steps,
        resources=RESOURCES,
        kinds=(Kind("wall", "wall", wall=True), *kinds),
        roles=(Role(tuple(rewards), inventory),),
        map=RandomMap(size, size, tuple(counts.items()), (("agent.agent", agents),), border=1),
        window=(window, window),
        tokens=tokens,
    )
