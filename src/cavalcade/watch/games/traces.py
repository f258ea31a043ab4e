"""Recorded episodes of the original (docs/trace-format.md) as games to look at."""

from pathlib import Path
from typing import Any

from cavalcade.core.errors import ConfigError, one_of
from cavalcade.envs.cage2.scenario import VARIANTS
from cavalcade.envs.cage2.trace import load_trace, played, replay
from cavalcade.watch.games.record import game_data, step_data


def trace_game(path: Path, name: str, episode: int = 0, variant: str = "challenge") -> dict[str, Any]:
    """An episode of a file, replayed with its recorded draws; name: of the file, for the page."""
    one_of("variant", variant, VARIANTS)
    trace = load_trace(path)
    if not 0 <= episode < trace.episodes:
        raise ConfigError(f"episode is {episode}; {name} has {trace.episodes}, numbered from 0")
    steps, env = [], None
    for env in played(trace, variant):
        steps.append(step_data(env, episode))
    assert env is not None
    about = {"trace": name, "episode": episode, "episodes": trace.episodes, "red": trace.red, "blue": "recorded"}
    if wrong := next(replay(trace), None):
        about["note"] = f"the replay differs from the recording: episode {wrong.episode}, {wrong.field}"
    return game_data(env, steps, episode, about=about)
