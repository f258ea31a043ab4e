"""Searches on synthetic objectives and on stored scores, and what is read as stored scores."""

import csv
import json

import numpy as np
import pytest

from cavalcade.cli.bench import gp
from cavalcade.cli.bench.gp import run, stored_scores
from cavalcade.core.errors import ConfigError, RunError
from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.search.searchers import HalvingSearcher, ListSearcher, Proposal

ORDERS = CAGE2.orders()
NAMES = [CAGE2.text(order) for order in ORDERS]
COLUMNS = ("revision", "red", "episodes", "order", "seed", "score", "standard_error", "compliance", "counted")


def member(purpose="search", kind="order", start="", updates=5):
    return {"purpose": purpose, "kind": kind, "start": start, "updates": updates}


def result(order, score, **more):
    return {"member": member(**more), "order": order, "score": score, "heldout": score, "error": 0.5}


def written(folder, results):
    (folder / "summary.json").write_text(json.dumps({"results": results}))
    return folder


@pytest.fixture
def table(tmp_path):
    """Two trainings of each order against each of two Reds."""
    path = tmp_path / "orders.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(COLUMNS)
        for red, shift in (("bline", 0.0), ("meander", -100.0)):
            for i, name in enumerate(NAMES):
                for seed in range(2):
                    rows.writerow(["head", red, 20000, name, seed, shift - i + seed, 0.25, 1.0, 0.5])
    return path


def test_only_trainings_of_the_search_from_scratch_count(tmp_path):
    searched = [result(name, -float(i) - seed) for i, name in enumerate(NAMES) for seed in range(2)]
    others = [
        result(NAMES[0], 1e6, purpose="confirm"),
        *(result(NAMES[0], 1e6, purpose="control", kind=kind) for kind in ("shuffled unseen", "plain PPO")),
        result(None, 1e6, purpose="control", kind="shuffled"),
        result(None, 1e6, kind="universal"),
        result(NAMES[0], 1e6, start="member-3", updates=10),
    ]
    found = stored_scores(written(tmp_path, searched + others), {})
    assert found.scores == [[-float(i), -float(i) - 1] for i in range(120)]
    assert found.errors == [[0.5, 0.5]] * 120
    np.testing.assert_allclose(found.truth(), -np.arange(120) - 0.5)


def test_the_table_of_a_search_is_filtered_in_the_same_way(tmp_path):
    path = tmp_path / "search.csv"
    rows = [f"search,order,{name},,{-seed}" for name in NAMES for seed in range(2)]
    rows += [f"confirm,order,{NAMES[0]},,9", f"control,plain PPO,{NAMES[0]},,9", "control,shuffled,any,,9"]
    path.write_text("\n".join(["purpose,kind,order,start,score", *rows]))
    found = stored_scores(path, {})
    assert found.scores == [[0.0, -1.0]] * 120
    assert found.errors == [[0.0, 0.0]] * 120


def test_trainings_of_several_budgets_are_refused(tmp_path):
    results = [result(name, -1.0, updates=updates) for name in NAMES for updates in (5, 10)]
    with pytest.raises(ConfigError, match="trainings of updates 10, 5; all must have the same"):
        stored_scores(written(tmp_path, results), {})


def test_rows_of_a_table_are_chosen(table):
    found = stored_scores(table, {"red": "meander", "training_episodes": "20000"})
    assert found.scores[3] == [-103.0, -102.0]
    assert found.errors[3] == [0.25, 0.25]
    with pytest.raises(ConfigError, match=r"trainings of red bline, meander; choose one with --red"):
        stored_scores(table, {"revision": "head"})
    with pytest.raises(ConfigError, match="red is 'sleep'; it must be one of bline, meander"):
        stored_scores(table, {"red": "sleep"})
    with pytest.raises(ConfigError, match="training_episodes is '5'; it must be one of 20000"):
        stored_scores(table, {"red": "bline", "training_episodes": "5"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no rows with order and score"),
        ("order,value\nuser,3\n", "no rows with score"),
        ("order,score\nuser,3\n", "lacks defender"),
        (f"order,score\n{NAMES[0]},many\n", "could not convert"),
        (f"order,score\n{NAMES[0]},nan\n", "must be finite"),
        (f"order,score\n{NAMES[0]}\n", "could not convert"),
        (f"order,score\n{NAMES[0]},1\n{NAMES[0]},2\n", "119 orders with fewer than two trainings"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path, text, message):
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(RunError, match=message):
        stored_scores(path, {})


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--scores", "nothing.csv"], "nothing.csv cannot be read as a table"),
        (["--scores", "nothing"], "nothing has no finished search"),
        (["--red", "bline"], "red is given without scores"),
        (["--classes", "user,enterprise"], "classes is given without scores"),
        (["--classes", "user,king"], "classes is 'king'"),
        (["--classes", "user"], "classes is user; it takes two or more"),
        (["--parallel-orders", "0"], "parallel_orders is 0"),
        (["--methods"], "methods is empty"),
        (["--noises", "-1"], "noises are"),
        (["--methods", "halving", "--scores", "nothing"], "methods is halving; halving is left out"),
    ],
)
def test_bad_options_are_refused(args, message):
    with pytest.raises((ConfigError, RunError), match=message):
        run(args)


def test_a_class_is_the_mean_of_all_its_trainings():
    scores = [[float(order.index(4) < order.index(1))] * (1 + i % 2) for i, order in enumerate(ORDERS)]
    scores[0] = [3.0]  # enterprise before user
    found = gp.Trainings(scores, [[0.0] * len(s) for s in scores])
    pooled = [x for order, own in zip(ORDERS, scores, strict=True) if order.index(1) < order.index(4) for x in own]
    expected = [1.0 if order.index(4) < order.index(1) else np.mean(pooled) for order in ORDERS]
    np.testing.assert_allclose(found.truth(["user", "enterprise"]), expected)
    np.testing.assert_allclose(found.truth(), [own[0] for own in scores])


class Recorder:
    """Proposes orders from a list, and notes what it was given."""

    def __init__(self, rungs=()):
        self.given, self.rungs = [], rungs

    def propose(self, observed, pending, made):
        self.given.append(([o.order for o in observed], [p.order for p in pending], made))
        return Proposal(made, rung=self.rungs[made] if self.rungs else 0)


def index_of(proposal, rng):
    return float(proposal.order), 0.25


@pytest.mark.parametrize("parallel", [1, 3])
def test_results_arrive_in_order_and_the_rest_is_pending(parallel):
    recorder = Recorder()
    observed = gp.search(recorder, index_of, np.random.default_rng(0), budget=6, parallel_orders=parallel)
    assert [o.order for o in observed] == list(range(6))
    assert {o.variance for o in observed} == {0.25}
    for made, (known, pending, told) in enumerate(recorder.given):
        assert told == made
        assert known + pending == list(range(made))
        assert len(pending) == min(made, parallel - 1)


def test_a_score_of_a_higher_rung_costs_more():
    observed = gp.search(Recorder([0, 0, 1, 0, 2]), index_of, np.random.default_rng(0), budget=14, parallel_orders=1)
    assert [o.rung for o in observed] == [0, 0, 1, 0]  # 1 + 1 + 3 + 1, and 9 more would be too many
    assert not gp.search(ListSearcher([]), index_of, np.random.default_rng(0), budget=14, parallel_orders=2)


def test_halving_names_the_best_of_its_top_rung():
    truth = np.arange(120.0)
    searched = gp.search(HalvingSearcher(120, 5), lambda p, _: (truth[p.order], 0.0), np.random.default_rng(0), 40, 2)
    orders = {rung: {o.order for o in searched if o.rung == rung} for rung in range(4)}
    top = max(rung for rung in orders if len(orders[rung]) > 1)
    assert top >= 1
    assert orders[top] < orders[0]
    (regret,) = gp.simple_regrets("halving", truth, 0.0, seed=5, parallel_orders=2, checkpoints=(40,))
    assert regret == 119 - max(orders[top])


@pytest.mark.parametrize("method", gp.METHODS)
@pytest.mark.parametrize("parallel", [1, 8])
def test_every_method_names_the_best_of_few_where_there_is_no_noise(method, parallel):
    regrets = gp.simple_regrets(
        method, gp.synthetic("pairwise", 0), 0.0, seed=0, parallel_orders=parallel, checkpoints=(3, 12)
    )
    assert len(regrets) == 2
    assert 0 <= regrets[1] <= regrets[0]


def test_a_longer_search_begins_as_a_shorter_one():
    truth = gp.synthetic("mallows", 1)
    for method in gp.METHODS:
        (short,) = gp.simple_regrets(method, truth, 1.0, seed=1, checkpoints=(10,))
        assert gp.simple_regrets(method, truth, 1.0, seed=1, checkpoints=(10, 14))[0] == short


def test_pending_orders_are_visits_to_the_heuristic():
    assert [ORDERS[gp.heuristic_choice([], [], p)] for p in ([], [0])] == [(0, 1, 2, 3, 4), (4, 3, 2, 1, 0)]
    assert gp.heuristic_choice([0], [5.0], [119]) not in (0, 119)


def test_the_command_prints_orders_and_classes(capsys, table, tmp_path):
    args = ["--scores", table, "--red", "bline", "--repeats", "2", "--checkpoints", "3,5", "--parallel-orders", "2"]
    assert run([*map(str, args), "--classes", "user,enterprise,op_server", "--json", str(tmp_path / "f.json")]) == 0
    out = capsys.readouterr().out
    assert "halving is left out: stored scores are of one budget" in out
    assert "240 trainings, q = 2, 120 orders" in out
    assert "6 classes by the order of user, enterprise, op_server" in out
    assert "heuristic − gp-ucb, paired" in out
    found = json.loads((tmp_path / "f.json").read_text())
    assert set(found["stored"]) == set(found["classes"]) == {"gp-ucb", "thompson", "random", "heuristic"}
    assert np.shape(found["stored"]["random"]) == (2, 2)
    assert run(["--repeats", "2", "--methods", "halving", "--objectives", "pairwise", "--noises", "1"]) == 0
    assert "halving: a score of rung r" in capsys.readouterr().out
