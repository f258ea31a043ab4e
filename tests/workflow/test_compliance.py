"""Compliance and alignment rewards: by hand, and against plain Python over whole games."""

import math

import numpy as np
import pytest

from cavalcade.core.errors import ConfigError, StateError
from cavalcade.envs.cage2.env import Cage2
from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.envs.cage2.scenario import ENT0, ENT1, OP_SERVER, TYPE_HOSTS, TYPE_OF, USER0, USER1
from cavalcade.envs.cage2.state import host_bits
from cavalcade.envs.cage2.workflow import WorkflowCage2
from cavalcade.workflow.compliance import EPISODE_STATS
from cavalcade.workflow.orders import one_hot

REMOVE, RESTORE = 15, 132
AT = {name: i for i, name in enumerate(EPISODE_STATS)}


def batch(
    n=1, order="op_server,enterprise,user,defender,op_host", alignment="none", weight=0.0, mask="none", **options
):
    env = WorkflowCage2(n, red="sleep", horizon=6, **options)
    env.reset()
    env.assign(slice(0, n), order=CAGE2.parse(order), seed=0, alignment=alignment, weight=weight, mask=mask)
    return env


def hold(env, held, seen):
    """Red really has some hosts, and User0; Blue's table shows some."""
    env.state.privileged[:] = sum(1 << h for h in held) | 1 << USER0
    env.state.table[:] = sum(0b1000 << 4 * h for h in seen)


def play(env, situations, *, seen=None):
    """Figures of an episode: at each step Red holds some hosts, Blue sees the same or others, and acts."""
    bonuses = []
    for hosts, action in situations:
        hold(env, hosts, hosts if seen is None else seen)
        buffers = env.step(np.full(env.spec.num_envs, action))
        task = float(env.reward_parts[0].sum()) / 10
        bonuses.append(float(buffers.reward[0]) - task)
    assert env.buffers.truncated.all()
    return dict(zip(env.episode_stat_names, env.episode_stats[0], strict=True)), bonuses


KEEPS, BREAKS = RESTORE + ENT0, RESTORE + USER1
CHOICE = (ENT0, USER1)
EPISODE = [
    (CHOICE, KEEPS),
    ((USER1,), BREAKS),
    (CHOICE, BREAKS),
    (CHOICE, 0),
    ((), RESTORE + OP_SERVER),
    (CHOICE, KEEPS),
]


def test_decisions_count_where_there_was_a_choice():
    episode_stats, _ = play(batch(), EPISODE)
    assert episode_stats["attempts"] == 5
    for counted, compliance in (("counted", "compliance"), ("true_counted", "true_compliance")):
        assert (
            episode_stats[counted] == 3
        )  # the second had one open type, the fourth attempted nothing, the fifth had none
        assert episode_stats[compliance] == pytest.approx(2 / 3)
    assert episode_stats["choice"] == pytest.approx(2 / 3)
    assert episode_stats["chance"] == pytest.approx(1 / 2)


def test_compliance_goes_by_what_blue_sees():
    blind, _ = play(batch(), EPISODE, seen=())
    assert (blind["counted"], blind["true_counted"]) == (0, 3)
    assert math.isnan(blind["compliance"])
    wrong, _ = play(batch(), [((), KEEPS), ((), BREAKS), *[((), 0)] * 4], seen=CHOICE)
    assert (wrong["counted"], wrong["compliance"], wrong["true_counted"], wrong["choice_counted"]) == (2, 0.5, 0, 0)


def test_binding_decisions_are_counted_by_pair():
    episode_stats, _ = play(batch(), EPISODE)
    assert episode_stats["binding"] == 4  # with two types shown, whatever Blue does
    assert episode_stats["enterprise/user"] == 4
    assert sum(episode_stats[name] for name in episode_stats if "/" in name) == 4
    three, _ = play(batch(), [((ENT0, USER1, OP_SERVER), 0), *[((), 0)] * 5])
    pairs = {name: n for name, n in three.items() if "/" in name and n}
    assert pairs == {"enterprise/op_server": 1, "op_server/user": 1}  # op_server comes first


def test_original_counts_everything_and_user0_is_always_there():
    episode_stats, _ = play(batch(), EPISODE)
    assert episode_stats["original_counted"] == 5
    # Enterprise comes before user: kept. User alone: kept. User first while enterprise is open: broken. Op_server with
    # only User0 held: broken. Enterprise: kept.
    assert episode_stats["original"] == pytest.approx(3 / 5)


def test_the_holes_of_the_original_are_closed():
    """One useless Remove of User0 gave full compliance, and doing nothing gave one half."""
    useless = [((), REMOVE + USER0), *[((), 0)] * 5]
    nothing = [((), 0)] * 6
    for situations, original in ((useless, 1.0), (nothing, 0.5)):
        episode_stats, _ = play(batch(), situations)
        assert episode_stats["original"] == original
        assert math.isnan(episode_stats["compliance"])
        assert math.isnan(episode_stats["true_compliance"])


def test_removes_aimed_at_clean_hosts_raise_no_default_measure():
    """Blue breaks the order once; free Removes of a clean host of the first type raise `choice` and nothing else."""
    broken = [(CHOICE, BREAKS), *[(CHOICE, 0)] * 5]
    farmed = [(CHOICE, BREAKS), *[(CHOICE, REMOVE + ENT1)] * 5]
    honest, gamed = play(batch(), broken)[0], play(batch(), farmed)[0]
    for name in ("compliance", "counted", "true_compliance", "true_counted"):
        assert gamed[name] == honest[name]
    assert honest["compliance"] == honest["true_compliance"] == 0
    assert gamed["choice"] > 0.8


def test_remove_counts_as_restore_does_and_decoys_do_not():
    episode_stats, _ = play(batch(), [(CHOICE, REMOVE + ENT0), (CHOICE, 28 + ENT0), *[(CHOICE, 1)] * 4])
    assert (episode_stats["attempts"], episode_stats["counted"], episode_stats["compliance"]) == (1, 1, 1)


@pytest.mark.parametrize(("until", "counted"), [("restored", 1), ("removed", 0)])
def test_a_host_that_was_removed_from_is_open_until_restored(until, counted):
    """After a Remove the table shows the host as unknown."""
    env = batch(open_until=until)
    hold(env, CHOICE, CHOICE)
    env.state.table[:] = 0b1000 << 4 * ENT0 | 0b0100 << 4 * USER1
    env.step([BREAKS])
    for _ in range(5):
        hold(env, (), ())
        env.step([0])
    assert env.episode_stats[0, AT["counted"]] == counted
    assert env.episode_stats[0, AT["binding"]] == counted


@pytest.mark.parametrize(
    ("alignment", "expected"),
    [
        ("none", [0, 0, 0, 0, 0, 0]),
        ("delta", [6, 0, -3, 0, 0, 1]),
        ("final", [0, 0, 0, 0, 0, 4]),
        ("alpha-beta", [0.1, 0, -0.2, 0, 0, 0.1]),
        ("potential", [0.9 * 6, -0.1 * 6, 0.9 * 3 - 6, -0.1 * 3, -0.1 * 3, -3]),
        ("cost", [0, 0, -6, 0, 0, 0]),
    ],
)
@pytest.mark.parametrize("measure", ["table", "true", "choice"])
def test_alignment_rewards_by_hand(alignment, expected, measure):
    """λ = 6; compliance goes 1, 1, 1/2, 1/2, 1/2, 2/3 by each of these measures; γ = 0.9."""
    episode_stats, bonuses = play(batch(alignment=alignment, weight=6.0, gamma=0.9, measure=measure), EPISODE)
    assert bonuses == pytest.approx(expected, abs=1e-5)
    assert episode_stats["bonus"] == pytest.approx(sum(expected), abs=1e-5)
    assert episode_stats["task"] == pytest.approx(play(batch(), EPISODE)[0]["task"])


def test_potential_stays_where_the_learner_bootstraps():
    """Time has run out, but for the learner the game would go on: γΦ' − Φ, as in any other step."""
    _, bonuses = play(batch(alignment="potential", weight=6.0, gamma=0.9, timeout_is_terminal=False), EPISODE)
    assert bonuses[-1] == pytest.approx(0.9 * 4 - 3, abs=1e-5)


def test_potential_shaping_adds_nothing_to_the_discounted_return():
    env = batch(alignment="potential", weight=6.0, gamma=0.9)
    _, bonuses = play(env, EPISODE)
    assert sum(0.9**t * b for t, b in enumerate(bonuses)) == pytest.approx(0, abs=1e-5)


def kinds(hosts):
    return [t for t in range(5) if (hosts & host_bits(TYPE_HOSTS[t])).any()]


def test_whole_games_against_plain_python():
    """Random play against Meander: all measures recomputed, step by step, outside the kernel."""
    n, rng = 64, np.random.default_rng(0)
    env = WorkflowCage2(n, red="meander", seed=3)
    env.reset()
    orders = [CAGE2.orders()[i] for i in rng.integers(120, size=n)]
    for e, order in enumerate(orders):
        env.assign(slice(e, e + 1), order=order, seed=e)
    kept, counted, total, binding = np.zeros((4, n)), np.zeros((4, n)), np.zeros(n), np.zeros(n)
    for _ in range(100):
        held = host_bits(env.state.user | env.state.flagged | env.state.privileged)
        table = env.buffers.observation[:, :52].reshape(n, 13, 4)
        seen = table[:, :, 2:].any(axis=2)
        seen[:, USER0] = False
        real = held.copy()
        real[:, USER0] = False
        actions = rng.choice([*range(15, 28), *range(132, 145), 0], size=n)
        for e, action in enumerate(actions):
            shown, open_, ever = kinds(seen[e]), kinds(real[e]), kinds(held[e])
            binding[e] += len(shown) >= 2
            if not action:
                continue
            host = (action - 15) % 13 if action < 28 else action - 132
            counts = (
                len(shown) >= 2 and seen[e, host], len(open_) >= 2 and real[e, host], len(open_) >= 2, True,
            )  # fmt: skip
            for measure, (counts_now, among) in enumerate(zip(counts, (shown, open_, open_, ever), strict=True)):
                if counts_now:
                    counted[measure, e] += 1
                    kept[measure, e] += not among or min(among, key=orders[e].index) == TYPE_OF[host]
        total += env.step(actions).reward
    for measure, name in enumerate(("compliance", "true_compliance", "choice", "original")):
        found, some = env.episode_stats[:, AT[name]], counted[measure] > 0
        assert (env.episode_stats[:, AT[name] + 1] == counted[measure]).all()
        np.testing.assert_allclose(found[some], (kept[measure] / np.maximum(counted[measure], 1))[some])
    assert (env.episode_stats[:, AT["binding"]] == binding).all()
    np.testing.assert_allclose(env.episode_stats[:, AT["task"]], total, atol=1e-3)
    assert (counted.sum(axis=1) > 500).all()


def test_the_game_is_the_same_with_and_without_workflow():
    rng = np.random.default_rng(1)
    plain, tracked = Cage2(300, red="mixed", seed=5), WorkflowCage2(300, red="mixed", seed=5)
    plain.reset()
    tracked.reset()
    for _ in range(250):
        actions = rng.integers(145, size=300)
        a, b = plain.step(actions), tracked.step(actions)
        np.testing.assert_array_equal(a.observation, b.observation[:, :52])
        np.testing.assert_array_equal(a.final_observation, b.final_observation[:, :52])
        np.testing.assert_array_equal(a.reward, b.reward)
        np.testing.assert_array_equal(a.action_mask, b.action_mask)


def test_the_order_is_seen_unless_hidden():
    env = WorkflowCage2(4)
    env.reset()
    order = CAGE2.parse("reverse")
    env.assign(slice(0, 2), order=order, seed=0)
    env.assign(slice(2, 4), order=order, seed=0, shown=False)
    shown = env.buffers.observation[:, 52:]
    assert (shown[:2] == one_hot(order)).all()
    assert not shown[2:].any()
    env.step(np.zeros(4, int))
    assert (env.buffers.observation[:2, 52:] == one_hot(order)).all()


def test_shuffled_orders_change_with_the_episode():
    env = WorkflowCage2(200, horizon=3)
    env.reset()
    env.assign(slice(0, 200), order=None, seed=1)
    first = env.buffers.observation[:, 52:].copy()
    assert len({row.tobytes() for row in first}) > 80  # of 120
    for _ in range(3):
        assert (env.buffers.observation[:, 52:] == first).all()
        env.step(np.zeros(200, int))
    assert (env.buffers.final_observation[:, 52:] == first).all()
    assert (env.buffers.observation[:, 52:] != first).any(axis=1).mean() > 0.9


def test_threads_and_saved_states_change_nothing():
    rng = np.random.default_rng(2)
    actions = rng.integers(15, 145, size=(120, 600))
    outcomes = []
    for threads, middle in ((1, False), (2, False), (2, True)):
        env = WorkflowCage2(600, red="meander", threads=threads)
        env.reset()
        env.assign(slice(0, 600), order=None, seed=4, alignment="delta", weight=3.0)
        for t in range(120):
            if middle and t == 50:
                env = env.clone()
            env.step(actions[t])
        outcomes.append((env.buffers.reward.copy(), env.episode_stats.copy(), env.save_state()))
    for other in outcomes[1:]:
        np.testing.assert_array_equal(outcomes[0][0], other[0])
        for name, value in outcomes[0][2].items():
            np.testing.assert_array_equal(value, other[2][name])


def test_bad_input():
    with pytest.raises(ConfigError, match="compliance is 'strict'; it must be one of table, true, choice, original"):
        WorkflowCage2(2, measure="strict")
    env = WorkflowCage2(2)
    env.reset()
    with pytest.raises(ConfigError, match="alignment is 'love'"):
        env.assign(slice(0, 2), order=None, seed=0, alignment="love")
    saved = env.save_state()
    saved["workflow_rank"] = np.zeros((2, 5), np.int8)
    with pytest.raises(StateError, match="rows that are not orders"):
        env.load_state(saved)
    del saved["workflow_kept"]
    with pytest.raises(StateError, match="workflow_kept of the saved state is missing"):
        env.load_state(saved)
