"""Rules that hold in every game, whatever Blue plays; and single rules set up by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2 import scenario as sc
from cavalcade.envs.cage2.state import host_bits

N = 8
# Short plans that hypothesis can shrink, and long ones from a seed: half uniform, half decoys and repairs of the same
# hosts in quick turn, which a uniform choice would rarely bring about.
short = st.lists(st.lists(st.integers(0, 144), min_size=N, max_size=N), min_size=1, max_size=20)


def long_plan(seed):
    rng = np.random.default_rng(seed)
    uniform = rng.integers(145, size=(120, N))
    hosts = rng.choice(13, size=3)
    busy = 2 + 13 * rng.choice([0, 1, *range(2, 10), 10], size=(120, N)) + rng.choice(hosts, size=(120, N))
    return np.where(rng.random((120, N)) < 0.5, uniform, busy)


moves = st.one_of(short, st.integers(0, 2**32).map(long_plan))
games = st.fixed_dictionaries(
    {
        "red": st.sampled_from(["bline", "meander", "mixed"]),
        "revision": st.sampled_from(sc.REVISIONS),
        "variant": st.sampled_from(sc.VARIANTS),
        "green": st.booleans(),
        "seed": st.integers(0, 2**32),
    }
)


@settings(max_examples=150, deadline=None)
@given(games, moves)
def test_what_always_holds(options, plan):
    env = Cage2(N, horizon=0, **options)
    env.reset()
    s, total = env.state, np.zeros(N, np.int64)
    cost = np.array([1, 10, 10, 10, 1, 1, 1, 10, 0, 1, 1, 1, 1])
    known = np.zeros((3, N), np.int64)
    stoppable = np.ones(N, np.int64)
    for step in plan:
        action = np.array(step)
        mask = env.buffers.action_mask.copy()
        here = env.step(action)
        host, block = (action - 2) % 13, np.where(action < 2, -1, (action - 2) // 13)
        decoy, restore = (block >= 2) & (block < 10), block == 10

        assert (s.privileged >> sc.USER0 & 1).all(), "Red never loses User0"
        assert not ((s.user | s.flagged | s.privileged) >> sc.DEFENDER & 1).any(), "Red never holds the Defender"

        assert (s.blue_success[decoy] == mask[decoy, action[decoy]]).all(), "a decoy succeeds exactly when not masked"
        assert mask[~decoy, action[~decoy]].all(), "nothing else is ever masked"
        assert (s.blue_success[~decoy] == np.where(action[~decoy] == 0, sc.UNKNOWN, sc.TRUE)).all()

        parts = env.reward_parts
        assert (parts[:, 0] == -(host_bits(s.privileged) * cost).sum(axis=1)).all()
        assert (parts[:, 1] == np.where(s.ot_running, 0, -100)).all()
        assert (parts[:, 2] == np.where(restore, -10, 0)).all()
        assert (here.reward == (parts.sum(axis=1) / 10).astype(np.float32)).all()
        total += parts.sum(axis=1)
        assert (s.total == total).all()

        decoys = s.decoys.reshape(N, 8)
        assert not (decoys[restore] >> host[restore, None] & 1).any(), "Restore removes every decoy"
        assert not (decoys & ~sc.DECOY_FITS).any(), "decoys run only where they can"

        activity = np.array([s.table >> 4 * h & 0b11 for h in range(13)]).T
        assert set(np.unique(activity)) <= {0, 1, 3}, "an exploit is also an activity"
        red_host, green_host = (
            1 << np.maximum(target, 0).astype(np.int64) for target in (s.red_target, s.green_target)
        )
        busy = host_bits(red_host | green_host)
        assert not activity[~busy].any(), "activity only where Red or Green acted"
        level = np.array([s.table >> 4 * h + 2 & 0b11 for h in range(13)]).T
        assert (level[activity == sc.EXPLOIT_ACTIVITY] >= sc.USER_LEVEL).all()
        assert (here.observation == (s.table[:, None] >> np.arange(52) & 1)).all()

        knows = np.array([s.addresses, s.hostnames, s.subnets], np.int64)
        assert not (known & ~knows).any(), "Red forgets nothing"
        known = knows
        assert not (s.hostnames & ~s.addresses).any()
        assert not (s.scanned & ~s.addresses).any()
        assert (s.ot_stoppable <= stoppable).all(), "what cannot be stopped stays so"
        stoppable = s.ot_stoppable.astype(np.int64)
        assert not (s.mail_fixed & ~sc.MAIL_SERVERS).any()
        if options["revision"] == "head":
            assert not s.mail_fixed.any()


def game(**fields):
    """One game against a sleeping Red, with some of its state set by hand."""
    env = Cage2(1, red="sleep", revision=fields.pop("revision", "head"))
    env.reset()
    saved = env.save_state()
    for name, value in fields.items():
        saved[name][0] = value
    env.load_state(saved)
    return env


def act(env, name):
    env.step([sc.ACTIONS.index(name)])
    return env


def test_remove_kills_only_flagged_user_sessions():
    here = sc.hosts(sc.ENT1)
    env = act(game(flagged=here, user=here, malware=here), "Remove Enterprise1")
    assert env.state.flagged[0] == 0
    assert env.state.user[0] == here
    assert env.state.malware[0] == here


def test_restore_op_server_brings_the_service_back_for_good():
    env = game(ot_running=0, ot_stoppable=0, privileged=sc.hosts(sc.USER0, sc.OP_SERVER))
    assert act(env, "Sleep").buffers.reward[0] == np.float32(-11)
    assert act(env, "Restore Op_Server0").buffers.reward[0] == -1
    assert env.state.ot_running[0] == 1
    assert env.state.ot_stoppable[0] == 0
    assert env.state.privileged[0] == sc.hosts(sc.USER0)


def test_restore_of_user0_keeps_reds_foothold():
    env = act(game(user=sc.hosts(sc.USER0)), "Restore User0")
    assert env.state.user[0] == 0
    assert env.state.privileged[0] == sc.hosts(sc.USER0)


@pytest.mark.parametrize(("revision", "fixed"), [("head", 0), ("leaderboard-2022", sc.hosts(sc.USER3))])
def test_a_restored_mail_server(revision, fixed):
    env = game(revision=revision)
    assert act(env, "Restore User3").state.mail_fixed[0] == fixed
    assert act(env, "Restore User2").state.mail_fixed[0] == fixed


def test_vsftpd_stacks_and_blocks_apache():
    env = act(game(), "DecoyVsftpd Enterprise0")
    mask = env.buffers.action_mask[0]
    assert not mask[sc.ACTIONS.index("DecoyApache Enterprise0")]
    assert mask[sc.ACTIONS.index("DecoyVsftpd Enterprise0")]
    assert act(env, "DecoyApache Enterprise0").state.blue_success[0] == sc.FALSE
    assert act(env, "DecoyVsftpd Enterprise0").state.blue_success[0] == sc.TRUE


def test_analyse_shows_malware_as_privileged_and_nothing_else():
    env = act(game(malware=sc.hosts(sc.USER1), privileged=sc.hosts(sc.USER0, sc.USER1, sc.USER2)), "Analyse User1")
    assert env.buffers.observation[0].nonzero()[0].tolist() == [4 * sc.USER1 + 2, 4 * sc.USER1 + 3]
    before = env.buffers.observation.copy()
    assert (act(env, "Analyse User2").buffers.observation == before).all()


def test_remove_turns_a_belief_into_unknown():
    env = act(game(table=sc.PRIVILEGED_LEVEL << 4 * sc.ENT0 + 2), "Remove Enterprise0")
    assert env.words[0, 0] == sc.UNKNOWN_LEVEL << 4 * sc.ENT0 + 2
    assert act(env, "Remove Enterprise1").words[0, 0] == env.words[0, 0]
    assert act(env, "Restore Enterprise0").words[0, 0] == 0
