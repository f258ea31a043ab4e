"""One trial of settings, in a process of its own: `python -m cavalcade.tuning.trial JSON` trains for a while.

Prints JSON: environment steps per second, the share of time of collecting, the mean reward towards the end, and what
the engine said.
"""

import json
import sys
import time
from typing import Any

import numpy as np

from cavalcade.config.io import from_dict
from cavalcade.ppo.engine import Engine
from cavalcade.targets import target_named
from cavalcade.targets.base import Setup

_TAIL = 0.2  # share of the time whose rewards count


def main(task: dict[str, Any]) -> dict[str, Any]:
    """Measures."""
    sys.path[:] = task["path"]
    target = target_named(task["config"]["target"])
    config = from_dict(target.Config, task["config"])
    engine = target.prepare(config, Setup()).engine
    rewards: list[tuple[float, float]] = []  # seconds, reward
    try:
        engine.env.reset()
        engine.refresh()  # shows the games to a device
        _update(engine)
        begun, collecting, start = engine.counters.clock, 0.0, time.perf_counter()
        while (seconds := time.perf_counter() - start) < task["seconds"]:
            taken, found = _update(engine)
            collecting += taken
            rewards += [(time.perf_counter() - start, reward) for reward in found]
        steps = (engine.counters.clock - begun) * engine.num_envs
    finally:
        engine.env.close()
    last = [reward for at, reward in rewards if at >= (1 - _TAIL) * seconds]
    reported = {"reward": float(np.mean(last))} if last else {}
    return {"rate": steps / seconds, "collecting": collecting / seconds, "notes": engine.notes, **reported}


def _update(engine: Engine) -> tuple[float, list[float]]:
    """Collects and learns; returns the seconds of the first, and rewards.

    Those are the mean per agent-step where the engine counts it, else the returns of the episodes that ended.
    """
    start = time.perf_counter()
    episodes = engine.collect()
    taken = time.perf_counter() - start
    metrics = engine.update(0.0)
    return taken, metrics.get("reward", episodes.total).tolist()


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
