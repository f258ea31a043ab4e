"""Plays games in a checkout of CybORG, driven through standard input and output.

Run by `cyborg.py` with an interpreter of CybORG's own: `python cyborg_worker.py CHECKOUT`. It imports nothing of
Cavalcade. Requests and answers are lines of JSON:

    {"reset": "bline", "seed": 3}  →  {"table": [52 values]}    a new game; a seed starts the random stream there
    {"action": 17}                 →  {"table": [52 values], "reward": -0.1}
"""

import json
import os
import random
import sys
import warnings


def main():
    """Answers requests until the input ends."""
    warnings.filterwarnings("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever CybORG prints goes to stderr
    checkout = os.path.join(sys.argv[1], "CybORG")
    sys.path[0] = checkout  # instead of this folder, whose modules must not be taken for CybORG's dependencies
    from CybORG import CybORG
    from CybORG.Agents import B_lineAgent, RedMeanderAgent, SleepAgent
    from CybORG.Agents.Wrappers import ChallengeWrapper

    scenario = os.path.join(checkout, "CybORG", "Shared", "Scenarios", "Scenario2.yaml")
    agents = {"bline": B_lineAgent, "meander": RedMeanderAgent, "sleep": SleepAgent}
    games = {}

    def answer(content):
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    answer({"ready": True})
    game = None
    for line in sys.stdin:
        request = json.loads(line)
        if "reset" in request:
            red = request["reset"]
            if red not in games:
                cyborg = CybORG(scenario, "sim", agents={"Red": agents[red]})
                games[red] = ChallengeWrapper(env=cyborg, agent_name="Blue")
            if request.get("seed") is not None:
                random.seed(request["seed"])
            game = games[red]
            answer({"table": [int(x) for x in game.reset()]})
        else:
            table, reward, _, _ = game.step(request["action"])
            answer({"table": [int(x) for x in table], "reward": float(reward)})


if __name__ == "__main__":
    main()
