"""Image observations: which spaces are images, and how their pixels lie in a row."""

from dataclasses import dataclass
from math import prod

import numpy as np
from gymnasium.spaces import Box, Space

SMALLEST = 8  # pixels: least height and width of an image


@dataclass(frozen=True)
class ImageLayout:
    """A row of values that holds K frames, oldest first, each (H, W), (H, W, C) or (C, H, W) in C order."""

    shape: tuple[int, ...]  # of a frame, as the environment gives it
    channels_first: bool = False
    frames: int = 1  # K
    low: float = 0.0  # least and greatest value of a pixel
    high: float = 255.0

    @property
    def height(self) -> int:
        return self.shape[1] if self.channels_first else self.shape[0]

    @property
    def width(self) -> int:
        return self.shape[2] if self.channels_first else self.shape[1]

    @property
    def channels(self) -> int:
        """Channels of a frame (C)."""
        return 1 if len(self.shape) == 2 else self.shape[0] if self.channels_first else self.shape[2]

    @property
    def size(self) -> int:
        """Values in a row (O)."""
        return self.frames * prod(self.shape)

    def row_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of images (…, K, *frame) as rows, (…, O); other shapes are returned as they are."""
        whole = (self.frames,) * (self.frames > 1) + self.shape
        return (*shape[: -len(whole)], self.size) if shape[-len(whole) :] == whole else shape

    def __str__(self) -> str:
        stacked = f", {self.frames} frames" if self.frames > 1 else ""
        return f"{' × '.join(map(str, self.shape))} images{stacked}"


def image_layout(space: Space, frames: int = 1) -> ImageLayout | None:
    """The layout of an observation space if it is an image, else None.

    An image is a Box (H, W), (H, W, C) or (C, H, W) of bytes, booleans or bounded floats with H and W of at least 8;
    the smaller of first and last axis are the channels.
    """
    if not isinstance(space, Box) or len(space.shape) not in (2, 3):
        return None
    kind = np.dtype(space.dtype)
    if kind not in (np.uint8, np.bool_) and not (kind.kind == "f" and space.is_bounded("both")):
        return None
    first = len(space.shape) == 3 and space.shape[0] < space.shape[2]
    low, high = (0.0, 255.0) if kind == np.uint8 else (float(space.low.min()), float(space.high.max()))
    found = ImageLayout(tuple(map(int, space.shape)), first, frames, low, high)
    return found if min(found.height, found.width) >= SMALLEST and low < high else None
