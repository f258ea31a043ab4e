"""An episode of a trained policy in the terminal, for gym: and env:, step by step."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from cavalcade.config.base import Settings, whole
from cavalcade.core.contract import Environment
from cavalcade.core.errors import ConfigError
from cavalcade.ppo.mlp_policy import MlpPolicy
from cavalcade.targets.base import LoadPolicy, Target
from cavalcade.targets.decision import explain
from cavalcade.targets.half_blocks import half_blocks

_VALUES = 8  # of an observation that are printed
_BESIDE_FRAME = 4  # lines of a terminal that a picture leaves free

Frame = Callable[[], Any]  # the environment as it renders itself: text, (H, W, 3) uint8, or None


@dataclass(frozen=True)
class WatchOptions(Settings):
    """Shows an episode of a trained policy on a held-out seed, rendered by the environment if it can be.

    Each step shows the policy's three best actions with their probabilities, and its value.
    """

    run: Path | None = None
    """Run or checkpoint; the same as `cavalcade play RUN`."""
    render: Literal["auto", "human", "ansi", "rgb_array", "none"] = "auto"
    """Render mode of the environment: human opens its window, ansi is text, rgb_array is drawn on a terminal, none
    prints observations. auto takes the first of ansi, rgb_array (on a terminal) and none that works."""
    steps: int = whole(1000, 1)
    """Maximum number of steps."""
    sampled: bool = False
    """Sample actions instead of acting greedily."""
    member: int | None = None
    """Index of the policy in a run with several; by default the best on validation episodes."""
    seed: int = whole(1, 0)
    """Seed of the episode; it never overlaps with training."""
    delay: float = 0.05
    """Seconds between steps on a terminal."""

    def __post_init__(self):
        super().__post_init__()
        if self.delay < 0:
            raise ConfigError(f"delay is {self.delay}; it must be at least 0 seconds")


def load_watched(options: WatchOptions, load: LoadPolicy, target: Target[Any]) -> MlpPolicy:
    """Loads the policy that plays; raises `ConfigError` without a run, or with one of another target."""
    spelt = target.name + "NAME" * target.prefix
    if options.run is None:
        raise ConfigError(f"no run is given; watch one that was trained on {spelt} with: cavalcade play RUN")
    policy = load(str(options.run))
    if not policy.config.target.startswith(target.name):
        raise ConfigError(
            f"{options.run} was trained on {policy.config.target}, not on {spelt}; watch it with: cavalcade play "
            f"{quote(str(options.run))}"
        )
    member, which = target.member(policy, options.member)
    if which:
        print(which)
    return policy[member]


def watch(policy: MlpPolicy, env: Environment, options: WatchOptions, frame: Frame | None = None) -> None:
    """Plays and shows the first episode of a batch of one, which has been reset."""
    runner = policy.runner(0, greedy=not options.sampled, seed=options.seed)
    print(f"{policy.label} at update {policy.update}, {'sampled' if options.sampled else 'greedy'}")
    total, step, end, state = 0.0, 0, "", policy.initial_state()
    with _screen(options.delay, frame) as show:
        show(["step 0"], env.buffers.observation[0])
        while step < options.steps and not end:
            why, actions = explain(policy, env, state=state), runner(env)
            buffers = env.step(actions)
            step, total = step + 1, total + float(buffers.reward[0])
            end = "terminated" if buffers.terminated[0] else "truncated" if buffers.truncated[0] else ""
            reward = f"reward {buffers.reward[0]:.2f}   so far {total:.2f}"
            lines = [f"step {step}   action {_numbers(np.atleast_1d(actions[0]))}   {reward}", f"  {why}"]
            show(lines, (buffers.final_observation if end else buffers.observation)[0])
    print(f"{step} steps, return {total:.2f}, {end or 'not over yet'}")


@contextmanager
def _screen(delay: float, frame: Frame | None) -> Iterator[Callable[[list[str], NDArray], None]]:
    """A function that shows lines and the environment, or its observation: on a terminal in place, else printed."""
    console = Console()
    live = Live(console=console, auto_refresh=False) if sys.stdout.isatty() else None

    def show(lines: list[str], observation: NDArray) -> None:
        drawn = frame() if frame else None
        if drawn is None:
            lines = [*lines, f"  observation {_numbers(observation)}"]
        if live is None:
            print("\n".join([*lines, *([drawn] if isinstance(drawn, str) else [])]))
        else:
            live.update(Group(*map(Text, lines), *_picture(drawn, console)), refresh=True)
            time.sleep(delay)

    with live or nullcontext():
        yield show


def _picture(drawn: Any, console: Console) -> list[RenderableType]:
    if isinstance(drawn, str):
        return [Text.from_ansi(drawn)]
    if isinstance(drawn, np.ndarray):
        return [half_blocks(drawn, console.width, console.height - _BESIDE_FRAME)]
    return []


def _numbers(values: NDArray) -> str:
    """The first values of an array as text."""
    said = ", ".join(
        f"{value:g}" if values.dtype.kind in "iub" else f"{value:.3f}" for value in values[:_VALUES].tolist()
    )
    return said + (f", … ({len(values)} values)" if len(values) > _VALUES else "")
