"""Search runs: members come and go, budgets hold, nothing is lost."""

import csv
import json
import math
import shutil
import signal
import time
from dataclasses import replace

import pytest

from cavalcade.config import PPOConfig, WorkflowConfig
from cavalcade.core.errors import ConfigError, RunError
from cavalcade.envs.cage2.task import Cage2Task
from cavalcade.envs.gridworld import GRIDWORLD
from cavalcade.runs.checkpoint import checkpoints
from cavalcade.runs.directory import RunDirectory, open_run
from cavalcade.search.config import SearchConfig
from cavalcade.search.decisions import observations
from cavalcade.search.directory import open_search
from cavalcade.search.run import Search
from cavalcade.workflow.orders import kendall
from tests.processes import command, start

TINY = SearchConfig(
    target="gridworld",
    task=Cage2Task(horizon=20),
    ppo=PPOConfig(num_envs=8, rollout_steps=20, hidden=(16,), learning_rate=0.01),
    n_workflows=7,
    max_episodes=5,
    total_episodes=400,
    parallel_orders=3,
    confirm=2,
    confirm_batches=1,
    rivals=1,
    score_episodes=10,
    checkpoint_every=4,
)


def search(path, config=TINY, *, resume=False, stop_at=None, threads=1):
    """Runs a search, or a part of it."""
    run = open_search(path) if resume else RunDirectory(path, SearchConfig)
    with run.locked():
        found = Search(run, run.config() if resume else config, resume=resume, threads=0 if resume else threads)
        try:
            while not found.done and found.updates != stop_at:
                list(found.advance())
            if stop_at is None or found.done:
                found.checkpoint()
        finally:
            found.close()
    return found


def table(path):
    with (path / "search.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        del row["seconds"]
    return rows


def metrics(path):
    rows = [json.loads(row) for row in (path / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        del row["seconds"]
    return rows


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("search") / "whole"
    search(path)
    return path


def test_everything_asked_for_is_trained_once(whole):
    rows = table(whole)
    by = {purpose: [r for r in rows if r["purpose"] == purpose] for purpose in ("search", "confirm", "control")}
    assert len(by["search"]) == 7
    assert len(by["confirm"]) == 2 * 2
    assert sorted(r["kind"] for r in by["control"]) == sorted(["plain PPO", "shuffled", "shuffled unseen"] * 2)
    assert [int(r["number"]) for r in sorted(rows, key=lambda r: int(r["number"]))] == list(range(len(rows)))
    assert all(float(r["episodes"]) == 40 and r["stop"] == "budget" for r in rows)
    assert len({r["seed"] for r in rows}) == len(rows)
    assert float(by["search"][-1]["used_episodes"]) == 7 * 40
    assert all(int(r["steps"]) == 40 * 20 for r in rows)


REWARDED = WorkflowConfig(enforce="reward", alignment="alpha-beta", alpha=1.0, beta=1.0)


def test_rewards_are_logged_apart(tmp_path):
    whole = tmp_path / "a"
    search(whole, replace(TINY, workflow=REWARDED))
    for row in metrics(whole):
        for task, bonus, total in zip(row["task"], row["bonus"], row["total"], strict=True):
            assert total == pytest.approx(task + bonus, abs=1e-3)
    rows = table(whole)
    assert all(float(r["training_bonus"]) == 0 for r in rows if r["kind"] == "plain PPO")
    assert any(float(r["training_bonus"]) != 0 for r in rows if r["kind"] == "order")


@pytest.mark.parametrize("stop_at", [1, 4, 6, 9, 13, 22])
def test_an_interrupted_search_ends_as_if_it_had_not_been(whole, tmp_path, stop_at):
    path = tmp_path / "run"
    search(path, stop_at=stop_at)
    search(path, resume=True)
    assert table(path) == table(whole)
    assert metrics(path) == metrics(whole)
    mine, theirs = (sorted((p / "policies").iterdir()) for p in (path, whole))
    assert [p.name for p in mine] == [p.name for p in theirs]
    assert all(a.read_bytes() == b.read_bytes() for a, b in zip(mine, theirs, strict=True))


def test_the_budget_is_never_overshot(tmp_path):
    found = search(tmp_path / "a", replace(TINY, n_workflows=100, total_episodes=230, confirm=0))
    assert found.used == 200  # five orders of 40, a sixth would not fit
    assert len(found.results) == 5


@pytest.mark.parametrize("warm_start", ["nearest", "last", "universal"])
def test_warm_starts(tmp_path, warm_start):
    found = search(tmp_path / "a", replace(TINY, warm_start=warm_start, n_workflows=8, confirm=0, parallel_orders=1))
    orders = [r.member for r in found.results if r.member.kind == "order"]
    assert len(orders) == 8
    done: list = []
    for m in orders:
        mine = [other for other in done if other.order == m.order]
        if mine:
            assert m.resume
            assert m.start == mine[-1].stored_as
        elif warm_start == "universal":
            assert m.start == found.results[0].member.stored_as
        elif done and warm_start == "last":
            assert m.start == done[-1].stored_as
        elif done:
            least = min(kendall(found.orders[m.order], found.orders[other.order]) for other in done)
            chosen = next(other for other in done if other.stored_as == m.start)
            assert kendall(found.orders[m.order], found.orders[chosen.order]) == least
        done.append(m)
    assert found.used == (9 if warm_start == "universal" else 8) * 40


def test_every_order_is_scored_from_a_universal_policy(tmp_path):
    config = replace(TINY, warm_start="universal", evaluate_only=True, rounds=2, total_episodes=400, confirm=0)
    found = search(tmp_path / "a", config)
    universal = [r.member for r in found.results if r.member.kind == "universal"]
    assert [m.updates for m in universal] == [25, 25]  # the whole budget, in equal shares
    for m in universal:
        mine = [r for r in found.results if r.member.start == m.stored_as]
        assert [r.member.order for r in mine] == list(range(24))
        assert all(r.updates == 0 for r in mine)
    assert found.used == 400
    search(tmp_path / "b", config, stop_at=9)
    search(tmp_path / "b", resume=True)
    assert table(tmp_path / "b") == table(tmp_path / "a")


@pytest.mark.parametrize(
    "change",
    [
        {"warm_start": "last", "parallel_orders": 1}, {"warm_start": "nearest"}, {"warm_start": "universal"},
        {"searcher": "halving", "n_workflows": 9}, {"searcher": "thompson"},
        {"compliance_threshold": 0.3, "gate": True},
    ],
    ids=str,
)  # fmt: skip
def test_searches_of_every_kind_go_on_exactly(tmp_path, change):
    config = replace(TINY, total_episodes=2000, max_episodes=3, confirm=0, checkpoint_every=5, **change)
    search(tmp_path / "whole", config)
    for stop_at in (7, 9, 13, 14):
        path = tmp_path / f"run{stop_at}"
        search(path, config, stop_at=stop_at)
        search(path, resume=True)
        assert table(path) == table(tmp_path / "whole"), stop_at


def test_a_slot_more_than_there_are_orders_is_not_trained(tmp_path):
    name = "north_west>south_east>north_east>south_west"
    run = RunDirectory(tmp_path / "a", SearchConfig)
    with run.locked():
        found = Search(run, replace(TINY, searcher="fixed", orders=(name,), confirm=0), threads=1)
        list(found.advance())
        assert len(found.executor.pool.slots) == 1
        found.close()


def test_without_warm_start_every_training_is_from_scratch(whole):
    assert all(r["start"] == "" for r in table(whole))


def test_halving_goes_on_with_the_best(tmp_path):
    found = search(tmp_path / "a", replace(TINY, searcher="halving", n_workflows=9, total_episodes=2000, confirm=0))
    promoted = [r.member for r in found.results if r.member.rung == 1]
    assert promoted
    assert all(not m.start and m.updates == 3 * TINY.updates_per_order for m in promoted)


def test_halving_is_judged_and_confirmed_at_one_budget(tmp_path):
    config = replace(TINY, searcher="halving", n_workflows=12, total_episodes=4000, max_episodes=3, confirm=1)
    found = search(tmp_path / "a", config)
    searched = [r.member for r in found.results if r.member.purpose == "search"]
    by_rung = {rung: {m.order for m in searched if m.rung == rung} for rung in range(4)}
    rung = max(rung for rung, orders in by_rung.items() if len(orders) >= 2)
    assert rung > 0
    assert set(found.ranked()) == by_rung[rung]
    later = [r for r in found.results if r.member.purpose != "search"]
    assert later
    assert all(r.updates == 3**rung * config.updates_per_order for r in later)


def test_the_searcher_is_not_asked_when_the_budget_is_spent(tmp_path, monkeypatch):
    from cavalcade.search import searchers

    fits = 0
    posterior = searchers.posterior

    def counted(*args, **options):
        nonlocal fits
        fits += 1
        return posterior(*args, **options)

    monkeypatch.setattr(searchers, "posterior", counted)
    found = search(tmp_path / "a", replace(TINY, n_workflows=100, total_episodes=230, confirm=0, parallel_orders=1))
    assert len(found.results) == 5
    assert found.updates == 25
    assert fits == 5  # one per proposal; asking in every update would be more than 20


def test_threshold_plateau_and_gate(tmp_path):
    rewarded = replace(TINY, workflow=REWARDED)
    stopped = search(tmp_path / "a", replace(rewarded, compliance_threshold=0.05, max_episodes=10, confirm=0))
    assert {r.stop for r in stopped.results} >= {"threshold"}
    assert stopped.used == sum(r.episodes for r in stopped.results)  # what was not used is given back
    tired = search(tmp_path / "b", replace(rewarded, patience=2, max_episodes=10, confirm=0))
    assert "plateau" in {r.stop for r in tired.results}
    gated = search(tmp_path / "c", replace(rewarded, compliance_threshold=1.0, gate=True, confirm=0))
    failed = [r.member.order for r in gated.results if not r.passed]
    assert len(set(failed)) == len(failed)  # no order that failed was asked for again
    assert len(observations(gated.config, gated.results)) == sum(r.passed for r in gated.results)


def test_scores_by_tail_play_no_further_games(tmp_path, monkeypatch):
    def refuse(*_):
        raise AssertionError("held-out games are played")

    monkeypatch.setattr("cavalcade.search.scoring.CpuScorer.score", refuse)
    found = search(tmp_path / "a", replace(TINY, score="tail"))
    assert all(r.score == r.tail and math.isnan(r.heldout) for r in found.results)
    assert any(r.compliance == 1 for r in found.results)
    assert {r.member.purpose for r in found.results} == {"search", "confirm", "control"}


def test_exhaustive_and_fixed(tmp_path):
    found = search(
        tmp_path / "a",
        replace(TINY, searcher="exhaustive", rounds=2, total_episodes=48 * 40, confirm=0, parallel_orders=8),
    )
    counts = [sum(r.member.order == i for r in found.results) for i in range(24)]
    assert counts == [2] * 24
    names = ("north_west>south_east>north_east>south_west", "south_west>north_east>south_east>north_west")
    fixed = search(tmp_path / "b", replace(TINY, searcher="fixed", orders=names, confirm=0))
    assert [fixed.orders[r.member.order] for r in fixed.results] == [GRIDWORLD.parse(name) for name in names]


def test_the_search_finds_the_order_that_pays(tmp_path):
    """The hidden order of the gridworld, or one that begins alike, in 16 of 24 possible trainings."""
    config = replace(
        TINY,
        task=Cage2Task(horizon=40),
        ppo=PPOConfig(num_envs=50, rollout_steps=40, hidden=(32,), learning_rate=0.01),
        n_workflows=16, max_episodes=60, total_episodes=200_000, parallel_orders=8, confirm=0,
    )  # fmt: skip
    found = search(tmp_path / "a", config, threads=2)
    best = found.orders[found.ranked()[0]]
    assert GRIDWORLD.text(best).split(">")[0] == "north_east"
    by_first = {}
    for r in found.results:
        by_first.setdefault(found.orders[r.member.order][0], []).append(r.heldout)
    assert max(by_first, key=lambda first: max(by_first[first])) == GRIDWORLD.names.index("north_east")
    assert all(r.compliance == 1 for r in found.results if not math.isnan(r.compliance))


def test_another_batch_is_trained_while_the_answer_is_open(tmp_path):
    """A margin that no interval clears after few trainings: as many batches as allowed, no more."""
    config = replace(TINY, confirm=3, confirm_batches=3, margin=0.5, n_workflows=4, controls=False)
    found = search(tmp_path / "a", config)
    confirmed = [r for r in found.results if r.member.purpose == "confirm"]
    assert found.batches == 3
    assert len(confirmed) == 3 * 3 * 2
    assert len({r.member.seed for r in confirmed}) == len(confirmed)
    search(tmp_path / "b", config, stop_at=22)
    search(tmp_path / "b", resume=True)
    assert table(tmp_path / "b") == table(tmp_path / "a")
    decided = search(tmp_path / "c", replace(config, confirm=8, margin=1e5))  # everything lies within that
    assert decided.batches == 1


@pytest.mark.parametrize("enforce", ["mask", "mask-true", "lagrangian", "reward", "none"])
def test_every_way_to_enforce_an_order_goes_on_exactly(tmp_path, enforce):
    config = replace(TINY, workflow=WorkflowConfig(enforce=enforce), confirm=0, n_workflows=4)
    whole = search(tmp_path / "whole", config)
    search(tmp_path / "run", config, stop_at=6)
    search(tmp_path / "run", resume=True)
    assert table(tmp_path / "run") == table(tmp_path / "whole")
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")
    compliance = [r.compliance for r in whole.results if not math.isnan(r.compliance)]
    if enforce.startswith("mask"):
        assert all(c == 1 for c in compliance)
    multipliers = [x for row in metrics(tmp_path / "whole") for x in row["multiplier"]]
    if enforce == "lagrangian":
        assert any(x for x in multipliers)
        assert all(r.bonus <= 0 for r in whole.results)
    else:
        assert all(x is None for x in multipliers)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"parallel_orders": 25}, "parallel_orders is 25; there are only 24 orders to train"),
        ({"searcher": "fixed", "orders": ("a",)}, "'a' in order 'a' is not a subtask"),
        ({"searcher": "fixed", "orders": ("north_west,south_east,north_east,south_west",) * 2}, "contains a duplicate"),
    ],
)
def test_bad_settings_leave_nothing_behind(tmp_path, change, words):
    with pytest.raises(ConfigError, match=words):
        search(tmp_path / "a", replace(TINY, **change))
    assert not (tmp_path / "a" / "config.yaml").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"total_episodes": 39}, "total_episodes is 39; one order takes 40"),
        ({"total_episodes": 79, "warm_start": "universal"}, "one order after the universal policy takes 80"),
        ({"ppo": PPOConfig(num_envs=8, rollout_steps=20, replay=1)}, "replay is 1"),
        ({"seed": 10**6}, "seed is 1000000; it must be below 1000000"),
        ({"target": "chess"}, "target is 'chess'"),
        ({"gate": True}, "gate without compliance_threshold"),
        ({"margin": 0.0}, "margin is 0.0; it must be above 0"),
        ({"confirm_batches": 0}, "confirm_batches is 0"),
        ({"evaluate_only": True}, "evaluate_only with warm start none and score heldout; it needs --warm-start"),
        ({"workflow": WorkflowConfig(open_until="removed")}, "open_until is given with gridworld"),
        ({"orders": ("x",)}, "they need --searcher fixed"),
        ({"searcher": "fixed"}, "searcher is fixed without orders"),
        ({"compliance_threshold": 1.5}, "compliance_threshold is 1.5"),
        ({"ucb_beta": -1.0}, "ucb_beta is -1.0"),
        ({"n_workflows": 0}, "n_workflows is 0"),
    ],
)
def test_bad_settings_are_refused_at_once(change, words):
    with pytest.raises(ConfigError, match=words):
        replace(TINY, **change)


def test_foreign_and_changed_runs_are_refused(whole, tmp_path):
    with pytest.raises(RunError, match="is the run of a search; resume with: cavalcade search --resume"):
        open_run(whole)
    shutil.copytree(whole, tmp_path / "run")
    file = tmp_path / "run" / "config.yaml"
    file.write_text(file.read_text().replace("n_workflows: 7", "n_workflows: 9"))
    before = (tmp_path / "run" / "search.csv").read_bytes()
    with pytest.raises(RunError, match="n_workflows 7 before, 9 now; restore it"):
        search(tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "search.csv").read_bytes() == before


def test_kill_in_the_middle(tmp_path):
    """kill -9 of the command, twice; it ends as one that was left alone."""
    arguments = [
        "search", "gridworld", "--n-workflows", "6", "--num-envs", "20", "--max-episodes", "100",
        "--parallel-orders", "3", "--confirm", "0", "--checkpoint-every", "5", "--threads", "1", "--quiet",
    ]  # fmt: skip
    assert command(*arguments, "--run", tmp_path / "whole").returncode == 0
    run = tmp_path / "run"
    again = [*arguments, "--run", str(run)]
    for kills in (1, 2):
        process = start(*again)
        while not checkpoints(run / "checkpoints") or int(checkpoints(run / "checkpoints")[-1].name) < 5 * kills:
            assert process.poll() is None
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        assert process.wait().returncode == -signal.SIGKILL
        assert not (run / "summary.json").exists()
        again = ["search", "--resume", str(run), "--quiet"]
    assert command(*again).returncode == 0
    assert table(run) == table(tmp_path / "whole")
    assert metrics(run) == metrics(tmp_path / "whole")
    summaries = [json.loads((p / "summary.json").read_text()) for p in (run, tmp_path / "whole")]
    assert summaries[0]["ranking"] == summaries[1]["ranking"]
