"""A folder that looks like a clone of CAGE Challenge 2: its API, none of its game.

A step shows 52 random bits and pays −1 … 0; Red holds User0 and, after every fifth step, one more host.
"""

from pathlib import Path

CYBORG = """
class Session:
    def __init__(self, host, username):
        self.host, self.username = host, username

class State:
    def __init__(self):
        self.sessions = {"Red": {0: Session("User0", "SYSTEM")}}

class Controller:
    def __init__(self):
        self.state = State()

class CybORG:
    def __init__(self, path, mode, agents):
        self.environment_controller, self.agents, self.env = Controller(), agents, mode
"""
AGENTS = "B_lineAgent, GreenAgent, RedMeanderAgent, SleepAgent = 'bline', 'green', 'meander', 'sleep'\n"
WRAPPERS = """
import random
from CybORG import Session

HOSTS = ["Enterprise0", "Op_Server0", "User1"]

class ChallengeWrapper:
    def __init__(self, env, agent_name):
        self.env, self.steps = env, 0

    def reset(self):
        self.steps = 0
        self.env.environment_controller.__init__()
        return [0] * 52

    def step(self, action):
        self.steps += 1
        sessions = self.env.environment_controller.state.sessions["Red"]
        if self.steps % 5 == 0:
            sessions[self.steps] = Session(HOSTS[self.steps // 5 % 3], "root" if self.steps % 2 else "user")
        if action == 144:
            raise RuntimeError("this CybORG does not like action 144")
        return [random.randrange(2) for _ in range(52)], -random.random(), False, {}
"""


def make_clone(folder: Path, *, fails: bool = True) -> Path:
    """Writes it; fails: whether action 144 raises."""
    package = folder / "CybORG" / "CybORG"
    for path, content in (
        ("__init__.py", CYBORG),
        ("Agents/__init__.py", AGENTS),
        ("Agents/Wrappers/__init__.py", WRAPPERS if fails else WRAPPERS.replace("action == 144", "False")),
        ("Shared/Actions/AbstractActions/DiscoverNetworkServices.py", "state.sessions.clearports()\n"),  # as in head
        ("Shared/Enums.py", "return version_string\n"),
    ):
        (package / path).parent.mkdir(parents=True, exist_ok=True)
        (package / path).write_text(content)
    return folder
