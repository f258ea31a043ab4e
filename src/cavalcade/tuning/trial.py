"""One trial of settings, in a process of its own: `python -m cavalcade.tuning.trial JSON` trains for a while.

Prints JSON: environment steps per second, and the share of time of collecting.
"""

import json
import sys
import time
from typing import Any

from cavalcade.config.io import from_dict
from cavalcade.ppo.engine import Engine
from cavalcade.targets import target_named
from cavalcade.targets.base import Setup


def main(task: dict[str, Any]) -> dict[str, float]:
    """Measures."""
    sys.path[:] = task["path"]
    target = target_named(task["config"]["target"])
    config = from_dict(target.Config, task["config"])
    engine = target.prepare(config, Setup()).engine
    try:
        engine.env.reset()
        _update(engine)
        begun, collecting, start = engine.counters.clock, 0.0, time.perf_counter()
        while time.perf_counter() - start < task["seconds"]:
            collecting += _update(engine)
        seconds = time.perf_counter() - start
        steps = (engine.counters.clock - begun) * engine.num_envs
    finally:
        engine.env.close()
    return {"rate": steps / seconds, "collecting": collecting / seconds}


def _update(engine: Engine) -> float:
    """Collects and learns; returns the seconds of the first."""
    start = time.perf_counter()
    engine.collect()
    taken = time.perf_counter() - start
    engine.update(0.0)
    return taken


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
