"""Orders of subtasks: permutations, their distances, features and encodings.

An order is a tuple of subtask numbers, the first to be done first. This module knows no domain.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.errors import ConfigError

Order = tuple[int, ...]
_MOST_ENUMERATED = 7  # subtasks; 5,040 orders


@dataclass(frozen=True)
class Subtasks:
    """The subtasks of a domain and its named orders."""

    names: tuple[str, ...]
    named: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.names)

    def orders(self) -> list[Order]:
        """All orders, in the order of `itertools.permutations`."""
        if len(self) > _MOST_ENUMERATED:
            raise ConfigError(f"{len(self)} subtasks have too many orders to list; at most {_MOST_ENUMERATED} can be")
        return list(itertools.permutations(range(len(self))))

    def parse(self, text: str) -> Order:
        """An order from its name, or from subtasks separated by commas or >."""
        if text in self.named:
            return self.parse(">".join(self.named[text]))
        parts = [part.strip() for part in text.replace(">", ",").split(",")]
        for part in parts:
            if part not in self.names:
                known = f"{', '.join(self.names)}" + (f", or an order of {', '.join(self.named)}" if self.named else "")
                raise ConfigError(f"{part!r} in order {text!r} is not a subtask; there are {known}")
        if twice := [part for part in self.names if parts.count(part) > 1]:
            raise ConfigError(f"order {text!r} has {', '.join(twice)} more than once; each subtask comes once")
        if missing := [name for name in self.names if name not in parts]:
            raise ConfigError(f"order {text!r} lacks {', '.join(missing)}; each subtask comes once")
        return tuple(self.names.index(part) for part in parts)

    def text(self, order: Sequence[int]) -> str:
        """An order as text that `parse` accepts."""
        return ">".join(self.names[i] for i in order)

    def name_of(self, order: Sequence[int]) -> str:
        """An order as text, followed by its name if it has one."""
        words = self.text(order)
        return next((f"{words} ({name})" for name, parts in self.named.items() if ">".join(parts) == words), words)

    def pairs(self) -> list[tuple[int, int]]:
        """All pairs of subtasks (a, b) with a before b in the list of names."""
        return list(itertools.combinations(range(len(self)), 2))

    def pair_names(self) -> list[str]:
        """The same pairs by name, a/b."""
        return [f"{self.names[a]}/{self.names[b]}" for a, b in self.pairs()]


def ranks(orders: Iterable[Sequence[int]]) -> NDArray[np.int8]:
    """The place of each subtask in each order, (n, S)."""
    return np.argsort(np.array(list(orders)), axis=-1).astype(np.int8)


def one_hot(order: Sequence[int]) -> NDArray[np.uint8]:
    """An order as S² values: value S·place + subtask is 1 if the subtask has that place."""
    size = len(order)
    found = np.zeros(size * size, np.uint8)
    found[size * np.arange(size) + np.array(order)] = 1
    return found


def precedences(orders: Iterable[Sequence[int]]) -> NDArray[np.float64]:
    """Orders as signs, (n, S(S − 1)/2): +1 where the first of a pair of subtasks comes first, else −1."""
    place = ranks(orders).astype(np.int64)
    first, second = np.triu_indices(place.shape[1], 1)
    return np.where(place[:, first] < place[:, second], 1.0, -1.0)


def classes(orders: Sequence[Sequence[int]], pairs: Sequence[int] | NDArray) -> list[int]:
    """Equivalence of orders under some precedences (columns of `precedences`): per order, the first equivalent one."""
    first: dict[bytes, int] = {}
    return [first.setdefault(row.tobytes(), i) for i, row in enumerate(precedences(orders)[:, np.asarray(pairs, int)])]


def kendall(one: Sequence[int], other: Sequence[int]) -> int:
    """Kendall's distance: the number of pairs of subtasks on whose order the two disagree."""
    a, b = precedences([one, other])
    return int((a != b).sum())
