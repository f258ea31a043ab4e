"""Counts violations of repair orders by exported policies in the original CybORG.

    python benchmarks/audit_orders.py export RUN FOLDER            # in Cavalcade's environment: a graph per order
    python benchmarks/audit_orders.py play CLONE RED FOLDER GAMES  # in CybORG's environment, with onnxruntime

`play` imports nothing of Cavalcade: it judges by the names of CybORG's own actions and by its own table.
"""

import os
import sys
from pathlib import Path

HORIZON = 100
REPAIRS = ("Remove", "Restore")
KINDS = {
    "Defender": "defender",
    "Enterprise": "enterprise",
    "Op_Server": "op_server",
    "Op_Host": "op_host",
    "User": "user",
}


def export(run, folder):
    import csv

    from cavalcade.runs.export import export_onnx
    from cavalcade.search.policies import load_search_policy

    with open(os.path.join(run, "search.csv"), newline="") as file:
        orders = sorted({row["order"] for row in csv.DictReader(file) if row["kind"] == "order"})
    Path(folder).mkdir(parents=True, exist_ok=True)
    for order in orders:
        export_onnx(load_search_policy(run, order), 0, Path(folder, f"{order}.onnx"))
    print(f"{len(orders)} orders in {folder}")


def kind_of(host):
    return KINDS[host.rstrip("0123456789")]


def forbidden(order, shown, name, host):
    """Whether a repair breaks an order while these kinds of hosts are shown compromised."""
    if name not in REPAIRS or len(shown) < 2:
        return False
    return kind_of(host) != next(kind for kind in order if kind in shown)


def play(clone, red, folder, games):
    sys.path.insert(0, os.path.join(clone, "CybORG"))
    import inspect

    import numpy as np
    import onnxruntime
    from CybORG import CybORG
    from CybORG.Agents import B_lineAgent, RedMeanderAgent
    from CybORG.Agents.Wrappers import BlueTableWrapper, ChallengeWrapper

    scenario = Path(inspect.getfile(CybORG)).parent / "Shared" / "Scenarios" / "Scenario2.yaml"
    cyborg = CybORG(str(scenario), "sim", agents={"Red": {"bline": B_lineAgent, "meander": RedMeanderAgent}[red]})
    game = ChallengeWrapper(env=cyborg, agent_name="Blue")
    table = game
    while not isinstance(table, BlueTableWrapper):
        table = table.env
    total = {"steps": 0, "binding": 0, "repairs": 0, "violations": 0, "possible": 0}
    files = sorted(Path(folder).glob("*.onnx"))
    for file in files:
        order = file.stem.split(">")
        session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
        for _ in range(games):
            observation = game.reset()
            for _ in range(HORIZON):
                actions = [(type(a).__name__, getattr(a, "hostname", None)) for a in game.get_attr("possible_actions")]
                rows = table.info.values()
                shown = {kind_of(row[2]) for row in rows if row[2] != "User0" and row[4] != "No"}
                given = {"observation": observation[None].astype(np.float32), "action_mask": np.ones((1, 145), bool)}
                log_probability, action = session.run(["log_probability", "action"], given)
                name, host = actions[int(action[0])]
                total["steps"] += 1
                total["binding"] += len(shown) >= 2
                total["repairs"] += len(shown) >= 2 and name in REPAIRS
                total["violations"] += forbidden(order, shown, name, host)
                for logit, (other, where) in zip(log_probability[0], actions):
                    total["possible"] += forbidden(order, shown, other, where) and logit > -1e20
                observation = game.step(int(action[0]))[0]
    words = ", ".join(f"{name} {n:,}" for name, n in total.items())
    print(f"{red}: {len(files)} orders, {games} games each, {words} (forbidden repairs that could have been chosen)")


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "export":
        export(sys.argv[2], sys.argv[3])
    elif len(sys.argv) == 6 and sys.argv[1] == "play":
        play(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
    else:
        sys.exit(__doc__)
