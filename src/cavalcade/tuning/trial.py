"""One trial of settings, in a process of its own: `python -m cavalcade.bench.trial JSON` trains for a while.

Prints JSON: environment steps per second, and the shares of time of collecting and of learning.
"""

import json
import sys
import time
from typing import Any

from cavalcade.config import GymTrainConfig, TrainConfig, training_kind
from cavalcade.plain import from_dict
from cavalcade.ppo.learner import Learner
from cavalcade.ppo.make import make_learner
from cavalcade.ppo.threads import choose_threads, use_threads
from cavalcade.runs.environments import environment_for


def main(task: dict) -> dict[str, float]:
    """Measures."""
    sys.path[:] = task["path"]
    kind: Any = training_kind(task["config"]["target"])
    config: TrainConfig | GymTrainConfig = from_dict(kind, task["config"])
    threads = choose_threads()
    use_threads(threads)
    env = environment_for(config, threads)
    try:
        learner, _ = make_learner(env, config.ppo, config.seeds)
        env.reset()
        _update(learner)
        steps, collecting, start = 0, 0.0, time.perf_counter()
        while time.perf_counter() - start < task["seconds"]:
            collecting += _update(learner)
            steps += env.spec.num_envs * config.ppo.update_steps
        seconds = time.perf_counter() - start
    finally:
        env.close()
    return {"rate": steps / seconds, "collecting": collecting / seconds}


def _update(learner: Learner) -> float:
    """Collects and learns; returns the seconds of the first."""
    start = time.perf_counter()
    learner.collect()
    taken = time.perf_counter() - start
    learner.update(0.0)
    return taken


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
