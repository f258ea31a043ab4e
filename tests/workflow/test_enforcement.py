"""Orders that bind: what a mask leaves to a policy, in training and elsewhere; costs that drive compliance."""

import numpy as np
import pytest

from cavalcade.config.workflow import WorkflowConfig
from cavalcade.core.errors import ConfigError
from cavalcade.envs.cage2.env import Cage2
from cavalcade.envs.cage2.order_mask import OrderMask
from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.envs.cage2.scenario import ACTIONS, ENT0, HOSTS, USER0, USER1
from cavalcade.envs.cage2.state import host_bits
from cavalcade.envs.cage2.workflow import WorkflowCage2
from cavalcade.envs.gridworld import Gridworld
from cavalcade.workflow.compliance import EPISODE_STATS
from cavalcade.workflow.enforcement import next_multipliers

KIND = {name: name.rstrip("0123456789").lower() for name in HOSTS}  # op_host, op_server, user, …


def auditor(table, action, order, until="restored"):
    """Whether an action breaks an order, by the names of things alone: shares nothing with the mask.

    table: 52 values, four per host, the last two of which say what Blue believes of it.
    """
    verb, _, host = ACTIONS[action].partition(" ")
    if verb not in ("Remove", "Restore"):
        return False
    shown = set()
    for i, name in enumerate(HOSTS):
        believed = tuple(table[4 * i + 2 : 4 * i + 4])
        if name != "User0" and believed in ({(0, 1), (1, 1)} if until == "removed" else {(1, 0), (0, 1), (1, 1)}):
            shown.add(KIND[name])
    if len(shown) < 2:
        return False
    return KIND[host] != next(kind for kind in order.split(">") if kind in shown)


@pytest.mark.parametrize("until", ["restored", "removed"])
@pytest.mark.parametrize("red", ["bline", "meander"])
def test_no_order_can_be_broken(red, until):
    """All 120 orders, actions drawn among those allowed, repairs often: an auditor finds no violation, and no gap."""
    rng, orders = np.random.default_rng(1), CAGE2.orders()
    env = WorkflowCage2(240, red=red, open_until=until)
    for e in range(240):
        env.assign(slice(e, e + 1), order=orders[e // 2], seed=e, mask="mask")
    names = [CAGE2.text(order) for order in orders]
    repairs = np.array([name.startswith(("Re",)) for name in ACTIONS])
    active = np.zeros(240)
    for _ in range(60):
        tables, mask = env.buffers.observation[:, :52].copy(), env.buffers.action_mask.copy()
        actions = np.array([rng.choice(np.flatnonzero(row & (repairs | (rng.random(145) < 0.05)))) for row in mask])
        for e in range(240):
            assert not auditor(tables[e], actions[e], names[e // 2], until)
            broken = [a for a in np.flatnonzero(~mask[e] & repairs) if not auditor(tables[e], a, names[e // 2], until)]
            assert not broken  # nothing is forbidden that keeps the order
            active[e] += (~mask[e] & repairs).any()
        env.step(actions)
    assert (active > 0).mean() > 0.9


def test_the_mask_is_the_same_packed_and_after_loading():
    rng = np.random.default_rng(2)
    env = WorkflowCage2(500, red="meander")
    env.assign(slice(0, 500), order=None, seed=3, mask="mask")
    for _ in range(130):
        env.step(rng.integers(145, size=500))
    bits = env.packed.action_mask[:, 0] >> 52
    again = env.clone()
    np.testing.assert_array_equal(again.buffers.action_mask, env.buffers.action_mask)
    np.testing.assert_array_equal(again.packed.action_mask, env.packed.action_mask)
    allowed = env.buffers.action_mask[:, 132:145]
    kinds = (bits[:, None] >> np.arange(5) & 1).astype(bool)
    types = [CAGE2.names.index(KIND[name]) for name in HOSTS]
    np.testing.assert_array_equal(allowed, kinds[:, types])
    np.testing.assert_array_equal(env.buffers.action_mask[:, 15:28], allowed)
    assert 0.1 < (bits != 31).mean() < 1


def test_a_mask_on_the_true_state():
    rng = np.random.default_rng(4)
    env = WorkflowCage2(300, red="meander")
    order = CAGE2.parse("user>defender>enterprise>op_server>op_host")
    env.assign(slice(0, 300), order=order, seed=3, mask="mask-true")
    for _ in range(90):
        env.step(rng.integers(145, size=300))
    held = host_bits(env.state.user | env.state.flagged | env.state.privileged)
    held[:, USER0] = False
    types = np.array([CAGE2.names.index(KIND[name]) for name in HOSTS])
    for e in range(300):
        open_ = {int(types[h]) for h in np.flatnonzero(held[e])}
        free = set(range(5)) if len(open_) < 2 else {min(open_, key=order.index)}
        assert env.buffers.action_mask[e, 132:145].tolist() == [int(k) in free for k in types]


@pytest.mark.parametrize("mask", ["mask", "mask-true", "none"])
def test_a_policy_elsewhere_gets_the_same_mask(mask):
    """`OrderMask` on a plain batch gives what `WorkflowCage2` writes."""
    rng, order = np.random.default_rng(5), CAGE2.parse("reverse")
    bound, plain = WorkflowCage2(200, red="meander", seed=1, show_order=False), Cage2(200, red="meander", seed=1)
    bound.give_order(slice(None), order=order, mask=mask)
    bound.reset()
    plain.reset()
    deployed = OrderMask(order, mask)
    for _ in range(60):
        np.testing.assert_array_equal(deployed(plain), bound.buffers.action_mask)
        actions = rng.integers(145, size=200)
        bound.step(actions)
        plain.step(actions)
        np.testing.assert_array_equal(bound.buffers.observation, plain.buffers.observation)
    assert bound.spec.observation_space.shape == (52,)


def test_gridworld_moves_onto_checkpoints_out_of_turn_are_forbidden():
    env = Gridworld(24)
    for e, order in enumerate(env.subtasks.orders()):
        env.assign(slice(e, e + 1), order=order, seed=0, mask="mask")
    rng = np.random.default_rng(0)
    for _ in range(400):
        mask = env.buffers.action_mask
        assert mask.any(axis=1).all()
        bits = env.packed.action_mask[:, 0]
        np.testing.assert_array_equal(mask, (bits[:, None] >> np.arange(4) & 1).astype(bool))
        env.step([rng.choice(np.flatnonzero(row)) for row in mask])
        over = env.buffers.terminated | env.buffers.truncated
        compliance = env.episode_stats[over, EPISODE_STATS.index("compliance")]
        assert (compliance[~np.isnan(compliance)] == 1).all()
    free = Gridworld(2)
    free.reset()
    assert free.buffers.action_mask.all()


def test_masked_repairs_are_never_drawn_by_a_learner():
    """Actions that a learner plays in training are among those allowed, in every step."""
    from cavalcade.config import PPOConfig
    from cavalcade.ppo.factory import make_engine

    env = WorkflowCage2(40, red="bline")
    env.assign(slice(0, 40), order=CAGE2.parse("user_priority"), seed=0, mask="mask")
    for dedup in ("on", "off"):
        learner, _ = make_engine(env, PPOConfig(num_envs=40, rollout_steps=100, dedup=dedup), [0])
        learner.collect()
        mask, action = learner.rollout.mask.numpy(), learner.rollout.action.numpy()
        assert np.take_along_axis(mask, action[..., None], axis=-1).all()
        assert (~mask[..., 132:]).any()
        learner.update(0.0)


def test_multipliers_follow_compliance():
    before = np.array([1.0, 1.0, 1.0, 9.9, 0.1])
    kept, counted = np.array([0.0, 97, 0, 0, 10]), np.array([10.0, 100, 0, 10, 10])
    after = next_multipliers(before, kept, counted, 0.97)
    np.testing.assert_allclose(after, [1 + 0.5 * 0.97, 1.0, 1.0, 10.0, 0.1 - 0.5 * 0.03])


def test_a_batch_moves_its_multipliers():
    env = WorkflowCage2(4)
    env.give_order(slice(None), order=CAGE2.parse("reverse"), alignment="cost")
    episode_stats = np.zeros((3, len(env.episode_stat_names)))
    episode_stats[:, EPISODE_STATS.index("counted")] = [2, 0, 4]
    episode_stats[:, EPISODE_STATS.index("compliance")] = [0.5, np.nan, 1.0]
    found = env.adapt_multipliers(np.array([0, 0, 1]), episode_stats, 2, 0.97)
    np.testing.assert_allclose(found, [0.5 * 0.47, 0.0], atol=1e-6)
    np.testing.assert_allclose(env.track.weight, [0.235, 0.235, 0, 0], atol=1e-6)


def test_only_violations_cost_and_nothing_pays():
    env = WorkflowCage2(1, red="sleep", horizon=4)
    env.assign(slice(0, 1), order=CAGE2.parse("enterprise>user>op_server>defender>op_host"), seed=0, alignment="cost")
    env.track.weight[:] = 3.0
    bonuses = []
    for action in (132 + ENT0, 132 + USER1, 15 + USER1, 0):
        env.state.table[:] = 0b1000 << 4 * ENT0 | 0b1000 << 4 * USER1
        bonuses.append(float(env.step([action]).reward[0]) + (action >= 132))
    assert bonuses == pytest.approx([0, -3, -3, 0])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"enforce": "mask", "alignment": "delta"}, "alignment is delta with enforce mask; alignment rewards need"),
        ({"enforce": "lagrangian", "beta": 1.0}, "beta is 1.0 with enforce lagrangian"),
        (
            {"enforce": "reward", "alignment": "alpha-beta", "alignment_lambda": 3.0},
            "alignment_lambda is 3.0 with alignm",
        ),
        ({"enforce": "reward", "alpha": 3.0}, "alpha is 3.0 with alignment delta, which does not use it"),
        ({"follow_threshold": 1.2}, "follow_threshold is 1.2; it must be from 0 to 1"),
        ({"enforce": "reward", "alignment_lambda": -1.0}, "alignment_lambda is -1.0; it must be from 0"),
    ],
)
def test_bad_settings_are_refused(given, words):
    with pytest.raises(ConfigError, match=words):
        WorkflowConfig(**given)


def test_what_environments_are_told():
    assert WorkflowConfig().binding == {"mask": "mask", "alignment": "none", "weight": 0.0}
    assert WorkflowConfig(enforce="lagrangian").binding == {"mask": "none", "alignment": "cost", "weight": 0.0}
    rewarded = WorkflowConfig(enforce="reward")
    assert rewarded.binding == {"mask": "none", "alignment": "delta", "weight": 10.0}
    per_repair = WorkflowConfig(enforce="reward", alignment="alpha-beta")
    assert (per_repair.alpha, per_repair.beta, per_repair.alignment_lambda) == (0.1, 0.2, None)
