"""What an agent sees around it: the cells of its window, nearest first."""


def window_cells(height: int, width: int) -> list[tuple[int, int]]:
    """Offsets (row, column) of the visible cells by Manhattan distance; a disc, or an ellipse if height ≠ width."""
    tall, wide = height // 2, width // 2
    found = []
    for distance in range(tall + wide + 1):
        for row in range(-distance, distance + 1):
            column = distance - abs(row)
            found += [(row, c) for c in ((-column, column) if column else (0,)) if _inside(row, c, tall, wide)]
    return found


def _inside(row: int, column: int, tall: int, wide: int) -> bool:
    if abs(row) > tall or abs(column) > wide:
        return False
    if tall == wide:
        square = row * row + column * column
        tip = square == tall * tall + 1 and tall in (abs(row), abs(column))  # rounds the ends of the axes
        return square <= tall * tall or (tall >= 2 and tip)
    return row * row * wide * wide + column * column * tall * tall <= tall * tall * wide * wide
