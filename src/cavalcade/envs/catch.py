"""Catch: a small game on images. `cavalcade/Catch-v0` needs convolutions to learn fast and two frames to play well."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from cavalcade.core.errors import at_least

_LEFT, _STAY, _RIGHT = range(3)
_PADDLE = 3  # cells


class Catch(gymnasium.Env):
    """Balls fall one after the other and drift sideways; +1 for each that the paddle catches, −1 for each it misses.

    A ball starts in any column of the top row, drifts by −1, 0 or 1 columns per step and bounces off the walls. The
    paddle of three cells in the bottom row moves by one column: actions are left, stay, right. A single image does not
    show the drift. An episode ends after `balls` balls.

    Args:
        cells: height and width in cells.
        zoom: pixels per cell; images are (cells · zoom, cells · zoom, 3) bytes: the ball, the paddle, a row of
            the balls left.
        balls: per episode.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, cells: int = 16, zoom: int = 1, balls: int = 5, render_mode: str | None = None):
        self.cells, self.zoom = at_least("cells", cells, 8), at_least("zoom", zoom, 1)
        self.balls = at_least("balls", balls, 1)
        self.render_mode = render_mode
        side = cells * zoom
        self.observation_space, self.action_space = Box(0, 255, (side, side, 3), np.uint8), Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self._left, self._paddle = self.balls, self.cells // 2
        self._drop()
        return self._image(), {}

    def _drop(self) -> None:
        self._row, self._column = 0, int(self.np_random.integers(self.cells))
        self._drift = int(self.np_random.integers(-1, 2))

    def step(self, action: int):
        self._paddle = min(max(self._paddle + int(action) - _STAY, 1), self.cells - 2)
        self._row += 1
        self._column += self._drift
        if not 0 <= self._column < self.cells:
            self._drift = -self._drift
            self._column += 2 * self._drift
        reward = 0.0
        if self._row == self.cells - 1:
            reward = 1.0 if abs(self._column - self._paddle) <= _PADDLE // 2 else -1.0
            self._left -= 1
            self._drop()
        return self._image(), reward, self._left == 0, False, {}

    def _image(self) -> NDArray[np.uint8]:
        small = np.zeros((self.cells, self.cells, 3), np.uint8)
        small[self._row, self._column, 0] = 255
        small[-1, self._paddle - 1 : self._paddle + 2, 1] = 255
        small[0, : self._left, 2] = 255
        return small if self.zoom == 1 else small.repeat(self.zoom, 0).repeat(self.zoom, 1)

    def render(self) -> NDArray[np.uint8] | None:
        """The image, if render_mode is rgb_array."""
        return self._image() if self.render_mode == "rgb_array" else None
