"""The tables of rewards: a value for each amount held where a reward depends on one amount, else a list of terms."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.envs.mettagrid.game import Game, Reward, Term
from cavalcade.envs.mettagrid.statistics import COUNTED, COUNTS, FAILED

AMOUNT, COUNT, GAINED, LOST, DEPOSITED, CONSTANT = range(6)  # where a term comes from


def reward_tables(game: Game, most: int) -> dict[str, NDArray[Any]]:
    """The fields of `Tables` about rewards, for agents that hold at most so much of a resource."""
    entries = [entry for role in game.roles for entry in role.rewards]
    plain = [entry for entry in entries if tabulated(entry)]
    terms = [[] if tabulated(entry) else [_term(game, term) for term in entry.terms] for entry in entries]
    flat = [term for part in terms for term in part]
    rows = iter(range(len(plain)))
    return {
        "first_reward": np.cumsum([0, *(len(role.rewards) for role in game.roles)]).astype(np.int32),
        "reward_row": np.array([next(rows) if tabulated(entry) else -1 for entry in entries], np.int32),
        "reward_resource": np.array(
            [game.resources.index(entry.terms[0].name) if tabulated(entry) else 0 for entry in entries], np.int32
        ),
        "worth": np.array([_worth(entry, most + 1) for entry in plain], np.float32).reshape(-1, most + 1),
        "per_tick": np.array([entry.per_tick for entry in entries], np.bool_),
        "first_term": np.cumsum([0, *map(len, terms)]).astype(np.int32),
        "term_source": np.array([source for source, _, _ in flat], np.int32),
        "term_index": np.array([index for _, index, _ in flat], np.int32),
        "term_weight": np.array([weight for _, _, weight in flat], np.float32),
        "reward_least": np.array([-np.inf if entry.least is None else entry.least for entry in entries], np.float32),
        "reward_most": np.array([np.inf if entry.most is None else entry.most for entry in entries], np.float32),
    }


def tabulated(entry: Reward) -> bool:
    """Whether a reward depends on one amount only."""
    return len(entry.terms) == 1 and entry.terms[0].source == "amount"


def _term(game: Game, term: Term) -> tuple[int, int, np.float32]:
    """Source, index and weight."""
    weight = np.float32(term.weight)
    if term.source == "amount":
        return AMOUNT, game.resources.index(term.name), weight
    if term.source == "constant":
        return CONSTANT, 0, np.float32(float(term.name)) * weight
    if term.name in COUNTS:
        return COUNT, COUNTS.index(term.name), weight
    if term.name == "action.failed":
        return COUNT, FAILED, weight
    resource, _, what = term.name.rpartition(".")
    return (AMOUNT, GAINED, LOST, DEPOSITED)[COUNTED.index(what)], game.resources.index(resource), weight


def _worth(reward: Reward, amounts: int) -> NDArray[np.float32]:
    """The value of a reward by amount held, as the original computes it in single precision."""
    found = np.float32(0) + np.arange(amounts, dtype=np.float32) * np.float32(reward.terms[0].weight)
    if reward.least is not None:
        found = np.maximum(found, np.float32(reward.least))
    if reward.most is not None:
        found = np.minimum(found, np.float32(reward.most))
    return found
