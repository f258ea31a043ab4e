"""The table of trainings of all orders, and what is read from it."""

import csv

import numpy as np
import pytest

from cavalcade.cli.bench import calibration, orders
from cavalcade.workflow.orders import precedences

from ..helpers import refused, run

ENTERPRISE_FIRST = precedences(orders.ORDERS)[:, orders.PAIRS.index("enterprise/user")] > 0


def write(path, *, effect=5.0, spread=0.5, trainings=4, seed=0):
    """A table in which putting enterprise before user is worth an effect and nothing else is."""
    rng = np.random.default_rng(seed)
    bound = " ".join("1" if pair == "enterprise/user" else "0" for pair in orders.PAIRS)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(orders.COLUMNS)
        for name, first in zip(orders.NAMES, ENTERPRISE_FIRST, strict=True):
            for i in range(trainings):
                score = -15 - effect * (not first) + spread * rng.standard_normal()
                writer.writerow(["head", "bline", 5000, "order", name, i, score, 0.2, 1.0, 3.0, 0.9, 4.0, bound])
        for i in range(10):
            score = -15 + spread * rng.standard_normal()
            writer.writerow(["head", "bline", 5000, "plain PPO", orders.NAMES[0], i, score, 0.2, "", 0, "", 0, bound])
    return path


def test_what_a_table_says(tmp_path):
    (t,) = orders.read(write(tmp_path / "t.csv"))
    assert len(set(t.classes)) == 2
    said = orders.said(t)
    assert said.verdict.answer == "yes"
    assert said.verdict.extremes.difference.estimate == pytest.approx(5.0, abs=0.2)
    for pair, effect in zip(orders.PAIRS, said.effects, strict=True):
        truth = 5.0 if pair == "enterprise/user" else 0.0
        assert effect.low - 0.1 <= truth <= effect.high + 0.1
    assert said.explained.share > 0.9
    assert said.gain.low < 0 < said.gain.high  # the better class is as good as plain PPO
    assert [count for _, count, _ in said.units] == [60, 60]


def test_agreement_of_rankings(tmp_path):
    (one,) = orders.read(write(tmp_path / "a.csv"))
    (other,) = orders.read(write(tmp_path / "b.csv", seed=1))
    (turned,) = orders.read(write(tmp_path / "c.csv", effect=-5.0))
    same = orders.agreement(orders.ranking(one), orders.ranking(other))
    assert same.estimate > 0.95
    assert same.low > 0.9
    reversed_ = orders.agreement(orders.ranking(one), orders.ranking(turned))
    assert reversed_.high < -0.9


def test_simulated_searches_find_what_is_there_and_nothing_else(tmp_path):
    (t,) = orders.read(write(tmp_path / "t.csv"))
    scores = [t.scores[order] for order in range(120)]
    assert [calibration.simulated(scores, t.classes, False, seed) for seed in range(4)] == ["yes"] * 4
    assert "yes" not in [calibration.simulated(scores, t.classes, True, seed) for seed in range(4)]
    (equal,) = orders.read(write(tmp_path / "e.csv", effect=0.0))
    scores = [equal.scores[order] for order in range(120)]
    said = [calibration.simulated(scores, equal.classes, True, seed) for seed in range(4)]
    assert "yes" not in said
    assert said.count("no") >= 3  # else all orders that were confirmed are of one class


def test_the_committed_table_is_whole():
    """All 120 orders, five trainings and all controls in every game; every order was followed."""
    games = orders.read(orders.Path("docs", "data", "orders.csv"))
    assert len(games) == 7
    for t in games:
        assert {len(scores) for scores in t.scores.values()} == {5}
        assert {len(scores) for scores in t.controls.values()} == {10}
        assert set(t.controls) == {"plain PPO", "shuffled", "shuffled unseen"}
        assert min(c for c in t.compliance.values() if not np.isnan(c)) == 1.0


def test_the_command_prints_and_refuses(capsys, tmp_path):
    table = write(tmp_path / "t.csv")
    status, out, _ = run(
        capsys, "bench", "orders", "--table", table, "--parts", "truth,binding", "--picture", tmp_path / "p.png",
        "--json", tmp_path / "n.json",
    )  # fmt: skip
    assert status == 0
    assert "Yes, the order matters here, by more than 1 point" in out
    assert out.count("never binds") == 9
    assert (tmp_path / "p.png").exists()
    assert (tmp_path / "n.json").exists()
    assert "is not a table of trainings" in refused(capsys, "bench", "orders", "--table", tmp_path / "none.csv")
    (tmp_path / "bad.csv").write_text("order,score\na,1\n")
    assert "is not a table of trainings" in refused(capsys, "bench", "orders", "--table", tmp_path / "bad.csv")
    assert "episodes is 7; it must be one of 5000" in refused(
        capsys, "bench", "orders", "--table", table, "--episodes", "7"
    )
    assert "belong together" in refused(capsys, "bench", "orders", "--table", table, "--parts", "universal")
    assert "is not a run directory" in refused(capsys, "bench", "orders", "--table", table, "--collect", tmp_path / "x")
