"""The tables say what the original says."""

import json

import numpy as np

from cavalcade.envs.cage2 import scenario as sc


def named(mask):
    return {sc.HOSTS[h] for h in range(13) if mask >> h & 1}


def test_names_and_numbers_are_those_of_the_recordings(data):
    with np.load(next(iter(sorted(data.glob("*.npz"))))) as archive:
        meta = json.loads(str(archive["meta"]))
    assert list(sc.HOSTS) == meta["hosts"]
    assert list(sc.PORTS) == meta["ports"]
    assert list(sc.SUBNETS) == meta["subnets"]
    assert [name.split(".")[-1] for name in meta["exploits"]] == list(sc.EXPLOITS)
    assert list(sc.RED_ACTIONS) == meta["red_types"]
    assert list(sc.ACTIONS) == meta["actions"]
    assert len(sc.ACTIONS) == sc.NUM_ACTIONS == 145


def test_landmarks_of_the_action_list():
    assert sc.ACTIONS[9] == "Analyse Op_Server0"
    assert sc.ACTIONS[16] == "Remove Enterprise0"
    assert sc.ACTIONS[28] == "DecoyApache Defender"
    assert sc.ACTIONS[sc.FIRST_DECOY_ACTION] == sc.ACTIONS[28]
    assert sc.ACTIONS[139] == "Restore Op_Server0"
    assert sc.ACTIONS[sc.FIRST_RESTORE_ACTION] == "Restore Defender"


def test_where_decoys_work_on_fresh_hosts():
    linux = {"Defender", "Enterprise0", "Op_Host0", "Op_Host1", "Op_Host2", "Op_Server0"}
    web = linux | {"User0", "User1", "User2"}
    expected = {
        "Apache": web,
        "Femitter": {"Enterprise1", "Enterprise2", "User2"},
        "HarakaSMPT": linux,
        "Smss": {"User0", "User1"},
        "SSHD": {"User2", "User3"},
        "Svchost": {"User0", "User1"},
        "Tomcat": web,
        "Vsftpd": linux | {"User3", "User4"},
    }
    assert {name: named(sc.DECOY_FITS[k]) for k, name in enumerate(sc.DECOYS)} == expected


def test_the_heaviest_exploit_wins():
    by_weight = [sc.SSH_BRUTE_FORCE, sc.BLUE_KEEP, sc.ETERNAL_BLUE, sc.HTTP_RFI, sc.HTTPS_RFI, sc.SQL_INJECTION]
    by_weight += [sc.HARAKA_RCE, sc.FTP_TRAVERSAL]
    options = 0
    for x in by_weight:
        options |= 1 << x
        assert sc.TOP_EXPLOIT[options] == x


def test_no_exploit_has_both_a_service_and_a_decoy_on_a_host_except_behind_the_service():
    """A decoy can only ever open a port of its type where the host has no such service, Vsftpd on USER3/4 aside."""
    for x in range(sc.NUM_EXPLOITS):
        for k in range(sc.NUM_DECOYS):
            if sc.EXPLOIT_DECOYS[x] >> k & 1:
                both = sc.EXPLOIT_SERVICE[x] & sc.DECOY_FITS[k]
                assert both == (sc.hosts(sc.USER3, sc.USER4) if k == sc.VSFTPD else 0)


def test_services_listen_where_exploits_expect_them():
    for x in range(sc.NUM_EXPLOITS):
        for h in range(sc.NUM_HOSTS):
            if sc.EXPLOIT_SERVICE[x] >> h & 1:
                assert sc.LISTENING[h] & sc.EXPLOIT_PORT[x]
        assert sc.EXPLOIT_PRIVILEGED[x] & ~sc.EXPLOIT_SERVICE[x] == 0
