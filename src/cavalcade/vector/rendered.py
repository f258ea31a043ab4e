"""Gymnasium environments that are rendered while they are stepped, in this process."""

from typing import Any

import gymnasium
import numpy as np

from cavalcade.vector.rows import Rows
from cavalcade.vector.source import make_env

RENDERED_ROWS = __name__
MODES = ("human", "ansi", "rgb_array")


def make_rows(fields: dict[str, np.ndarray], start: int, stop: int, options: dict[str, Any]) -> "RenderedRows":
    """As in `cavalcade.vector.rows`."""
    return RenderedRows(fields, start, stop, **options)


class RenderedRows(Rows):
    """Rows that keep the last frame of an episode, since the next one begins in the same step."""

    _last: Any = None

    def step(self) -> None:
        self._last = None
        super().step()

    def _end(self, i: int, observation: Any, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        self._last = self._envs[i].render()
        return super()._end(i, observation, info)

    def frame(self) -> Any:
        """The first environment as it renders itself: text, an array, or None if it draws into a window of its own."""
        return self._envs[0].render() if self._last is None else self._last


def render_modes(name: str, options: dict[str, Any]) -> tuple[str, ...]:
    """The modes in which an environment says it renders, of those that can be watched."""
    env = make_env(name, options)
    try:
        return tuple(mode for mode in MODES if mode in env.metadata.get("render_modes", ()))
    finally:
        env.close()


def why_not_rendered(name: str, options: dict[str, Any], mode: str) -> str:
    """Why an environment cannot be rendered in a mode, e.g. a missing package; empty if it can."""
    env = make_env(name, {**options, "render_mode": mode})
    try:
        env.reset(seed=0)
        env.render()
    except (gymnasium.error.Error, ImportError) as error:
        return " ".join(str(error).split())
    finally:
        env.close()
    return ""
