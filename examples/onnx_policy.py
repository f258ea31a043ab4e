"""Play CAGE-2 with an exported policy; needs numpy, onnxruntime and an environment, but no Cavalcade.

cavalcade export runs/mine --onnx policy.onnx
python examples/onnx_policy.py policy.onnx --env cavalcade:cavalcade/Cage2-v0

An environment is anything with Gymnasium's `reset` and `step` and Blue's 52 values as observation. In the original it
is `ChallengeWrapper(env=CybORG(path, "sim", agents={"Red": B_lineAgent}), agent_name="Blue")`, whose 145 actions have
the same numbers; call `play(session, env)`.

The graph takes a batch: `observation` (B, 52) float32 (with the extra `scans` (B, 78)) and `action_mask` (B, 145) bool.
The environment gives no mask. Blue knows enough to build it: operating systems and open ports of the public scenario,
its own decoys and its own restores.
"""

import argparse

import numpy as np
import onnxruntime

HOSTS = 13  # Defender, Enterprise0-2, Op_Host0-2, Op_Server0, User0-4
WINDOWS = {2, 3, 8, 9, 10}
OPEN_PORTS = (  # on which the hosts' own services listen
    {22, 53, 68}, {22}, {22, 80, 135, 139, 443, 445, 3389}, {22, 80, 135, 139, 443, 445, 3389}, {22}, {22}, {22}, {22},
    {21, 22}, {21, 22}, {135, 139, 445, 3389}, {25, 80, 443, 3389}, {22, 25, 80, 443, 3390},
)  # fmt: skip
# Decoys in the order of the actions: the port that must be free, the port it takes, and the systems it runs on.
# Vsftpd looks at port 21 but takes port 80.
DECOYS = (
    (80, 80, "both"),  # Apache
    (21, 21, "windows"),  # Femitter
    (25, 25, "linux"),  # HarakaSMPT
    (139, 139, "windows"),  # Smss
    (22, 22, "both"),  # SSHD
    (3389, 3389, "windows"),  # Svchost
    (443, 443, "both"),  # Tomcat
    (21, 80, "linux"),  # Vsftpd
)
# Actions: 0 Sleep, 1 Monitor, then one for each host: Analyse, Remove, the eight decoys, Restore.
FIRST_DECOY, FIRST_RESTORE, ACTIONS = 28, 132, 145


class Blue:
    """What Blue knows of one game: its decoys, and the scans that it has seen."""

    def __init__(self):
        self.ports = [set(ports) for ports in OPEN_PORTS]  # in use, decoys included
        self.scanned, self.latest = np.zeros(HOSTS, np.float32), np.zeros(HOSTS, np.float32)

    def mask(self) -> np.ndarray:
        """Which of the 145 actions are worth trying: all but decoys that would fail."""
        found = np.ones(ACTIONS, np.bool_)
        for kind, (needed, _, system) in enumerate(DECOYS):
            for host in range(HOSTS):
                fits = system == "both" or (system == "windows") == (host in WINDOWS)
                found[FIRST_DECOY + HOSTS * kind + host] = fits and needed not in self.ports[host]
        return found

    def acted(self, action: int) -> None:
        """Notes an action of Blue's: a decoy that was allowed takes its port, a restore frees those of all decoys."""
        kind, host = divmod(int(action) - FIRST_DECOY, HOSTS)
        if 0 <= kind < len(DECOYS) and self.mask()[action]:
            self.ports[host].add(DECOYS[kind][1])
        elif action >= FIRST_RESTORE:
            self.ports[host] = set(OPEN_PORTS[host])

    def saw(self, observation: np.ndarray) -> np.ndarray:
        """Notes the scans that an observation shows; returns the values of the extra `scans`."""
        activity = observation[: 4 * HOSTS].reshape(HOSTS, 4)
        scans = ((activity[:, 0] == 1) & (activity[:, 1] == 0)).astype(np.float32)
        if scans.any():
            self.scanned, self.latest = np.maximum(self.scanned, scans), scans
        return np.concatenate([self.scanned, self.latest])


class Policy:
    """An exported policy in one game."""

    def __init__(self, session: onnxruntime.InferenceSession):
        self.session, self.blue = session, Blue()
        self.size = session.get_inputs()[0].shape[1]
        if self.size not in (52, 78):
            raise ValueError(f"the policy takes {self.size} values; this script knows 52, and 78 with the extra scans")

    def __call__(self, observation: np.ndarray) -> int:
        """The greedy action; Blue notes it as taken."""
        values = np.asarray(observation, np.float32)[:52]
        scans = self.blue.saw(values)
        row = np.concatenate([values, scans]) if self.size == 78 else values
        inputs = {"observation": row[None], "action_mask": self.blue.mask()[None]}
        action = int(self.session.run(["action"], inputs)[0][0])
        self.blue.acted(action)
        return action


def play(session: onnxruntime.InferenceSession, env, steps: int = 100) -> float:
    """Plays one game; returns its return."""
    policy, first = Policy(session), env.reset()
    observation, total = first[0] if isinstance(first, tuple) else first, 0.0  # CybORG gives the observation alone
    for _ in range(steps):
        observation, reward, *_ = env.step(policy(observation))
        total += float(reward)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description="Plays games with an exported CAGE-2 policy.")
    parser.add_argument("onnx", help="file written by cavalcade export")
    parser.add_argument("--env", required=True, help="name of a Gymnasium environment")
    parser.add_argument("--games", type=int, default=10)
    options = parser.parse_args()
    import gymnasium

    env = gymnasium.make(options.env, disable_env_checker=True)
    session = onnxruntime.InferenceSession(options.onnx, providers=["CPUExecutionProvider"])
    returns = [play(session, env) for _ in range(options.games)]
    print(f"{len(returns)} games: mean return {np.mean(returns):.2f}")


if __name__ == "__main__":
    main()
