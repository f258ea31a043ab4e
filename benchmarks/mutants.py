"""Would the recorded episodes notice a broken rule? `python benchmarks/mutants.py` breaks one at a time and says.

Each mutant is a copy of the package with one piece of text of one rule replaced; it is caught if `cavalcade verify`
finds a difference. Plain Python is used, so that nothing is compiled. The figures in docs/parity.md come from here.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data" / "cage2"

# (file, text, replacement): the text must occur exactly once.
MUTANTS = [
    ("scenario.py", "ports(22, 53, 68),", "ports(22, 53),"),
    ("scenario.py", "ports(445, 139, 135, 3389),", "ports(22, 445, 139, 135, 3389),"),
    ("scenario.py", "ports(80, 3389, 443, 25),", "ports(80, 3390, 443, 25),"),
    ("scenario.py", "_DECOY_OPENS = (80, 21, 25, 139, 22, 3389, 443, 80)", "_DECOY_OPENS = (80, 21, 25, 139, 22, 3389, 443, 21)"),
    ("scenario.py", "_DECOY_CHECKS = (80, 21, 25, 139, 22, 3389, 443, 21)", "_DECOY_CHECKS = (80, 21, 25, 139, 22, 3389, 443, 80)"),
    ("scenario.py", "(2, 1, 3, 4, 0.1, 5, 6, 7)", "(2, 1, 3, 4, 0.1, 5, 7, 6)"),
    ("scenario.py", "(2, 1, 3, 4, 0.1, 5, 6, 7)", "(1, 2, 3, 4, 0.1, 5, 6, 7)"),
    ("scenario.py", "(2, 1, 3, 4, 0.1, 5, 6, 7)", "(2, 1, 4, 3, 0.1, 5, 6, 7)"),
    ("scenario.py", "        hosts(USER2),\n        hosts(ENT1, ENT2, USER2),", "        hosts(ENT1, ENT2, USER2),\n        hosts(ENT1, ENT2, USER2),"),
    ("scenario.py", "        hosts(ENT1, ENT2, USER2),\n", "        hosts(ENT1, ENT2, USER2, USER3),\n"),
    ("scenario.py", "[hosts(USER2), hosts(ENT1, ENT2), 0, 0, 0,", "[hosts(USER2), hosts(ENT1, ENT2, USER2), 0, 0, 0,"),
    ("scenario.py", "hosts(USER4), hosts(USER3, USER4), hosts(USER0, USER1)], np.int64", "0, hosts(USER3, USER4), hosts(USER0, USER1)], np.int64"),
    ("scenario.py", "1 << APACHE | 1 << VSFTPD, 1 << TOMCAT", "1 << APACHE, 1 << TOMCAT"),
    ("scenario.py", "& ~hosts(DEFENDER)\n", "\n"),
    ("scenario.py", "LEADS_TO[[USER1, USER2]] = hosts(ENT1)", "LEADS_TO[[USER1, USER2]] = hosts(ENT0)"),
    ("scenario.py", "LEADS_TO[ENT2] = hosts(OP_SERVER)", "LEADS_TO[ENT2] = 0"),
    ("scenario.py", "SQL_NEEDS_ALSO = ports(80, 443)", "SQL_NEEDS_ALSO = ports(21)"),
    ("scenario.py", "OP_HOST2, USER1, USER2, USER3, USER4)\nCOST_TEN", "OP_HOST2, USER0, USER1, USER2, USER3, USER4)\nCOST_TEN"),
    ("changes.py", "cost_impact: float = number(10.0", "cost_impact: float = number(1.0"),
    ("changes.py", "cost_restore: float = number(1.0", "cost_restore: float = number(1.1"),
    ("blue.py", "    s.malware[e] &= others\n", ""),
    ("blue.py", "    s.flagged[e] &= others\n", ""),
    ("blue.py", "    if host != USER0:\n        s.privileged[e] &= others", "    s.privileged[e] &= others"),
    ("blue.py", "        s.ot_stoppable[e] = 0\n", "        s.ot_stoppable[e] = 1\n"),
    ("blue.py", "        s.ot_running[e] = 1\n", ""),
    ("blue.py", "    s.flagged[e] &= ~(1 << host)\n    return TRUE", "    s.flagged[e] &= ~(1 << host)\n    s.user[e] &= ~(1 << host)\n    return TRUE"),
    ("blue.py", "    s.flagged[e] &= ~(1 << host)\n    return TRUE", "    s.flagged[e] &= ~(1 << host)\n    s.malware[e] &= ~(1 << host)\n    return TRUE"),
    ("blue.py", "        taken |= s.decoys[NUM_DECOYS * e + VSFTPD]\n", "        pass\n"),
    ("blue.py", "    if kind == VSFTPD:\n        return DECOY_FITS[VSFTPD]\n", ""),
    ("blue.py", "p.revision == LEADERBOARD_2022", "True"),
    ("blue.py", "p.revision == LEADERBOARD_2022", "False"),
    ("blue.py", "    for kind in range(NUM_DECOYS):\n        s.decoys[NUM_DECOYS * e + kind] &= others\n", ""),
    ("red.py", "subnet != OPERATIONAL or held(s, e) & ENTERPRISE_SERVERS != 0", "True"),
    ("red.py", "held(s, e) & ENTERPRISE_SERVERS", "np.int64(s.privileged[e]) & ENTERPRISE_SERVERS"),
    ("red.py", "        s.scan_empty[e] = 1\n        return TRUE, NO_EVENTS", "        s.scan_empty[e] = 1\n        return FALSE, NO_EVENTS"),
    ("red.py", "        s.scan_empty[e] = 1\n        return TRUE", "        s.ports[NUM_HOSTS * e + host] = 0\n        s.scan_empty[e] = 1\n        return TRUE"),
    ("red.py", "    if p.revision == LEADERBOARD_2022:\n        s.ports", "    if True:\n        s.ports"),
    ("red.py", "    if p.revision == LEADERBOARD_2022:\n        s.ports", "    if False:\n        s.ports"),
    ("red.py", "        options = exploit_options(np.int64(s.ports[NUM_HOSTS * e + host]))", "        options = exploit_options(live_ports(s, e, host))"),
    ("red.py", "    if not reachable(s, e, SUBNET_OF[host]):\n        return FALSE, NO_EVENTS\n    if EXPLOIT_SERVICE", "    if EXPLOIT_SERVICE"),
    ("red.py", "            return FALSE, EXPLOIT_PORT[x] | 2 * EVENT", "            return FALSE, EXPLOIT_PORT[x] | EVENT"),
    ("red.py", "                return FALSE, EXPLOIT_PORT[x] | SSH_ATTEMPTS * EVENT\n            return", "                return FALSE, EXPLOIT_PORT[x] | 2 * EVENT\n            return"),
    ("red.py", "x == HARAKA_RCE and s.mail_fixed[e] & bit", "False"),
    ("red.py", "        return FALSE, EXPLOIT_PORT[x] | EVENT\n", "        return FALSE, NO_EVENTS\n"),
    ("red.py", "    elif detected:\n        s.flagged[e] |= bit\n    else:\n        s.user[e] |= bit\n", "    else:\n        s.flagged[e] |= bit\n"),
    ("red.py", "    s.malware[e] |= bit\n    learn", "    learn"),
    ("red.py", "        return TRUE, EXPLOIT_PORT[x] | PORT_EPHEMERAL | SHELL | 2 * EVENT", "        return TRUE, EXPLOIT_PORT[x] | SHELL | 2 * EVENT"),
    ("red.py", "    s.hostnames[e] |= bit\n", ""),
    ("red.py", "        s.privileged[e] |= bit\n        s.malware[e] |= bit\n    s.addresses", "        s.privileged[e] |= bit\n    s.addresses"),
    ("red.py", "    s.subnets[e] |= 1 << SUBNET_OF[host]\n", ""),
    ("red.py", "    if host == OP_SERVER:\n        s.ot_known[e] = 1\n", ""),
    ("red.py", "    if s.ot_stoppable[e]:\n        s.ot_running", "    if True:\n        s.ot_running"),
    ("red.py", "        s.ot_running[e] = 0\n        s.ot_stoppable[e] = 0\n", "        s.ot_running[e] = 0\n"),
    ("red.py", "host != OP_SERVER or not (", "not ("),
    ("red.py", "(held(s, e) >> OP_SERVER & 1 and s.ot_known[e])", "(s.privileged[e] >> OP_SERVER & 1 and s.ot_known[e])"),
    ("red.py", "    if action == INVALID:\n        return FALSE, NO_EVENTS\n", ""),
    ("own_red.py", "    elif action in (SCAN, EXPLOIT):\n        known = np.int64(k.addresses[e])", "    elif action in (SCAN, EXPLOIT):\n        known = np.int64(k.hostnames[e])"),
    ("own_red.py", "    elif action in (ESCALATE, IMPACT):\n        known = np.int64(k.hostnames[e])", "    elif action in (ESCALATE, IMPACT):\n        known = np.int64(k.addresses[e])"),
    ("own_red.py", "        known = np.int64(k.subnets[e])", "        known = 7"),
    ("agents.py", "[0, 1, 2, 2, 2, 2, 5, 5, 5, 5, 9, 9, 9, 12, 13]", "[0, 1, 2, 2, 2, 4, 5, 5, 5, 5, 9, 9, 9, 12, 13]"),
    ("agents.py", "[0, 1, 2, 2, 2, 2, 5, 5, 5, 5, 9, 9, 9, 12, 13]", "[0, 1, 2, 2, 2, 2, 5, 5, 5, 8, 9, 9, 9, 12, 13]"),
    ("agents.py", "[0, 1, 2, 2, 2, 2, 5, 5, 5, 5, 9, 9, 9, 12, 13]", "[0, 1, 2, 2, 2, 2, 5, 5, 5, 5, 9, 9, 11, 12, 13]"),
    ("agents.py", "[0, 1, 2, 2, 2, 2, 5, 5, 5, 5, 9, 9, 9, 12, 13]", "[0, 1, 2, 2, 2, 2, 5, 5, 5, 5, 9, 9, 9, 12, 14]"),
    ("agents.py", "s.scan_empty[e] and not s.line_at_server[e]", "False"),
    ("agents.py", "s.scan_empty[e] and not s.line_at_server[e]", "s.scan_empty[e]"),
    ("agents.py", "target = ENT1 if s.line_target[e]", "target = ENT0 if s.line_target[e]"),
    ("agents.py", "            doubted = 0\n            if s.meander_escalated[e] & OPERATIONAL_HOSTS:\n                doubted = OPERATIONAL_HOSTS\n            elif", "            doubted = 0\n            if"),
    ("agents.py", "            elif s.meander_escalated[e] & ENTERPRISE_SERVERS:\n                doubted = ENTERPRISE_SERVERS\n", ""),
    ("agents.py", "            elif s.meander_escalated", "            if s.meander_escalated"),
    ("agents.py", "            s.meander_escalated[e] &= ~doubted\n", ""),
    ("agents.py", "&= ~(doubted | 1 << host)", "&= ~doubted"),
    ("agents.py", "            s.meander_owned[e] |= 1 << host\n", "            pass\n"),
    ("agents.py", "            if s.meander_owned[e] >> host & 1:\n                s.meander_exploited[e] &= ~(1 << host)\n", ""),
    ("agents.py", "            s.meander_escalated[e] &= ~(1 << host)\n            if", "            if"),
    ("agents.py", " & ~(s.meander_owned[e] & ~exploited)", ""),
    ("agents.py", "    for subnet in range(3):", "    for subnet in (2, 1, 0):"),
    ("observe.py", "    if all_but_one & all_but_one - 1:\n        return SCAN_ACTIVITY\n    if events & SHELL:\n        return EXPLOIT_ACTIVITY\n", "    if events & SHELL:\n        return EXPLOIT_ACTIVITY\n    if all_but_one & all_but_one - 1:\n        return SCAN_ACTIVITY\n"),
    ("observe.py", "events // EVENT + decoyed >= 3", "events // EVENT >= 3"),
    ("observe.py", "    if decoyed and variant != WORKFLOW:\n        return NO_ACTIVITY\n", ""),
    ("observe.py", "decoyed and variant != WORKFLOW", "decoyed"),
    ("observe.py", "        table = believe(table, host, USER_LEVEL)\n", "        table = table | USER_LEVEL << 4 * host + 2\n"),
    ("observe.py", "        table = believe(table, host, 0)\n", "        pass\n"),
    ("observe.py", "block == REMOVE and table >> 4 * host & 0b1100", "block == REMOVE"),
    ("observe.py", "and s.blue_success[e] == TRUE else -1", "else -1"),
    ("observe.py", "    if block == ANALYSE and malware >> host & 1:", "    if block == ANALYSE and s.malware[e] >> host & 1:"),
    ("observe.py", "(events // EVENT + others // EVENT) * EVENT", "others // EVENT * EVENT"),
    ("game.py", "    s.ot_stoppable[e] = 1\n", ""),
    ("game.py", "    s.subnets[e] = 1 << USER\n", "    s.subnets[e] = 0\n"),
]  # fmt: skip


def caught(mutant: tuple[str, str, str], environment: str, verify: list[str]) -> bool:
    """Whether `cavalcade verify` with these arguments notices this mutant; a crash counts as noticed."""
    name, text, replacement = mutant
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder, "cavalcade")
        shutil.copytree(ROOT / "src" / "cavalcade", package, ignore=shutil.ignore_patterns("__pycache__"))
        rule = package / "envs" / environment / name
        source = rule.read_text()
        if source.count(text) != 1:
            sys.exit(f"{name} has {source.count(text)} times, not once: {text!r}")
        rule.write_text(source.replace(text, replacement))
        variables = os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": folder}
        command = [sys.executable, "-m", "cavalcade", "verify", *verify]
        return subprocess.run(command, env=variables, capture_output=True, check=False).returncode != 0


def report(mutants: list[tuple[str, str, str]], environment: str, verify: list[str]) -> None:
    """Prints the mutants that survive, and how many there are."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda mutant: caught(mutant, environment, verify), mutants)
        survivors = []
        for mutant, found in zip(mutants, results, strict=True):
            if not found:
                survivors.append(mutant)
                print("survives:", *map(repr, mutant), flush=True)
    print(f"{len(mutants)} mutants, {len(mutants) - len(survivors)} caught, {len(survivors)} survive")


if __name__ == "__main__":
    report(MUTANTS, "cage2", [str(DATA)])
