"""A game copied from one place of a batch to another."""

from cavalcade.core.jit import rule
from cavalcade.envs.cage2.scenario import NUM_DECOYS, NUM_HOSTS


@rule
def copy_game(s, source, target):
    """Copies every field of `State` but those of replay; spelled out, since compiled rules cannot loop over fields."""
    s.key[target] = s.key[source]
    s.episode[target] = s.episode[source]
    s.step[target] = s.step[source]
    s.total[target] = s.total[source]
    s.red_setting[target] = s.red_setting[source]
    s.red[target] = s.red[source]
    s.user[target] = s.user[source]
    s.flagged[target] = s.flagged[source]
    s.privileged[target] = s.privileged[source]
    s.malware[target] = s.malware[source]
    s.mail_fixed[target] = s.mail_fixed[source]
    for kind in range(NUM_DECOYS):
        s.decoys[NUM_DECOYS * target + kind] = s.decoys[NUM_DECOYS * source + kind]
    s.ot_running[target] = s.ot_running[source]
    s.ot_stoppable[target] = s.ot_stoppable[source]
    s.red_success[target] = s.red_success[source]
    s.addresses[target] = s.addresses[source]
    s.hostnames[target] = s.hostnames[source]
    s.subnets[target] = s.subnets[source]
    s.scanned[target] = s.scanned[source]
    for host in range(NUM_HOSTS):
        s.ports[NUM_HOSTS * target + host] = s.ports[NUM_HOSTS * source + host]
    s.ot_known[target] = s.ot_known[source]
    s.line_state[target] = s.line_state[source]
    s.line_target[target] = s.line_target[source]
    s.line_at_server[target] = s.line_at_server[source]
    s.scan_empty[target] = s.scan_empty[source]
    s.meander_swept[target] = s.meander_swept[source]
    s.meander_scanned[target] = s.meander_scanned[source]
    s.meander_exploited[target] = s.meander_exploited[source]
    s.meander_escalated[target] = s.meander_escalated[source]
    s.meander_owned[target] = s.meander_owned[source]
    s.meander_last_exploit[target] = s.meander_last_exploit[source]
    s.meander_last_host[target] = s.meander_last_host[source]
    s.table[target] = s.table[source]
    s.seen_scanned[target] = s.seen_scanned[source]
    s.seen_latest[target] = s.seen_latest[source]
    s.blue_action[target] = s.blue_action[source]
    s.blue_success[target] = s.blue_success[source]
    s.green_target[target] = s.green_target[source]
    s.red_action[target] = s.red_action[source]
    s.red_target[target] = s.red_target[source]
    s.red_exploit[target] = s.red_exploit[source]
