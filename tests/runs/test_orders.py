"""Trainings under an order: resumed, recorded, deployed on plain games and exported."""

import csv
import json
import math
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest

from cavalcade.cli import main
from cavalcade.config.workflow import WorkflowConfig
from cavalcade.core.errors import ConfigError
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.envs.cage2.scenario import ACTIONS, HOSTS
from cavalcade.runs.checkpoint import checkpoints
from cavalcade.runs.directory import open_run
from cavalcade.runs.export import check_onnx, export_onnx
from cavalcade.runs.export_order import mask_words, masks_itself
from cavalcade.runs.policies import load_policy
from cavalcade.targets.cage2.shared import order_mask

from ..cli.helpers import refused
from ..cli.helpers import run as cavalcade
from .helpers import SMALL, left_behind, train

ORDER = ("user", "defender", "enterprise", "op_server", "op_host")  # user_priority
KIND = {name: name.rstrip("0123456789").lower() for name in HOSTS}
REPAIRS = np.array([name.startswith(("Remove ", "Restore ")) for name in ACTIONS])
RUNS = {
    "mask": (),
    "removed": ("--open-until", "removed"),
    "mask-true": ("--enforce", "mask-true"),
    "lagrangian": ("--enforce", "lagrangian"),
    "none": ("--enforce", "none"),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Small runs under user_priority by the command line, each made when it is first asked for."""
    folder, made = tmp_path_factory.mktemp("runs"), {}

    def get(name):
        if name not in made:
            with pytest.raises(SystemExit) as stop:
                main([*SMALL, "--order", "user_priority", *RUNS[name], "--quiet", "--run", str(folder / name)])
            assert not stop.value.code
            made[name] = folder / name
        return made[name]

    return get


def forbidden(table, until="restored"):
    """The repairs that the order forbids, by the names of things alone: shares nothing with the mask.

    table: 52 values, four per host, the last two of which say what Blue believes of it: no compromise (0, 0), unknown
    (1, 0), user (0, 1), privileged (1, 1).
    """
    compromised = {(0, 1), (1, 1)} if until == "removed" else {(1, 0), (0, 1), (1, 1)}
    believed = {name: tuple(table[4 * i + 2 : 4 * i + 4].astype(int)) for i, name in enumerate(HOSTS)}
    shown = {KIND[name] for name in HOSTS if name != "User0" and believed[name] in compromised}
    if len(shown) < 2:
        return np.zeros(len(ACTIONS), bool)
    first = next(kind for kind in ORDER if kind in shown)
    return REPAIRS & np.array([KIND.get(name.partition(" ")[2]) != first for name in ACTIONS])


def episode_stats(path, name):
    """A column of the episodes of a run."""
    with (path / "episodes.csv").open(newline="") as file:
        return np.array([float(row[name]) for row in csv.DictReader(file)])


def metrics(path):
    return [json.loads(row) for row in (path / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("enforce", ["mask", "lagrangian"])
def test_a_stopped_run_under_an_order_ends_as_if_it_had_not_been(runs, tmp_path, enforce):
    whole = runs(enforce)
    config = open_run(whole).config()
    assert (config.order, config.workflow.enforce) == ("user_priority", enforce)
    outcome = train(tmp_path / "run", config, stop_at=17)  # in the midst of games
    assert not outcome.finished
    assert checkpoints(tmp_path / "run" / "checkpoints")[-1].name == "00000017"
    assert train(tmp_path / "run", resume=True).finished
    assert left_behind(tmp_path / "run") == left_behind(whole)


def test_multipliers_move_with_compliance_and_are_recorded(runs):
    rows = metrics(runs("lagrangian"))
    multipliers = np.array([row["multiplier"][0] for row in rows])
    assert len(set(multipliers.tolist())) > 5
    with (runs("lagrangian") / "episodes.csv").open(newline="") as file:
        episodes = list(csv.DictReader(file))
    value = 0.0
    for update, found in enumerate(multipliers, 1):
        mine = [(float(e["compliance"]), float(e["counted"])) for e in episodes if int(e["update"]) == update]
        counted = sum(n for _, n in mine)
        if counted:
            kept = sum(c * n for c, n in mine if n)
            value = min(max(value + 0.5 * (0.97 - kept / counted), 0.0), 10.0)
        assert found == pytest.approx(value, abs=1e-4)
    assert "multiplier" not in metrics(runs("mask"))[0]


def test_multipliers_of_several_policies_are_their_own(runs, tmp_path):
    """Two policies side by side have the multipliers that each has alone."""
    config = open_run(runs("lagrangian")).config()
    train(tmp_path / "two", replace(config, policies=2))
    rows = metrics(tmp_path / "two")
    assert [row["multiplier"][0] for row in rows] == [row["multiplier"][0] for row in metrics(runs("lagrangian"))]
    assert [row["multiplier"][0] for row in rows] != [row["multiplier"][1] for row in rows]


def test_episodes_have_a_compliance(runs):
    kept = episode_stats(runs("mask"), "compliance")
    decided = episode_stats(runs("mask"), "counted") > 0
    assert (kept[decided] == 1).all()
    assert np.isnan(kept[~decided]).all()
    assert decided.sum() > 50
    assert (episode_stats(runs("mask"), "bonus") == 0).all()
    loose = episode_stats(runs("none"), "compliance")
    assert np.nanmean(loose) < 0.9
    true = episode_stats(runs("mask-true"), "true_compliance")
    assert (true[~np.isnan(true)] == 1).all()
    assert (episode_stats(runs("lagrangian"), "bonus") <= 0).all()


@pytest.mark.parametrize("greedy", [True, False])
@pytest.mark.parametrize(("name", "until"), [("mask", "restored"), ("removed", "removed")])
def test_a_loaded_policy_keeps_its_order_in_plain_games(runs, name, until, greedy):
    saved = load_policy(runs(name))
    assert (saved.order, saved.mask.by_truth) == ("user_priority", False)
    env, player = Cage2(100, red="meander", stream="heldout", seed=5), saved.runner(0, greedy=greedy)
    free = replace(saved, order="", mask=None).runner(0, greedy=greedy)
    env.reset()
    bound, repairs, broken = 0, 0, 0
    for _ in range(60):
        block = np.array([forbidden(table, until) for table in env.buffers.observation])
        would, actions = free(env).copy(), player(env).copy()
        assert not block[np.arange(100), actions].any()
        assert env.buffers.action_mask[:, REPAIRS].all()  # the games themselves forbid nothing
        broken += block[np.arange(100), would].sum()
        unbound = ~block.any(axis=1)
        if greedy:
            np.testing.assert_array_equal(actions[unbound], would[unbound])
        bound += (~unbound).sum()
        repairs += (REPAIRS[actions] & ~unbound).sum()
        env.step(actions)
    assert bound > 1000
    if not greedy:
        assert broken > 100
        assert repairs > 50


def test_without_a_mask_nothing_is_forbidden_at_play(runs):
    for name in ("lagrangian", "none"):
        assert load_policy(runs(name)).mask is None
    assert load_policy(runs("mask-true")).mask.by_truth


def random_inputs(rng, n):
    """Observations of which every kind of host is compromised in some, with all actions possible."""
    bits = (rng.random((n, 52)) < rng.choice([0.02, 0.1, 0.5], size=(n, 1))).astype(np.float32)
    return {"observation": bits, "action_mask": np.ones((n, len(ACTIONS)), bool)}


@pytest.mark.parametrize(("name", "until"), [("mask", "restored"), ("removed", "removed")])
def test_an_exported_policy_applies_the_mask_itself(runs, tmp_path, name, until):
    saved = load_policy(runs(name))
    assert masks_itself(saved)
    export_onnx(saved, 0, tmp_path / "bound.onnx")
    export_onnx(replace(saved, order="", mask=None), 0, tmp_path / "free.onnx")
    assert check_onnx(saved, 0, tmp_path / "bound.onnx") < 1e-4
    bound, free = (onnxruntime.InferenceSession(str(tmp_path / f"{which}.onnx")) for which in ("bound", "free"))
    inputs = random_inputs(np.random.default_rng(1), 3000)
    block = np.array([forbidden(table, until) for table in inputs["observation"]])
    log_probability, value, action = map(np.asarray, bound.run(None, inputs))
    unmasked, same_value, _ = map(np.asarray, free.run(None, inputs))
    rows = np.arange(len(block))
    assert not block[rows, action].any()
    np.testing.assert_array_equal(log_probability < -1e20, block)  # exactly what is forbidden is impossible
    np.testing.assert_array_equal(action, np.where(block, -np.inf, unmasked).argmax(axis=1))
    nothing = ~block.any(axis=1)
    np.testing.assert_array_equal(action[nothing], unmasked[nothing].argmax(axis=1))
    np.testing.assert_array_equal(log_probability[nothing], unmasked[nothing])
    np.testing.assert_array_equal(value, same_value)
    assert 0.1 < nothing.mean() < 0.9
    only = np.zeros_like(inputs["action_mask"])
    only[:, [0, 3]] = True  # what the environment forbids stays forbidden
    assert set(np.asarray(bound.run(["action"], inputs | {"action_mask": only})[0]).tolist()) <= {0, 3}


def test_each_policy_of_an_order_masks_by_every_order(runs, tmp_path):
    """The graph and the mask at play agree for orders other than that of the run."""
    saved = load_policy(runs("mask"))
    inputs = random_inputs(np.random.default_rng(2), 1000)
    for order in (CAGE2.orders()[k] for k in (0, 37, 77, 119)):
        text = CAGE2.text(order)
        other = replace(saved, order=text, mask=order_mask(text, saved.config.workflow))
        export_onnx(other, 0, tmp_path / "p.onnx")
        found = np.asarray(onnxruntime.InferenceSession(str(tmp_path / "p.onnx")).run(None, inputs)[0])
        allowed = inputs["action_mask"].copy()
        other.mask.restrict(inputs["observation"], allowed)
        np.testing.assert_array_equal(found > -1e20, allowed)


def test_export_says_how_an_order_is_enforced(capsys, runs, tmp_path):
    words = {
        "mask": "its mask is part of the graph; pass action_mask as the environment gives it",
        "mask-true": "enforced on the true state, which the graph does not see; "
        "remove what it forbids from action_mask",
        "lagrangian": "not enforced by a mask; no further masking is needed",
        "none": "not enforced by a mask; no further masking is needed",
    }
    for name, expected in words.items():
        assert mask_words(load_policy(runs(name))) == expected
        status, out, _ = cavalcade(capsys, "export", runs(name), "--onnx", tmp_path / "p.onnx")
        assert status == 0
        assert out.splitlines()[-1] == f"order user_priority: {expected}"


def test_a_graph_without_its_mask_leaves_the_mask_alone(runs, tmp_path):
    saved = load_policy(runs("mask-true"))
    assert not masks_itself(saved)
    export_onnx(saved, 0, tmp_path / "p.onnx")
    log_probability = onnxruntime.InferenceSession(str(tmp_path / "p.onnx")).run(
        None, random_inputs(np.random.default_rng(3), 500)
    )[0]
    assert (np.asarray(log_probability) > -1e20).all()


def test_a_mask_on_the_true_state_needs_games_that_show_it(runs):
    from cavalcade.envs.gridworld import Gridworld

    env = Gridworld(2)
    env.reset()
    with pytest.raises(ConfigError, match="enforce is mask-true; this policy needs the true state"):
        load_policy(runs("mask-true")).mask(env)


def test_what_is_refused(capsys, tmp_path):
    where = ("--run", tmp_path / "x")
    assert "lacks defender" in refused(capsys, *SMALL, *where, "--order", "user")
    err = refused(capsys, *SMALL, *where, "--open-until", "removed")
    assert "open_until is given without an order; name one with --order" in err
    err = refused(capsys, *SMALL, *where, "--order", "reverse", "--enforce", "mask", "--alpha", "1")
    assert "alignment rewards need --enforce reward" in err
    assert not (tmp_path / "x" / "config.yaml").exists()


def test_settings_of_a_run_come_back(runs):
    assert load_policy(runs("removed")).config.workflow == WorkflowConfig(open_until="removed")
    assert open_run(runs("lagrangian")).config().workflow == WorkflowConfig(enforce="lagrangian")
    assert math.isfinite(episode_stats(runs("none"), "task").mean())
