"""Draws have the distributions of the original, and depend on nothing but who asks, when and what for."""

import numba
import numpy as np
import pytest
from scipy import stats

from cavalcade.core import rng
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2 import rng as draws
from cavalcade.envs.cage2 import scenario as sc
from cavalcade.envs.cage2.scripted import sleep

# All tests run on fixed seeds, so a p-value is a constant of the code, not a matter of luck.
ACCEPT = 1e-3


@numba.njit
def words(key, n):
    out = np.empty(n, np.uint64)
    for i in range(n):
        out[i] = rng.word(rng.step_key(key, 0, i), 0)
    return out


@numba.njit
def environment_keys(seeds, n):
    out = np.empty((seeds, n), np.uint64)
    for seed in range(seeds):
        for e in range(n):
            out[seed, e] = rng.environment_key(np.uint64(0), np.uint64(seed), np.uint64(e))
    return out


@numba.njit
def purposes(key, n):
    out = np.empty((n, 10), np.uint64)
    for i in range(n):
        for purpose in range(10):
            out[i, purpose] = rng.word(rng.step_key(key, i // 100, i % 100), purpose)
    return out


@numba.njit
def counts_and_lowest(n):
    out = np.empty((n, 2), np.int64)
    for bits in range(1, n):
        out[bits, 0] = draws.count(bits)
        out[bits, 1] = draws.lowest(bits)
    return out


def test_bit_tricks():
    found = counts_and_lowest(1 << 13)
    for bits in range(1, 1 << 13):
        assert found[bits, 0] == bits.bit_count()
        assert found[bits, 1] == (bits & -bits).bit_length() - 1


def test_every_bit_of_a_word_is_fair():
    bits = words(np.uint64(12345), 200_000)[:, None] >> np.arange(64, dtype=np.uint64) & np.uint64(1)
    z = (bits.mean(axis=0) - 0.5) * 2 * np.sqrt(200_000)
    assert np.abs(z).max() < 4.5


def test_purposes_and_steps_are_independent():
    bits = (purposes(np.uint64(99), 100_000) >> np.uint64(63)).astype(np.float64)
    correlation = np.corrcoef(bits.T) - np.eye(10)
    assert np.abs(correlation).max() < 4.5 / np.sqrt(100_000)
    for purpose in range(10):
        assert abs(np.corrcoef(bits[:-1, purpose], bits[1:, purpose])[0, 1]) < 4.5 / np.sqrt(100_000)


def test_no_two_environments_share_a_key():
    keys = environment_keys(50, 20_000)
    assert len(np.unique(keys)) == keys.size
    streams = [Cage2(1000, stream=stream).state.key for stream in rng.STREAMS]
    assert len(np.unique(streams)) == 3000


def play(steps, num_envs=4000, policy=sleep, **options):
    """Runs a batch and returns the fields of the latest-step record, (steps, N) each."""
    env = Cage2(num_envs, seed=7, horizon=0, **options)
    env.reset()
    generator = np.random.default_rng(0)
    names = ("red_action", "red_target", "red_exploit", "red_success", "green_target", "red")
    history = {name: [] for name in (*names, "activity")}
    for _ in range(steps):
        env.step(policy(env, generator))
        for name in names:
            history[name].append(getattr(env.state, name).astype(np.int64))
        history["activity"].append(env.state.table >> 4 * np.maximum(env.state.red_target, 0).astype(np.int64) & 3)
    return {name: np.array(values) for name, values in history.items()}


def assert_distributed(observed, expected):
    """A chi-squared test of counts by value against probabilities by value."""
    values, counts = np.unique(observed, return_counts=True)
    assert set(values) <= set(expected)
    found = dict(zip(values, counts, strict=True))
    total = counts.sum()
    assert total > 1000
    if len(expected) == 1:
        return
    observed_counts = [found.get(value, 0) for value in expected]
    assert stats.chisquare(observed_counts, [p * total for p in expected.values()]).pvalue > ACCEPT


def test_b_line_goes_through_any_user_host():
    history = play(2)
    assert_distributed(history["red_target"][1], dict.fromkeys((sc.USER1, sc.USER2, sc.USER3, sc.USER4), 1 / 4))


@pytest.mark.parametrize(
    ("host", "chances"),
    [
        (sc.USER1, {sc.FTP_TRAVERSAL: 3 / 4, sc.SSH_BRUTE_FORCE: 1 / 4}),
        (sc.USER2, {sc.ETERNAL_BLUE: 3 / 4, sc.BLUE_KEEP: 1 / 4}),
        (sc.USER3, {sc.HARAKA_RCE: 3 / 4, **dict.fromkeys((sc.HTTPS_RFI, sc.HTTP_RFI, sc.BLUE_KEEP), 1 / 12)}),
        (
            sc.USER4,
            {
                sc.HARAKA_RCE: 3 / 4,
                **dict.fromkeys((sc.SQL_INJECTION, sc.HTTPS_RFI, sc.HTTP_RFI, sc.SSH_BRUTE_FORCE), 1 / 16),
            },
        ),
        (
            sc.ENT1,
            {
                sc.HTTPS_RFI: 3 / 4,
                **dict.fromkeys((sc.HTTP_RFI, sc.ETERNAL_BLUE, sc.BLUE_KEEP, sc.SSH_BRUTE_FORCE), 1 / 16),
            },
        ),
        (sc.ENT0, {sc.SSH_BRUTE_FORCE: 1}),
    ],
)
def test_choice_of_exploit(host, chances):
    history = play(30)
    here = (history["red_action"] == sc.EXPLOIT) & (history["red_target"] == host)
    assert_distributed(history["red_exploit"][here], chances)


def test_one_shell_in_twenty_goes_unnoticed():
    history = play(30)
    shell = (history["red_action"] == sc.EXPLOIT) & (history["red_success"] == sc.TRUE)
    shell &= history["red_exploit"] != sc.SSH_BRUTE_FORCE
    assert_distributed(history["activity"][shell], {sc.EXPLOIT_ACTIVITY: 0.95, sc.SCAN_ACTIVITY: 0.05})


def test_green_scans_half_of_the_time_any_of_eight_hosts():
    targets = play(10, red="sleep", green=True)["green_target"].ravel()
    eight = [h for h in range(13) if sc.GREEN_TARGETS >> h & 1]
    assert len(eight) == 8
    assert_distributed(targets, {-1: 1 / 2, **dict.fromkeys(eight, 1 / 16)})


def test_meander_scans_in_any_order():
    history = play(6, red="meander")
    assert (history["red_action"][0] == sc.SWEEP).all()
    users = [sc.USER0, sc.USER1, sc.USER2, sc.USER3, sc.USER4]
    scans = history["red_target"][1:6]
    assert (np.sort(scans, axis=0) == np.array(users)[:, None]).all()
    for position in scans:
        assert_distributed(position, dict.fromkeys(users, 1 / 5))


def test_meander_escalates_and_exploits_any_host_it_may():
    history = play(20, red="meander")
    exploits = history["red_action"] == sc.EXPLOIT
    first = exploits.argmax(axis=0)
    targets = history["red_target"][first, np.arange(first.size)]
    assert_distributed(targets, dict.fromkeys((sc.USER0, sc.USER1, sc.USER2, sc.USER3, sc.USER4), 1 / 5))


def test_mixed_draws_each_agent_per_episode():
    env = Cage2(3000, red="mixed", horizon=1)
    env.reset()
    seen = [env.state.red.copy()]
    for _ in range(3):
        env.step(np.zeros(3000, np.int64))
        seen.append(env.state.red.copy())
    for agents in seen:
        assert_distributed(agents, dict.fromkeys((sc.SLEEP_AGENT, sc.B_LINE, sc.MEANDER), 1 / 3))
    assert (seen[0] != seen[1]).mean() == pytest.approx(2 / 3, abs=0.05)
