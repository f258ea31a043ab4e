"""Finds the sizes with which a policy learns fastest by the clock, on the CPU or a GPU.

Environments, batch and minibatches are doubled together until memory ends, or a limit. Of these sizes, those that are
faster than all smaller ones are trained for the same time each, and the one with the highest reward is kept; then its
minibatches and its learning rate are tried half as large and twice as large.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from cavalcade.core.errors import ConfigError
from cavalcade.tuning.trials import WORTH_IT, Run, Trial, run_trial

_SIZES = ("num_envs", "batch_size", "minibatch_size")  # those that double; of a configuration that has them
_KEPT = (*_SIZES, "rollout_steps", "minibatches", "bptt_horizon", "epochs", "learning_rate")
_FASTEST = 10.0  # learning rate that settings allow


@dataclass(frozen=True)
class Budget:
    """What tuning by reward may use."""

    seconds: float  # of a trial for speed
    train_seconds: float  # of a training
    largest_batch: int  # in samples


def tune_by_reward(config: Any, budget: Budget, run: Run = run_trial) -> Iterator[Trial]:
    """Tries sizes, then trains with those that are worth it; yields every trial. Only trainings can be the best."""
    rungs: list[Trial] = []
    for rung in _ladder(config, budget.largest_batch):
        trial = replace(run(rung, budget.seconds), words=_words(rung))
        yield trial
        if trial.trouble:
            break
        rungs.append(trial)
    if not rungs:
        raise ConfigError(f"the settings to start from do not run: {trial.trouble}")
    best: Trial | None = None
    for rung in worth_training(rungs):
        best = yield from _trained(rung.config, best, budget, run)
    for stage in _STAGES:
        assert best is not None
        for changed in stage(best.config):
            best = yield from _trained(changed, best, budget, run)


def _trained(config: Any, best: Trial | None, budget: Budget, run: Run) -> Generator[Trial, None, Trial]:
    """Trains, yields the trial, and returns the better one."""
    found = replace(run(config, budget.train_seconds), words=f"{_words(config)}, rate {config.ppo.learning_rate:.2g}")
    if not found.trouble and found.reward is None:
        found = replace(found, trouble="no episode ended towards the end; give more --train-seconds")
    better = not found.trouble and (best is None or found.reward > best.reward)  # pyright: ignore
    yield replace(found, best=better)
    if best is None and not better:
        raise ConfigError(f"a training with the settings to start from does not run: {found.trouble}")
    return found if better else best  # pyright: ignore


def most_trials(config: Any, largest_batch: int) -> int:
    """Maximum number of trials."""
    return 2 * len(list(_ladder(config, largest_batch))) + sum(len(list(stage(config))) for stage in _STAGES)


def worth_training(rungs: list[Trial]) -> list[Trial]:
    """The smallest of the sizes, and those that are faster than all smaller ones; others learn less for nothing."""
    kept = rungs[:1]
    for rung in rungs[1:]:
        if rung.rate > WORTH_IT * kept[-1].rate:
            kept.append(rung)
    return kept


def preset_by_reward(config: Any) -> dict[str, Any]:
    """The settings that were tuned, as plain data."""
    return {"ppo": {name: getattr(config.ppo, name) for name in _KEPT if hasattr(config.ppo, name)}}


def batch_of(ppo: Any) -> int:
    """Samples between updates."""
    return ppo.batch_size if hasattr(ppo, "batch_size") else ppo.num_envs * ppo.rollout_steps


def _words(config: Any) -> str:
    ppo, batch = config.ppo, batch_of(config.ppo)
    size = ppo.minibatch_size if hasattr(ppo, "minibatch_size") else batch // ppo.minibatches
    return f"{ppo.num_envs:,} environments, batch {batch:,} / {size:,}"


def _ladder(config: Any, largest: int) -> Iterator[Any]:
    """The settings, and twice, four times … their sizes; the learning rate grows with the root of the batch.

    The budget of the run grows as well, so that it is never smaller than a batch: trials end by the clock.
    """
    factor = 1
    while factor == 1 or factor * batch_of(config.ppo) <= largest:
        sizes = {name: factor * getattr(config.ppo, name) for name in _SIZES if hasattr(config.ppo, name)}
        rate = min(config.ppo.learning_rate * factor**0.5, _FASTEST)
        budget = {name: factor * getattr(config, name) for name in ("steps", "episodes") if hasattr(config, name)}
        yield replace(config, ppo=replace(config.ppo, **sizes, learning_rate=rate), **budget)
        factor *= 2


def _minibatches(config: Any) -> Iterator[Any]:
    """Minibatches half and a quarter as large, and twice as large, where that divides."""
    ppo = config.ppo
    for factor in (0.5, 0.25, 2):
        if hasattr(ppo, "minibatch_size"):
            changed = {"minibatch_size": int(factor * ppo.minibatch_size)}
        else:
            changed = {"minibatches": int(ppo.minibatches / factor)}
        with suppress(ConfigError):
            yield replace(config, ppo=replace(ppo, **changed))


def _learning_rates(config: Any) -> Iterator[Any]:
    """Half the learning rate, and twice."""
    for factor in (0.5, 2.0):
        rate = min(factor * config.ppo.learning_rate, _FASTEST)
        yield replace(config, ppo=replace(config.ppo, learning_rate=rate))


_STAGES: tuple[Callable[[Any], Iterator[Any]], ...] = (_minibatches, _learning_rates)
