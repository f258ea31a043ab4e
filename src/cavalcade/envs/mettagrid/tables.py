"""The tables of a game that kernels read.

What holds resources has a role: first those of agents, then the kinds of objects that can hold something.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavalcade.envs.mettagrid.game import DIRECTIONS, MOST, Game, Inventory, Kind, Limit
from cavalcade.envs.mettagrid.handlers import touches_target
from cavalcade.envs.mettagrid.initial import initial_order
from cavalcade.envs.mettagrid.programs import UNDONE, Being, Programs
from cavalcade.envs.mettagrid.rewards import reward_tables
from cavalcade.envs.mettagrid.sight import WORDS, shadows
from cavalcade.envs.mettagrid.window import window_cells

OUTSIDE, AGENT = 127, 128
MOST_HOLDERS = 256 - AGENT  # agents and objects that hold resources
GROUP, COMPLETION, LAST_ACTION, LAST_REWARD, VIBE, TAG, EAST, WEST, NORTH, SOUTH, AGENT_ID, FIRST_RESOURCE = (
    0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12,
)  # fmt: skip
SHOWN = ("episode_completion_pct", "last_action", "last_action_move", "last_reward", "local_position")
NOWHERE = 254  # place of tokens that belong to no cell
_CODES = 256


class Tables(NamedTuple):
    """A game as arrays. A token is a word: place | feature << 8 | value << 16.

    What an agent can use has a number: the code of its cell, or AGENT + role if it holds resources.
    """

    cells: int  # P, with the margin
    stride: int
    margin: int
    max_steps: int
    actions: int
    tokens: int  # T
    base: int  # of digits of amounts
    digits: int
    moves: NDArray[np.int32]  # (D,): cells that a move goes
    shown: NDArray[np.bool_]  # (5,): tokens of no place, see SHOWN
    moved_feature: int  # of last_action_move
    offsets: NDArray[np.int32]  # (K,): cells of the window
    places: NDArray[np.uint32]  # (K,): their place in tokens
    blocks: NDArray[np.bool_]  # (256,): whether it blocks vision, by number
    blocker_offsets: NDArray[np.int32]  # (B,): cells that can hide others; none if nothing blocks vision
    blocker_masks: NDArray[np.uint64]  # (B, 3): the cells of the window that they hide
    program: NDArray[np.int32]  # (I, 7), see `programs`
    role_sets: NDArray[np.bool_]  # (sets, agents' roles)
    use: NDArray[np.int32]  # (256,): where the on-use program begins, by number
    after_use: NDArray[np.int32]  # (agents' roles, 256), or (0, 256)
    on_tick: NDArray[np.int32]  # (agents' roles,), or none
    token_count: NDArray[np.uint8]  # (256,) by code: tokens of an object; 255 if it holds resources
    only_token: NDArray[np.uint32]  # (256,): the first of them
    first_token: NDArray[np.int32]  # (256,): in `object_tokens`
    object_tokens: NDArray[np.uint32]  # without place
    first_role_token: NDArray[np.int32]  # (roles + 1,): in `role_tokens`
    role_tokens: NDArray[np.uint32]  # tags and vibes, without place
    groups_of_agents: NDArray[np.int32]  # (agents' roles,): team
    visible: int  # M, most tokens of what holds resources
    limits: NDArray[np.int32]  # (roles, R)
    most: NDArray[np.int32]  # (roles, R): limit with any modifiers
    modifiers: NDArray[np.int32]  # (roles, R, R): room for a resource by units of another; empty if there are none
    modifying: NDArray[np.bool_]  # (roles, R): whether any limit depends on a resource
    groups: NDArray[np.int32]  # (roles, R): resources of one group share a limit
    shared: NDArray[np.bool_]  # (roles, R): whether others are in the group
    initial: NDArray[np.int32]  # (roles, R)
    initial_kinds: NDArray[np.uint8]  # (roles,): resources held at first
    initial_held: NDArray[np.uint8]  # (roles, R): which, in the order of tokens
    first_reward: NDArray[np.int32]  # (agents' roles + 1,): the E entries of all roles, one role after the other
    reward_row: NDArray[np.int32]  # (E,): in `worth`; −1 if the entry has terms
    reward_resource: NDArray[np.int32]  # (E,): of `worth`
    worth: NDArray[np.float32]  # (rows, amounts): value by amount
    per_tick: NDArray[np.bool_]  # (E,)
    first_term: NDArray[np.int32]  # (E + 1,): the Q terms of all entries
    term_source: NDArray[np.int32]  # (Q,)
    term_index: NDArray[np.int32]  # (Q,): resource or statistic
    term_weight: NDArray[np.float32]  # (Q,); of constants their value × weight
    reward_least: NDArray[np.float32]  # (E,)
    reward_most: NDArray[np.float32]  # (E,)


def tables_of(game: Game, height: int, width: int) -> Tables:
    """Tables for maps of one size."""
    margin = max(game.window) // 2
    stride = width + 2 * margin
    steps = [DIRECTIONS[name] for name in game.directions]
    around = window_cells(*game.window)
    blocking = [number for number, kind in numbered(game) if kind.blocks_vision]
    hiding, masks = shadows(around, *game.window) if blocking else ([], np.zeros((0, WORDS), np.uint64))
    inventories = [role.inventory for role in game.roles] + [kind.inventory for kind in holding(game)]
    holdings = [_holding(game, inventory, agent=i < len(game.roles)) for i, inventory in enumerate(inventories)]
    limits, most, groups, shared, modifiers, initial, initial_held = (np.stack(x) for x in zip(*holdings, strict=True))
    tags = [_tag_tokens(game, ("type:agent", *role.tags), role.vibe) for role in game.roles]
    tags += [_tag_tokens(game, (f"type:{kind.name}", *kind.tags), kind.vibe) for kind in holding(game)]
    agents = len(game.roles)
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
        shown=np.array([name in game.shown for name in SHOWN]),
        moved_feature=len(game.features) - 1,
        offsets=np.array([row * stride + column for row, column in around], np.int32),
        places=np.array([(r + game.window[0] // 2) << 4 | (c + game.window[1] // 2) for r, c in around], np.uint32),
        blocks=np.isin(np.arange(_CODES), blocking),
        blocker_offsets=np.array([row * stride + column for row, column in hiding], np.int32),
        blocker_masks=masks,
        **_programs(game),
        **_objects(game),
        first_role_token=np.cumsum([0, *map(len, tags)]).astype(np.int32),
        role_tokens=np.concatenate(tags),
        groups_of_agents=np.array([role.group for role in game.roles], np.int32),
        visible=max(map(len, tags)) + len(game.resources) * game.digits + 2,
        limits=limits,
        most=most,
        modifiers=modifiers if modifiers.any() else np.zeros((0, 0, 0), np.int32),
        modifying=np.asarray(modifiers.any(1)),
        groups=groups,
        shared=shared,
        initial=initial,
        initial_kinds=(initial > 0).sum(1).astype(np.uint8),
        initial_held=initial_held,
        **reward_tables(game, int(max(most[:agents].max(initial=0), initial[:agents].max(initial=0)))),
    )


def map_codes(game: Game) -> dict[str, int]:
    """Codes of cells by their name in maps; AGENT + i for the i-th name of agents."""
    empty = dict.fromkeys(("empty", ".", " "), 0)
    agents = {name: AGENT + i for i, (name, _) in enumerate(game.cells)}
    return empty | agents | {kind.map_name: code for code, kind in enumerate(game.kinds, 1)}


def holding(game: Game) -> tuple[Kind, ...]:
    """Kinds of objects that can hold resources."""
    after = any(touches_target(role.after_use) for role in game.roles)
    return tuple(
        kind
        for kind in game.kinds
        if any(amount for _, amount in kind.inventory.initial)
        or touches_target(kind.on_use)
        or (after and kind.on_use is not None)
    )


def numbered(game: Game) -> list[tuple[int, Kind]]:
    """Kinds of objects by the number that tables know them by."""
    holders = holding(game)
    return [
        (AGENT + len(game.roles) + holders.index(kind) if kind in holders else code, kind)
        for code, kind in enumerate(game.kinds, 1)
    ]


def _programs(game: Game) -> dict[str, Any]:
    """What happens on use, after use and in every step."""
    roles = [Being(frozenset(("type:agent", *role.tags)), role.vibe) for role in game.roles]
    programs, holders, everyone = Programs(game.resources, roles), holding(game), range(len(roles))
    used = [(AGENT + i, roles[i], role.on_use) for i, role in enumerate(game.roles)]
    for number, kind in numbered(game):
        being = Being(frozenset((f"type:{kind.name}", *kind.tags)), kind.vibe, kind in holders)
        used.append((number, being, kind.on_use))
    use = np.full(_CODES, UNDONE, np.int32)
    for number, being, handler in used:
        use[number] = programs.add(handler, everyone, being)
    after = np.full((len(roles), _CODES), UNDONE, np.int32)
    for i, role in enumerate(game.roles):
        for number, being, handler in used:
            if handler is not None:
                after[i, number] = programs.add(role.after_use, [i], being)
    tick = np.array([programs.add(role.on_tick, [i], roles[i]) for i, role in enumerate(game.roles)], np.int32)
    return {
        "program": programs.table,
        "role_sets": programs.role_sets,
        "use": use,
        "after_use": after if any(role.after_use for role in game.roles) else after[:0],
        "on_tick": tick if any(role.on_tick for role in game.roles) else tick[:0],
    }


def _objects(game: Game) -> dict[str, Any]:
    """Tokens by code."""
    count, only = np.zeros(_CODES, np.uint8), np.zeros(_CODES, np.uint32)
    first_token = np.zeros(_CODES, np.int32)
    count[AGENT:] = 255
    tokens: list[int] = []
    for code, kind in enumerate(game.kinds, 1):
        mine = _tag_tokens(game, (f"type:{kind.name}", *kind.tags), kind.vibe).tolist()
        count[code], only[code], first_token[code] = len(mine), mine[0], len(tokens)
        tokens += mine
    return {
        "token_count": count, "only_token": only, "first_token": first_token,
        "object_tokens": np.array(tokens, np.uint32),
    }  # fmt: skip


def _tag_tokens(game: Game, tags: tuple[str, ...], vibe: int) -> NDArray[np.uint32]:
    found = [TAG << 8 | tag << 16 for tag in sorted({game.tags.index(name) for name in tags})]
    return np.array(found + ([VIBE << 8 | vibe << 16] if vibe else []), np.uint32)


def _holding(game: Game, inventory: Inventory, *, agent: bool) -> tuple[NDArray, ...]:
    """Limits without and with modifiers, groups, whether these are shared, modifiers, initial amounts, their order."""
    ids = {name: i for i, name in enumerate(game.resources)}
    given = {name for limit in inventory.limits for name in limit.resources}
    started = {name for name, _ in inventory.initial}
    usual = game.roles[0].inventory.default_limit if agent else inventory.default_limit  # the first agent's, for all
    alone = [
        Limit((name,), usual if agent or name in started else MOST) for name in game.resources if name not in given
    ]
    limits, most, groups, initial = (np.zeros(len(ids), np.int32) for _ in range(4))
    shared, modifiers = np.zeros(len(ids), np.bool_), np.zeros((len(ids), len(ids)), np.int32)
    for number, limit in enumerate((*inventory.limits, *alone)):
        mine = [ids[name] for name in limit.resources if name in ids]
        limits[mine], groups[mine] = min(limit.most, max(limit.base, 0), MOST), number
        most[mine] = min(limit.most, MOST) if limit.modifiers else limits[mine]
        shared[mine] = len(mine) > 1
        modifiers[mine] = 0
        for name, bonus in limit.modifiers:
            if name in ids:
                modifiers[mine, ids[name]] = bonus
    for name, amount in inventory.initial:
        initial[ids[name]] = amount
    held = [r for r in initial_order([ids[name] for name, _ in inventory.initial]) if initial[r]]
    return limits, most, groups, shared, modifiers, initial, np.array(held + [0] * (len(ids) - len(held)), np.uint8)
