"""Finds settings that suit a machine by speed: backend, workers, environments, batch and minibatches, in turn.

The objective is steps per second of the whole training, on the CPU. Sizes of batch and minibatch stay within a factor
of two of where they were, since they change what is learnt as well as how fast; `by_reward` goes further.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from cavalcade.config.hosting import WorkerConfig
from cavalcade.config.ppo import PPOConfig
from cavalcade.core.errors import ConfigError
from cavalcade.core.threads import cores
from cavalcade.tuning.trials import WORTH_IT, Run, Trial, run_on_cpu
from cavalcade.vector.pool import deal


class Tunable(Protocol):
    """The settings of a training: with those of PPO, and as `host` those of hosted environments if it has any."""

    @property
    def ppo(self) -> PPOConfig:
        """Settings of PPO."""
        ...


def tune(config: Tunable, seconds: float, run: Run | None = None) -> Iterator[Trial]:
    """Tries settings, each time from the best so far; yields every trial."""
    run = run or run_on_cpu
    best = replace(run(config, seconds), words="as it is", best=True)
    yield best
    if best.trouble:
        raise ConfigError(f"the settings to start from do not run: {best.trouble}")
    for candidates in _stages(config):
        base = best
        for words, changed in candidates(base.config):
            if changed == base.config:
                continue
            trial = run(changed, seconds)
            trial = replace(trial, words=words, best=trial.rate > WORTH_IT * best.rate)
            yield trial
            best = trial if trial.best else best


def count(config: Tunable) -> int:
    """Maximum number of trials."""
    return 1 + sum(len(list(stage(config))) for stage in _stages(config))


def preset(config: Tunable) -> dict[str, Any]:
    """The settings that were tuned, as plain data."""
    ppo = config.ppo
    found: dict[str, Any] = {
        "ppo": {"num_envs": ppo.num_envs, "rollout_steps": ppo.rollout_steps, "minibatches": ppo.minibatches}
    }
    if host := _host(config):
        found["host"] = {"backend": host.backend, "workers": host.workers, "async_factor": host.async_factor}
    return found


Stage = Callable[[Any], Iterator[tuple[str, Any]]]


def _host(config: Tunable) -> WorkerConfig | None:
    """How environments are hosted, where they are."""
    return getattr(config, "host", None)


def _stages(config: Tunable) -> list[Stage]:
    first: list[Stage] = [_backends] if _host(config) else []
    return [*first, _environments, _minibatches]


def _backends(config: Any) -> Iterator[tuple[str, Any]]:
    """Backends, with workers up to the cores, and beyond them for environments that wait."""
    with suppress(ConfigError):  # with staleness, workers have to play by themselves
        yield "serial", replace(config, host=replace(config.host, backend="serial"))
    for workers in sorted({1, cores() // 2 or 1, cores(), 4 * cores()}):
        for factor in sorted({1, 2, 2 * workers}):
            backend = "shared" if factor == 1 else "async"
            with suppress(ConfigError):
                deal(config.ppo.num_envs, workers, factor)
                host = replace(config.host, backend=backend, workers=workers, async_factor=factor)
                groups = f", {factor} groups" if backend == "async" else ""
                yield f"{backend}, {workers} workers{groups}", replace(config, host=host)


def _environments(config: Any) -> Iterator[tuple[str, Any]]:
    """More or fewer environments, with the same batch or twice that."""
    ppo = config.ppo
    batch = ppo.num_envs * ppo.rollout_steps
    for num_envs in (ppo.num_envs // 4, ppo.num_envs // 2, 2 * ppo.num_envs, 4 * ppo.num_envs):
        for steps in (batch // max(num_envs, 1), 2 * batch // max(num_envs, 1)):
            if num_envs >= 4 and steps >= 8:
                changed = _sized(config, num_envs=num_envs, rollout_steps=steps)
                if changed:
                    yield f"{num_envs} environments × {steps} steps", changed


def _minibatches(config: Any) -> Iterator[tuple[str, Any]]:
    """Half or twice the minibatches."""
    for minibatches in (config.ppo.minibatches // 2, 2 * config.ppo.minibatches):
        changed = _sized(config, minibatches=minibatches) if minibatches else None
        if changed:
            yield f"{minibatches} minibatches", changed


def _sized(config: Any, **sizes: int) -> Any | None:
    """The configuration with other sizes, if they fit together."""
    try:
        return replace(config, ppo=replace(config.ppo, **sizes))
    except ConfigError:
        return None
