"""Line of sight: which cells of a window an object in another cell hides.

A cell is hidden if something that blocks vision lies on the ray from the observer's centre to its own: in a cell that
the ray passes, or beside a corner that it passes through. What is in the cell itself does not hide it.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

WORDS = 3  # of 64 bits: a window of 15 × 15 shows 157 cells


def shadows(
    cells: Sequence[tuple[int, int]], height: int, width: int
) -> tuple[list[tuple[int, int]], NDArray[np.uint64]]:
    """Offsets of cells that can hide others, and which of `cells` each hides, (B, 3) words of bits."""
    hidden: dict[tuple[int, int], set[int]] = {}
    for k, cell in enumerate(cells):
        for between in _ray(*cell):
            hidden.setdefault(between, set()).add(k)
    tall, wide = height // 2, width // 2
    found = [cell for cell in sorted(hidden) if abs(cell[0]) <= tall and abs(cell[1]) <= wide]
    masks = np.zeros((len(found), WORDS), np.uint64)
    for row, cell in zip(masks, found, strict=True):
        for k in hidden[cell]:
            row[k // 64] |= np.uint64(1 << k % 64)
    return found, masks


def _ray(row: int, column: int) -> Iterator[tuple[int, int]]:
    """Cells strictly between the observer and a cell. Crossings of rows and columns are timed in halves of a cell."""
    down, right = (row > 0) - (row < 0), (column > 0) - (column < 0)
    tall, wide = abs(row), abs(column)
    r = c = 0
    next_row, next_column = wide, tall
    while (r, c) != (row, column):
        crosses_row = next_row <= next_column if tall and wide else tall > 0
        crosses_column = next_column <= next_row if tall and wide else wide > 0
        if crosses_row and crosses_column:  # through a corner
            for beside in ((r + down, c), (r, c + right)):
                if beside != (row, column):
                    yield beside
        if crosses_row:
            r, next_row = r + down, next_row + 2 * wide
        if crosses_column:
            c, next_column = c + right, next_column + 2 * tall
        if (r, c) != (row, column):
            yield r, c
