"""Plays games in a checkout of CybORG and writes a file of recorded episodes (docs/trace-format.md).

Run by `record.py` with CybORG's own interpreter: `python cyborg_recorder.py CHECKOUT`. It imports nothing of Cavalcade.
When CybORG is loaded it answers and waits for one request: `path`, the file to write; `about`, its text on the fields;
`meta`, its header, which also has the settings of the games and the numbering of hosts, ports and so on. It answers
after each episode and when the file is written. Request and answers are lines of JSON.

CybORG is not changed. Where a random outcome matters to the game, the name through which a module reaches Python's
`random` is replaced by a function that calls the original and records the outcome, so the random stream is the same as
without. Blue draws from its own stream.
"""

import importlib
import json
import os
import random
import sys
import types
import warnings

PRIVILEGED = ("root", "SYSTEM")
# Names of the decoys' processes and weights of the exploits, in the order of the header.
DECOY_PROCESSES = (
    "apache2", "femitter", "haraka", "Smss.exe", "Sshd.exe", "Svchost.exe", "Tomcat.exe", "vsftpd",
)  # fmt: skip
EXPLOIT_WEIGHTS = (2.0, 1.0, 3.0, 4.0, 0.1, 5.0, 6.0, 7.0)
NO_DRAWS = {
    "d_bline_target": -1, "d_exploit_other": -1, "d_exploit_nother": 0, "d_exploit_u": float("nan"),
    "d_detect_u": float("nan"), "d_esc_idx": -1, "d_esc_n": 0, "d_imp_idx": -1, "red_exploit": -1,
    "d_meander_addr_perm": [-1] * 13, "d_meander_host_perm": [-1] * 13,
}  # fmt: skip
# The parameter of each of Red's actions.
KINDS = {
    "DiscoverRemoteSystems": "subnet", "DiscoverNetworkServices": "ip_address", "ExploitRemoteService": "ip_address",
    "PrivilegeEscalate": "hostname", "Impact": "hostname",
}  # fmt: skip
FLOATS = ("reward", "d_exploit_u", "d_detect_u")
WIDE = ("blue_action", "d_esc_idx", "d_esc_n", "d_imp_idx")


def main():
    """Plays the requested episodes and writes the file."""
    warnings.filterwarnings("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever CybORG prints goes to stderr
    checkout = os.path.join(sys.argv[1], "CybORG")
    sys.path[0] = checkout  # instead of this folder, whose modules must not shadow CybORG's dependencies
    import numpy as np

    importlib.import_module("CybORG.Agents.Wrappers")

    def answer(content):
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    answer({"ready": True})
    request = json.loads(sys.stdin.readline())
    meta = request["meta"]
    random.seed(meta["seed"])  # once, before CybORG builds its first network
    game = Game(os.path.join(checkout, "CybORG", "Shared", "Scenarios", "Scenario2.yaml"), meta)
    if game.actions() != meta["actions"]:
        raise SystemExit("the actions in this checkout are not the 145 of CAGE Challenge 2")
    blue, episodes = Blue(meta), []
    for episode in range(meta["episodes"]):
        episodes.append(pack(play(game, blue, meta["steps"])))
        answer({"episodes": episode + 1})
    fields = {name: np.stack([fields[name] for fields in episodes]) for name in episodes[0]}
    with open(request["path"], "wb") as file:
        np.savez_compressed(
            file, meta=json.dumps(meta), revision=meta["revision"], fields_doc=request["about"], **fields
        )
    answer({"written": True})


def play(game, blue, steps):
    """Plays one episode; returns the list of values of each field."""
    history = {}

    def keep(values):
        for name, value in values.items():
            history.setdefault(name, []).append(value)

    table = game.reset()
    keep(game.state())
    for t in range(steps):
        action = blue.choose(table, t)
        table, outcome = game.step(action)
        keep(outcome)
        keep(game.state())
    return history


def pack(history):
    """The fields of an episode as arrays in the dtypes of the format; counts saturate at their maximum."""
    import numpy as np

    def array(name, values):
        if name in FLOATS:
            return np.array(values, np.float64)
        kind = np.int16 if name in WIDE else np.int8
        return np.clip(values, np.iinfo(kind).min, np.iinfo(kind).max).astype(kind)

    return {name: array(name, values) for name, values in history.items()}


class Game:
    """A CybORG game that records its draws and reads its true state."""

    def __init__(self, scenario, meta):
        from CybORG import CybORG
        from CybORG.Agents import B_lineAgent, GreenAgent, RedMeanderAgent, SleepAgent
        from CybORG.Agents.Wrappers import BlueTableWrapper, ChallengeWrapper
        from CybORG.Shared import Enums

        class Wanderer(RandomRed):
            """The random Red of this recording, with its own random stream."""

            rng = random.Random(f"{meta['red']} {meta['seed']}")

        class SecondTable(BlueTableWrapper):
            """Blue's table as the wrapper of the workflow-search scripts makes it.

            A decoy deployed in this step is not an activity and does not hide one: what the original reads as None
            because of it is a Scan, unless the decoy's own process is the only event.
            """

            def _interpret_connections(self, activity):
                read = super()._interpret_connections(activity)
                return "Scan" if read == "None" and any("Connections" in item for item in activity) else read

        self.meta = meta
        self.enums = Enums
        self.red = meta["red"]
        reds = {"bline": B_lineAgent, "meander": RedMeanderAgent, "sleep": SleepAgent, "random": Wanderer}
        agents = {"Red": reds[self.red]}
        if meta["green"] == "green":
            agents["Green"] = GreenAgent
        cyborg = CybORG(scenario, "sim", agents=agents)
        self.controller = cyborg.environment_controller
        self.wrapper = ChallengeWrapper(env=cyborg, agent_name="Blue")
        self.second = SecondTable(cyborg, output_mode="vector")
        self.draws = {}
        self._listen()

    def actions(self):
        """Names of Blue's actions, in their order."""
        return [str(action) for action in self.wrapper.get_attr("possible_actions")]

    def reset(self):
        """Begins an episode; returns Blue's table."""
        self.table = self.wrapper.reset()
        observation = self.controller.observation["Blue"].data
        self.second._process_initial_obs(observation)
        self.second_table = self.second.observation_change(observation, baseline=True)
        return self.table

    def step(self, action):
        """Steps the game; returns Blue's table, and the actions, draws and rewards."""
        self.draws = dict(NO_DRAWS)
        self.table, reward, done, _ = self.wrapper.step(action)
        observed = self.controller.observation
        self.second_table = self.second.observation_change(observed["Blue"].data)
        green, red = self.controller.action["Green"], self.controller.action["Red"]
        scans = type(green).__name__ == "GreenPortScan"
        outcome = {
            "blue_action": action,
            "blue_success": self._success(observed["Blue"]),
            "green_type": int(scans),
            "green_target": self._host(green.hostname) if scans else -1,
            "red_type": self.meta["red_types"].index(type(red).__name__),
            "red_target": self._target(red),
            "red_success": self._success(observed["Red"]),
            "reward": reward,
            "done": int(done),
        }
        if self.red == "random":
            tried = getattr(red, "action", red)  # what an InvalidAction stands for
            outcome["red_tried_type"] = self.meta["red_types"].index(type(tried).__name__)
            outcome["red_tried_target"] = self._target(tried)
        return self.table, dict(outcome, **self.draws)

    def state(self):
        """Both tables and the true state."""
        state = self.controller.state
        hosts = [state.hosts[name] for name in self.meta["hosts"]]
        addresses = [self.controller.hostname_ip_map[name] for name in self.meta["hosts"]]
        subnets = [state.subnet_name_to_cidr[name] for name in self.meta["subnets"]]
        leader = state.sessions["Red"][0]
        known = self.controller.agent_interfaces["Red"].action_space
        agent = self.controller.agent_interfaces["Red"].agent
        sessions = [[state.sessions["Red"][i] for i in host.sessions.get("Red", ())] for host in hosts]
        users = [[s for s in held if s.username not in PRIVILEGED] for held in sessions]
        privileged = [[s for s in held if s.username in PRIVILEGED] for held in sessions]
        service = hosts[self._host("Op_Server0")].services["OTService"]
        meander = self.red == "meander"

        def of_meander(name, things):
            return [int(meander and thing in getattr(agent, name)) for thing in things]

        return {
            "obs": list(self.table),
            "obs2": list(self.second_table),
            "s_n_user": [len(held) for held in users],
            "s_n_priv": [len(held) for held in privileged],
            "s_n_sus": [sum(self._removable(host, s) for s in held) for held, host in zip(users, hosts)],
            "s_access": [2 if high else int(bool(low)) for low, high in zip(users, privileged)],
            "s_first_priv": [int(bool(held) and held[0].username in PRIVILEGED) for held in sessions],
            "s_malware": [int(any(file.density >= 0.9 for file in host.files)) for host in hosts],
            "s_os_known": [int(name in leader.operating_system) for name in self.meta["hosts"]],
            "s_smtp_dead": [int(self._mail_is_safe(host)) for host in hosts],
            "s_red_knows_ip": [int(known.ip_address[address]) for address in addresses],
            "s_red_knows_host": [int(known.hostname[name]) for name in self.meta["hosts"]],
            "s_red_knows_subnet": [int(known.subnet[subnet]) for subnet in subnets],
            "s_decoys": [self._decoys(host) for host in hosts],
            "s_ports_open": [self._listening(host) for host in hosts],
            "s_red_ports": [
                [int(port in leader.ports.get(address, ())) for port in self.meta["ports"]] for address in addresses
            ],
            "s_red_scanned": [int(address in leader.ports) for address in addresses],
            "s_ot_running": int(any(p.name == "OTService" for p in hosts[self._host("Op_Server0")].processes)),
            "s_ot_stoppable": int(
                bool(service["active"]) and hosts[self._host("Op_Server0")].get_process(service["process"]) is not None
            ),
            "s_ot_known": int(leader.ot_service is not None),
            "s_bline_state": agent.action if self.red == "bline" else -1,
            "s_me_scanned_ip": of_meander("scanned_ips", addresses),
            "s_me_exploited": of_meander("exploited_ips", addresses),
            "s_me_escalated": of_meander("escalated_hosts", self.meta["hosts"]),
            "s_me_scanned_subnet": of_meander("scanned_subnets", subnets),
        }

    def _listen(self):
        """Records every draw that matters, at the place where it is made."""
        agents, actions = "CybORG.Agents.SimpleAgents.", "CybORG.Shared.Actions."

        def target(address, _):
            self.draws["d_bline_target"] = self._host_at(address)

        def order(_, things):
            if isinstance(things[0], str):
                self.draws["d_meander_host_perm"] = [self._host(name) for name in things]
            else:
                self.draws["d_meander_addr_perm"] = [self._host_at(address) for address in things]

        def other(weights, options):
            self.draws["d_exploit_other"] = EXPLOIT_WEIGHTS.index(weights[0])
            self.draws["d_exploit_nother"] = len(options)

        def top(number):
            self.draws["d_exploit_u"] = number

        def detection(number):
            self.draws["d_detect_u"] = number

        def escalated(session, sessions):
            self.draws["d_esc_idx"] = sessions.index(session)
            self.draws["d_esc_n"] = len(sessions)

        def impacted(session, sessions):
            self.draws["d_imp_idx"] = sessions.index(session)

        tap(agents + "B_line", "choice", target)
        tap(agents + "Meander", "shuffle", order)
        tap(actions + "AbstractActions.ExploitRemoteService", "choices", other)
        tap(actions + "AbstractActions.ExploitRemoteService", "random", top)
        tap(actions + "ConcreteActions.ExploitAction", "random", detection)
        tap(actions + "AbstractActions.PrivilegeEscalate", "choice", escalated)
        tap(actions + "AbstractActions.Impact", "choice", impacted)

        selector = sys.modules[actions + "AbstractActions.ExploitRemoteService"].DefaultExploitActionSelector
        select = selector.get_exploit_action

        def selected(*args, **kwargs):
            exploit = select(*args, **kwargs)
            if exploit is not None:
                self.draws["red_exploit"] = self.meta["exploits"].index(type(exploit).__name__)
            return exploit

        selector.get_exploit_action = selected

    def _host(self, name):
        return self.meta["hosts"].index(name)

    def _host_at(self, address):
        return self._host(self.controller.state.ip_addresses[address])

    def _target(self, action):
        """The host of Red's action, or the subnet of a sweep."""
        if hasattr(action, "subnet"):
            names = {subnet: name for name, subnet in self.controller.state.subnet_name_to_cidr.items()}
            return self.meta["subnets"].index(names[action.subnet])
        if hasattr(action, "ip_address"):
            return self._host_at(action.ip_address)
        return self._host(action.hostname) if hasattr(action, "hostname") else -1

    def _success(self, observation):
        return ("FALSE", "TRUE", "UNKNOWN").index(observation.data["success"].name)

    def _removable(self, host, session):
        """Whether Remove would end a session: its process is under suspicion and not of a privileged account."""
        suspected = self.controller.state.sessions["Blue"][0].sus_pids.get(host.hostname, ())
        process = host.get_process(session.pid)
        return session.pid in suspected and process is not None and process.user not in PRIVILEGED

    def _mail_is_safe(self, host):
        """Whether the host's own mail server has come back from a Restore as a version that cannot be exploited."""
        versions = self.enums.ProcessVersion
        return any(
            process.process_type == self.enums.ProcessType.SMTP
            and not process.decoy_type & self.enums.DecoyType.EXPLOIT
            and process.version.value >= versions.HARAKA_2_8_9.value
            for process in host.processes
        )

    def _decoys(self, host):
        names = [p.name for p in host.processes if p.decoy_type & self.enums.DecoyType.EXPLOIT]
        return [names.count(name) for name in DECOY_PROCESSES]

    def _listening(self, host):
        ports = [c["local_port"] for p in host.processes for c in p.connections if "remote_port" not in c]
        return [ports.count(port) for port in self.meta["ports"]]


def tap(module_name, name, note):
    """Lets `note` see each outcome, and the arguments, of a function of `random` that a module uses."""
    module = importlib.import_module(module_name)
    draw = getattr(random, name)

    def noted(*args):
        outcome = draw(*args)
        note(outcome, *args)
        return outcome

    if callable(vars(module).get(name)):  # the module has `from random import name`
        setattr(module, name, noted)
        return
    if module.random is random:  # the module has `import random`: others must not see the change
        module.random = types.SimpleNamespace(**vars(random))
    setattr(module.random, name, noted)


class RandomRed:
    """A Red that leads games into states that the challenge's own agents never reach.

    It plays random actions of Red's action space on what it knows, and now and then on what it does not know, which the
    original turns into an InvalidAction. How often it prefers a step that leads on is drawn for each episode.
    """

    rng = random.Random()

    def __init__(self):
        self.end_episode()

    def set_initial_values(self, action_space, observation):
        pass

    def train(self, results):
        pass

    def end_episode(self):
        self.ambition = self.rng.choice((0.0, 0.5, 0.9))
        self.done = set()
        self.last = None

    def get_action(self, observation, action_space):
        """A random action; one that leads on is one that has not succeeded yet."""
        if self.last is not None and observation["success"] == True:  # noqa: E712 — an enumeration, equal to True
            self.done.add(self.last)
        kind = self.rng.choices(("sleep", "anything", "known"), (4, 4, 92))[0]
        self.last = None
        if kind == "sleep":
            return self._make("Sleep", None)
        choices = [
            (name, value)
            for name, parameter in KINDS.items()
            for value, known in action_space[parameter].items()
            if known or kind == "anything"
        ]
        if self.rng.random() < self.ambition:
            vain = {("Impact", host) for host in action_space["hostname"] if host != "Op_Server0"}
            choices = [choice for choice in choices if choice not in self.done | vain] or choices
        name = self.rng.choice(sorted({name for name, _ in choices}))
        self.last = self.rng.choice([choice for choice in choices if choice[0] == name])
        return self._make(*self.last)

    def _make(self, name, value):
        actions = importlib.import_module("CybORG.Shared.Actions")
        if name == "Sleep":
            return actions.Sleep()
        return getattr(actions, name)(session=0, agent="Red", **{KINDS[name]: value})


class Blue:
    """Blue agents that explore corner cases of the game; none is meant to play well."""

    KINDS = ("random", "decoy", "reactive", "sleep", "sparse")

    def __init__(self, meta):
        self.kind = self.now = meta["blue"]
        self.hosts = meta["hosts"]
        self.blocks = {name: i for i, name in enumerate(meta["actions"])}
        self.decoys = meta["decoys"]
        self.rng = random.Random(f"{meta['blue']} {meta['seed']}")  # independent of the stream of the game

    def choose(self, table, t):
        """An action from Blue's table and the step number."""
        if self.kind == "mix" and t % 10 == 0:
            self.now = self.rng.choice(self.KINDS)
        return getattr(self, "_" + self.now)(table, t)

    def _action(self, block, host):
        return self.blocks[f"{block} {host}"]

    def _random(self, table, t):
        """Any action, uniformly."""
        return self.rng.randrange(len(self.blocks))

    def _sleep(self, table, t):
        return 0

    def _decoy(self, table, t):
        """Mostly decoys anywhere, also where they are impossible or already deployed."""
        if self.rng.random() < 0.15:
            return self._random(table, t)
        return self._action(self.rng.choice(self.decoys), self.rng.choice(self.hosts))

    def _reactive(self, table, t):
        """Treats a host on which the table shows activity; without one, analyses or deploys a decoy."""
        shown = [name for i, name in enumerate(self.hosts) if any(table[4 * i : 4 * i + 4])]
        if not shown:
            block = self.rng.choice(("Analyse", self.rng.choice(self.decoys)))
            return self._action(block, self.rng.choice(self.hosts))
        return self._action(self.rng.choice(("Analyse", "Remove", "Remove", "Restore")), self.rng.choice(shown))

    def _sparse(self, table, t):
        """Sleeps while Red advances, then takes random actions for a while."""
        return self._random(table, t) if t % 30 >= 22 else 0

    def _churn(self, table, t):
        """Alternates decoys and Restores on the hosts that lead to the server."""
        path = [name for name in self.hosts if name.startswith(("Enterprise", "Op_Server", "User"))]
        block = self.rng.choice(("Restore", self.rng.choice(self.decoys)))
        return self._action(block, self.rng.choice(path))


if __name__ == "__main__":
    main()
