"""The tables of a game that kernels read."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavalcade.envs.mettagrid.game import DIRECTIONS, MOST, Game, Limit, Reward
from cavalcade.envs.mettagrid.initial import initial_order
from cavalcade.envs.mettagrid.window import window_cells

OUTSIDE, AGENT = 127, 128
GROUP, COMPLETION, LAST_ACTION, LAST_REWARD, VIBE, TAG, AGENT_ID, FIRST_RESOURCE = 0, 1, 2, 3, 5, 6, 11, 12
NOWHERE = 254  # place of tokens that belong to no cell
_CODES = 256


class Tables(NamedTuple):
    """A game as arrays. A token is a word: place | feature << 8 | value << 16."""

    cells: int  # P, with the margin
    stride: int
    margin: int
    max_steps: int
    actions: int
    tokens: int  # T
    base: int  # of digits of amounts
    digits: int
    moves: NDArray[np.int32]  # (D,): cells that a move goes
    shown: NDArray[np.bool_]  # (3,): tokens of no place
    offsets: NDArray[np.int32]  # (K,): cells of the window
    places: NDArray[np.uint32]  # (K,): their place in tokens
    usable: NDArray[np.bool_]  # (256,) by code
    needs: NDArray[np.int32]  # (256, R)
    first_delta: NDArray[np.int32]  # (257,): of each code, and the end
    delta_resource: NDArray[np.int32]
    delta_amount: NDArray[np.int32]
    token_count: NDArray[np.uint8]  # (256,): tokens of an object; 255 of an agent
    only_token: NDArray[np.uint32]  # (256,): the first of them
    first_token: NDArray[np.int32]  # (256,): in `object_tokens`
    object_tokens: NDArray[np.uint32]  # without place
    agent_tokens: NDArray[np.uint32]  # tags and vibe of every agent, without place
    visible: int  # M, most tokens of an agent
    limits: NDArray[np.int32]  # (R,)
    groups: NDArray[np.int32]  # (R,): resources of one group share a limit
    shared: NDArray[np.bool_]  # (R,): whether others are in the group
    initial: NDArray[np.int32]  # (R,)
    initial_held: NDArray[np.uint8]  # resources held at first, in the order of tokens
    worth: NDArray[np.float32]  # (E, amounts): value of a reward by amount
    reward_resource: NDArray[np.int32]  # (E,)
    per_tick: NDArray[np.bool_]  # (E,)


def tables_of(game: Game, height: int, width: int) -> Tables:
    """Tables for maps of one size."""
    margin = max(game.window) // 2
    stride = width + 2 * margin
    steps = [DIRECTIONS[name] for name in game.directions]
    around = window_cells(*game.window)
    ids = {name: i for i, name in enumerate(game.resources)}
    limits, groups, shared = _limits(game, ids)
    initial = np.zeros(len(ids), np.int32)
    for name, amount in game.initial:
        initial[ids[name]] = amount
    held = [r for r in initial_order([ids[name] for name, _ in game.initial]) if initial[r]]
    amounts = int(max([0, *limits, *initial])) + 1
    agent_tokens = _tag_tokens(game, ("type:agent", *game.agent_tags), game.agent_vibe)
    return Tables(
        cells=stride * (height + 2 * margin),
        stride=stride,
        margin=margin,
        max_steps=game.max_steps,
        actions=game.actions,
        tokens=game.tokens,
        base=game.value_base,
        digits=game.digits,
        moves=np.array([row * stride + column for row, column in steps], np.int32),
        shown=np.array(game.shown, np.bool_),
        offsets=np.array([row * stride + column for row, column in around], np.int32),
        places=np.array([(r + game.window[0] // 2) << 4 | (c + game.window[1] // 2) for r, c in around], np.uint32),
        **_objects(game, ids),
        agent_tokens=agent_tokens,
        visible=len(agent_tokens) + len(ids) * game.digits + 2,
        limits=limits,
        groups=groups,
        shared=shared,
        initial=initial,
        initial_held=np.array(held, np.uint8),
        worth=np.array([_worth(reward, amounts) for reward in game.rewards], np.float32).reshape(-1, amounts),
        reward_resource=np.array([ids[reward.resource] for reward in game.rewards], np.int32),
        per_tick=np.array([reward.per_tick for reward in game.rewards], np.bool_),
    )


def map_codes(game: Game) -> dict[str, int]:
    """Codes of cells by their name in maps; agents aside."""
    empty = dict.fromkeys(("empty", ".", " "), 0)
    return empty | {kind.map_name: code for code, kind in enumerate(game.kinds, 1)}


def _objects(game: Game, ids: dict[str, int]) -> dict[str, Any]:
    """Handlers and tokens by code."""
    usable, needs = np.zeros(_CODES, np.bool_), np.zeros((_CODES, len(ids)), np.int32)
    count, only = np.zeros(_CODES, np.uint8), np.zeros(_CODES, np.uint32)
    first_token, first_delta = np.zeros(_CODES, np.int32), np.zeros(_CODES + 1, np.int32)
    count[AGENT:] = 255
    deltas: list[tuple[int, int]] = []
    tokens: list[int] = []
    for code in range(_CODES):
        first_delta[code], first_token[code] = len(deltas), len(tokens)
        if not 1 <= code <= len(game.kinds):
            continue
        kind = game.kinds[code - 1]
        mine = _tag_tokens(game, (f"type:{kind.name}", *kind.tags), kind.vibe).tolist()
        tokens += mine
        count[code], only[code] = len(mine), mine[0]
        if kind.use is not None:
            usable[code] = True
            for name, amount in kind.use.needs:
                needs[code, ids[name]] = max(needs[code, ids[name]], amount)
            deltas += [(ids[name], amount) for name, amount in kind.use.deltas]
    first_delta[_CODES] = len(deltas)
    return {
        "usable": usable, "needs": needs, "first_delta": first_delta,
        "delta_resource": np.array([resource for resource, _ in deltas], np.int32),
        "delta_amount": np.array([amount for _, amount in deltas], np.int32),
        "token_count": count, "only_token": only, "first_token": first_token,
        "object_tokens": np.array(tokens, np.uint32),
    }  # fmt: skip


def _tag_tokens(game: Game, tags: tuple[str, ...], vibe: int) -> NDArray[np.uint32]:
    found = [TAG << 8 | tag << 16 for tag in sorted({game.tags.index(name) for name in tags})]
    return np.array(found + ([VIBE << 8 | vibe << 16] if vibe else []), np.uint32)


def _limits(game: Game, ids: dict[str, int]) -> tuple[NDArray, NDArray, NDArray]:
    """Limit and group of each resource, and whether it shares them."""
    given = {name for limit in game.limits for name in limit.resources}
    alone = [Limit((name,), game.default_limit) for name in game.resources if name not in given]
    limits, groups, shared = np.zeros(len(ids), np.int32), np.zeros(len(ids), np.int32), np.zeros(len(ids), np.bool_)
    for number, limit in enumerate((*game.limits, *alone)):
        mine = [ids[name] for name in limit.resources if name in ids]
        limits[mine], groups[mine] = min(limit.most, max(limit.base, 0), MOST), number
        shared[mine] = len(mine) > 1
    return limits, groups, shared


def _worth(reward: Reward, amounts: int) -> NDArray[np.float32]:
    """The value of a reward by amount held, as the original computes it in single precision."""
    found = np.float32(0) + np.arange(amounts, dtype=np.float32) * np.float32(reward.weight)
    if reward.least is not None:
        found = np.maximum(found, np.float32(reward.least))
    if reward.most is not None:
        found = np.minimum(found, np.float32(reward.most))
    return found
