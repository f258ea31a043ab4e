"""Steps per second of the original CybORG, on one core: `python benchmarks/peers/cyborg_speed.py CHECKOUT [seconds]`.

CHECKOUT is a clone of cage-challenge/cage-challenge-2. CybORG is old: run this with an interpreter of its own that has
numpy<2, gym 0.26, paramiko, pyyaml, prettytable, docutils and networkx. Nothing of Cavalcade is needed.
"""

import random
import sys
import time
from pathlib import Path


def steps_per_second(agent: type, scenario: Path, seconds: float) -> float:
    """Random Blue through the official wrapper, 100-step episodes, resets included."""
    from CybORG import CybORG
    from CybORG.Agents.Wrappers import ChallengeWrapper

    env = ChallengeWrapper(env=CybORG(str(scenario), "sim", agents={"Red": agent}), agent_name="Blue")
    env.reset()
    steps, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        for _ in range(100):
            env.step(random.randrange(145))
        env.reset()
        steps += 100
    return steps / (time.perf_counter() - start)


def main() -> None:
    checkout = Path(sys.argv[1]) / "CybORG"
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 10.0
    sys.path.insert(0, str(checkout))
    from CybORG.Agents import B_lineAgent, RedMeanderAgent

    scenario = checkout / "CybORG" / "Shared" / "Scenarios" / "Scenario2.yaml"
    for agent in (B_lineAgent, RedMeanderAgent):
        print(f"{agent.__name__}: {steps_per_second(agent, scenario, seconds):,.0f} steps/s")


if __name__ == "__main__":
    main()
