"""A trained Blue agent for CAGE Challenge 2 in one file: needs Python 3.7 or newer and NumPy, nothing else.

`cavalcade export RUN --agent FILE` writes it with the weights of a policy. In a clone of cage-challenge-2, put it
beside CybORG/CybORG/Evaluation/evaluation.py, import `BlueAgent` there, take `agent = BlueAgent()`, and return
`ChallengeWrapper(env=env, agent_name="Blue")` from `wrap`. Its inputs are Blue's 52 observed values and what Blue did
itself; no hidden state.
"""

import base64
import io

import numpy as np

WEIGHTS = ""  # NumPy archive of the layers, base64
EXTRAS = ()  # what is observed beside the table, in this order
ELAPSED = ()  # steps after which a bit of `elapsed` is set

HOSTS = 13  # Defender, Enterprise0-2, Op_Host0-2, Op_Server0, User0-4
WINDOWS = (2, 3, 8, 9, 10)
OPEN_PORTS = (  # on which the hosts' own services listen, by the public scenario
    (22, 53, 68), (22,), (22, 80, 135, 139, 443, 445, 3389), (22, 80, 135, 139, 443, 445, 3389), (22,), (22,), (22,),
    (22,), (21, 22), (21, 22), (135, 139, 445, 3389), (25, 80, 443, 3389), (22, 25, 80, 443, 3390),
)  # fmt: skip
# Decoys in the order of the actions: the port that must be free, the port that is taken, whether Linux and Windows fit.
DECOYS = (
    (80, 80, True, True), (21, 21, False, True), (25, 25, True, False), (139, 139, False, True), (22, 22, True, True),
    (3389, 3389, False, True), (443, 443, True, True), (21, 80, True, False),
)  # fmt: skip
# Actions: 0 Sleep, 1 Monitor, then one for each host: Analyse, Remove, the eight decoys, Restore.
FIRST_DECOY, FIRST_RESTORE, ACTIONS = 28, 132, 145


class Knowledge:
    """What Blue knows of a game: its decoys, the scans it has seen, its last action, the steps taken."""

    def __init__(self):
        self.decoys = np.zeros((len(DECOYS), HOSTS), np.float32)
        self.scanned, self.latest = np.zeros(HOSTS, np.float32), np.zeros(HOSTS, np.float32)
        self.action, self.steps = -1, 0

    def mask(self):
        """Which of the 145 actions are worth trying: all but decoys that would fail."""
        found = np.ones(ACTIONS, bool)
        for host in range(HOSTS):
            taken = {DECOYS[kind][1] for kind in np.flatnonzero(self.decoys[:, host])} | set(OPEN_PORTS[host])
            for kind, (needed, _, linux, windows) in enumerate(DECOYS):
                fits = windows if host in WINDOWS else linux
                found[FIRST_DECOY + HOSTS * kind + host] = fits and needed not in taken
        return found

    def acted(self, action):
        """Notes an action of Blue's."""
        self.action, self.steps = action, self.steps + 1
        kind, host = divmod(action - FIRST_DECOY, HOSTS)
        if action >= FIRST_RESTORE:
            self.decoys[:, host] = 0
        elif kind >= 0 and self.mask()[action]:
            self.decoys[kind, host] = 1

    def saw(self, table):
        """Notes the scans that a table (52,) shows."""
        activity = table.reshape(HOSTS, 4)
        scans = ((activity[:, 0] == 1) & (activity[:, 1] == 0)).astype(np.float32)
        if scans.any():
            self.scanned, self.latest = np.maximum(self.scanned, scans), scans

    def values(self, name):
        """The values of an observation extra."""
        if name == "scans":
            return np.concatenate([self.scanned, self.latest])
        if name == "decoys":
            return self.decoys.reshape(-1)
        if name == "elapsed":
            return (self.steps >= np.array(ELAPSED)).astype(np.float32)
        kinds, hosts = np.zeros(HOSTS, np.float32), np.zeros(HOSTS, np.float32)
        if self.action >= 2:
            kind, host = divmod(self.action - 2, HOSTS)
            kinds[2 + kind] = hosts[host] = 1
        elif self.action >= 0:
            kinds[self.action] = 1
        return np.concatenate([kinds, hosts])


class BlueAgent:
    """The agent, with the methods of CybORG's agents."""

    def __init__(self):
        with np.load(io.BytesIO(base64.b64decode(WEIGHTS)), allow_pickle=False) as archive:
            self.layers = [(archive[f"weight{i}"], archive[f"bias{i}"]) for i in range(len(archive.files) // 2)]
        self.end_episode()

    def get_action(self, observation, action_space=None):
        """The action with the highest probability."""
        table = np.asarray(observation, np.float32)[: 4 * HOSTS]
        self.knowledge.saw(table)
        h = np.concatenate([table] + [self.knowledge.values(name) for name in EXTRAS])
        for i, (weight, bias) in enumerate(self.layers):
            h = h @ weight + bias
            if i < len(self.layers) - 1:
                h = np.tanh(h)
        action = int(np.where(self.knowledge.mask(), h, -np.inf).argmax())
        self.knowledge.acted(action)
        return action

    def end_episode(self):
        """Forgets the game."""
        self.knowledge = Knowledge()

    def train(self, results):
        """Does not learn any more."""

    def set_initial_values(self, action_space, observation):
        """Needs none."""
