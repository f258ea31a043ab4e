"""Pictures on a terminal: each character cell shows two pixels, one above the other."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from rich.color import Color
from rich.style import Style
from rich.text import Text

_UPPER_HALF = "▀"


def half_blocks(frame: NDArray[np.uint8], width: int, height: int) -> Text:
    """An image (H, W, 3) scaled to fit into `width` columns and `height` lines, with its aspect ratio."""
    rows, columns = frame.shape[:2]
    scale = min(width / columns, 2 * max(height, 1) / rows)
    size = max(1, int(columns * scale)), 2 * max(1, int(rows * scale / 2))
    small = np.asarray(Image.fromarray(frame).convert("RGB").resize(size, Image.Resampling.BOX))
    text = Text()
    for above, below in zip(small[::2].tolist(), small[1::2].tolist(), strict=True):
        for top, bottom in zip(above, below, strict=True):
            text.append(_UPPER_HALF, Style(color=Color.from_rgb(*top), bgcolor=Color.from_rgb(*bottom)))
        text.append("\n")
    return text
