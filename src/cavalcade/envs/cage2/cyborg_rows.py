"""CybORG games of some rows of a batch, in a worker with CybORG's own interpreter.

It imports nothing of Cavalcade and runs on Python 3.8. CybORG draws from the random stream of its process; each game
has its own stream, which is installed while that game steps, so that games do not depend on the others in the process.

The observation is the 52 values of Blue's table; the episode statistic is the Red agent; the true state is the highest
session of Red on each of the 13 hosts: 0 none, 1 user, 2 privileged.
"""

import os
import random
import sys
import warnings

import numpy as np

HOSTS = ("Defender", "Enterprise0", "Enterprise1", "Enterprise2", "Op_Host0", "Op_Host1", "Op_Host2", "Op_Server0",
         "User0", "User1", "User2", "User3", "User4")  # fmt: skip
REDS = ("sleep", "bline", "meander")


def make_rows(fields, start, stop, options):
    """Entry point of the worker: games of rows start … stop − 1."""
    return CyborgRows(fields, start, stop, **options)


class CyborgRows:
    """Games of rows start … stop − 1."""

    def __init__(self, fields, start, stop, checkout, red, green, horizon, true_state_every):
        warnings.filterwarnings("ignore")
        folder = os.path.join(checkout, "CybORG")
        if folder not in sys.path:
            sys.path.insert(0, folder)
        self._fields, self._start = fields, start
        self._reds = REDS if red == "mixed" else (red,)
        self._green, self._horizon, self._every = green, horizon, true_state_every
        self._scenario = os.path.join(folder, "CybORG", "Shared", "Scenarios", "Scenario2.yaml")
        count = stop - start
        self._made = [{} for _ in range(count)]  # per row: games by Red
        self._games, self._red = [None] * count, [0] * count
        self._streams, self._lengths, self._clock = [None] * count, [0] * count, 0
        fields["action_mask"][start:stop] = True

    def reset(self):
        """Begins games in the rows marked `wanted`."""
        f = self._fields
        for i in range(len(self._games)):
            row = self._start + i
            if f["wanted"][row]:
                self._begin(i, row)
                f["reward"][row] = 0
                f["terminated"][row] = f["truncated"][row] = False

    def step(self):
        """Steps each game; at the horizon, begins the next."""
        f = self._fields
        self._clock += 1
        for i, game in enumerate(self._games):
            row = self._start + i
            random.setstate(self._streams[i])
            table, reward, _, _ = game.step(int(f["action"][row]))
            self._streams[i] = random.getstate()
            self._lengths[i] += 1
            late = self._lengths[i] >= self._horizon
            f["reward"][row], f["truncated"][row] = reward, late
            if late:
                f["final_observation"][row] = table
                f["episode_stats"][row, 0] = self._red[i]
                self._begin(i, row)
            else:
                f["observation"][row] = table
                if self._every and self._clock % self._every == 0:
                    f["true_state"][row] = sessions(game)

    def _begin(self, i, row):
        """Begins the next game of a row, with its own seed."""
        f = self._fields
        f["episodes"][row] += 1
        words = [int(f["seed"][row]), int(f["index"][row]), int(f["episodes"][row])]
        random.seed(int(np.random.SeedSequence(words).generate_state(2, np.uint64)[0]))
        self._red[i] = REDS.index(random.choice(self._reds))
        self._games[i] = game = self._game(i, REDS[self._red[i]])
        f["observation"][row] = game.reset()
        self._streams[i], self._lengths[i] = random.getstate(), 0
        if self._every:
            f["true_state"][row] = sessions(game)

    def _game(self, i, red):
        """The game of a row against a Red agent, made at its first use."""
        if red not in self._made[i]:
            from CybORG import CybORG
            from CybORG.Agents import B_lineAgent, GreenAgent, RedMeanderAgent, SleepAgent
            from CybORG.Agents.Wrappers import ChallengeWrapper

            agents = {"Red": {"bline": B_lineAgent, "meander": RedMeanderAgent, "sleep": SleepAgent}[red]}
            if self._green:
                agents["Green"] = GreenAgent
            cyborg = CybORG(self._scenario, "sim", agents=agents)
            self._made[i][red] = ChallengeWrapper(env=cyborg, agent_name="Blue")
        return self._made[i][red]

    def close(self):
        """Nothing to close: the games own no resources."""


def sessions(game):
    """The highest session of Red on each host."""
    cyborg = game
    while not hasattr(cyborg, "environment_controller"):
        cyborg = cyborg.env
    found = np.zeros(len(HOSTS), np.uint8)
    for session in cyborg.environment_controller.state.sessions["Red"].values():
        if session.host in HOSTS:
            level = 2 if session.username in ("root", "SYSTEM") else 1
            host = HOSTS.index(session.host)
            found[host] = max(found[host], level)
    return found
