"""Options of 0.1 that have another name now: they still work as typed and in recipes, and help no longer shows them."""

import re

import pytest
import yaml

from cavalcade.config import renamed

from .helpers import run

# Of each old name and value: a command, where it stood in a recipe, where the setting is now, and what it is set to.
CAGE2, GYM, METTAGRID, SEARCH = "train cage2", "train gym:CartPole-v1", "train mettagrid", "search gridworld"
OLD = [
    (CAGE2, "ppo", "update_steps", 50, "ppo.rollout_steps", 50),
    (GYM, "ppo", "update_steps", 32, "ppo.rollout_steps", 32),
    (SEARCH, "ppo", "update_steps", 20, "ppo.rollout_steps", 20),
    (CAGE2, "ppo", "accumulate", 2, "ppo.grad_accum", 2),
    (CAGE2, "ppo", "horizon_ends", True, "ppo.timeout_is_terminal", True),
    (METTAGRID, "ppo", "horizon_ends", True, "ppo.timeout_is_terminal", True),
    (CAGE2, "ppo", "rows", "distinct", "ppo.dedup", "on"),
    (CAGE2, "ppo", "rows", "plain", "ppo.dedup", "off"),
    (CAGE2, "ppo", "rows", "auto", "ppo.dedup", "auto"),
    (CAGE2, "ppo", "learner", "fused", "ppo.engine", "cpu"),
    (CAGE2, "ppo", "learner", "torch", "ppo.engine", "torch"),
    (CAGE2, "ppo", "learner", "auto", "ppo.engine", "auto"),
    (CAGE2, "", "keep", 9, "keep_checkpoints", 9),
    (GYM, "", "keep", 9, "keep_checkpoints", 9),
    (METTAGRID, "", "keep", 9, "keep_checkpoints", 9),
    (SEARCH, "", "keep", 9, "keep_checkpoints", 9),
    (METTAGRID, "", "replay_every", 7, "record_every", 7),
    (f"{GYM} --backend ray", "", "correction", False, "host.vtrace", False),
    (SEARCH, "", "together", 5, "parallel_orders", 5),
    (SEARCH, "", "engine", "ray", "executor", "ray"),
    (SEARCH, "", "engine", "local", "executor", "local"),
]
HELPS = ("train cage2", "train gym:CartPole-v1", "train mettagrid", "search", "evaluate", "bench gp", "tune", "profile")


def at(config, path):
    """A setting by its path."""
    for name in path.split("."):
        config = getattr(config, name)
    return config


def spellings(name, value):
    """How an option may be typed."""
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [[f"--{'no-' * (not value)}{flag}"], [f"--{'no-' * (not value)}{name}"]]
    return [[f"--{flag}", str(value)], [f"--{flag}={value}"], [f"--{name}", str(value)]]


def test_an_old_name_is_answered_with_the_new_one(capsys):
    args = ("verify", "--task", "forage", "--rows", "distinct", "--no-correction", "--keep=3")
    status, _, err = run(capsys, *args)
    assert status == 2
    assert err.splitlines()[:3] == [
        "--rows is called --dedup now; the old name goes in 0.3",
        "--no-correction is called --no-vtrace now; the old name goes in 0.3",
        "--keep is called --keep-checkpoints now; the old name goes in 0.3",
    ]
    assert "goes in 0.3" not in run(capsys, *args, "--quiet")[2]


@pytest.mark.parametrize(("command", "_place", "name", "value", "path", "expected"), OLD)
def test_an_old_option_still_works(configured, command, _place, name, value, path, expected):
    for args in spellings(name, value):
        assert at(configured(*command.split(), *args), path) == expected, args


@pytest.mark.parametrize(
    ("command", "place", "name", "value", "path", "expected"), [case for case in OLD if case[0] != SEARCH]
)
def test_an_old_name_still_works_in_a_recipe(configured, tmp_path, command, place, name, value, path, expected):
    setting = {name: value}
    plain = {place: setting} if place else setting
    if "--backend ray" in command:
        plain["host"] = {"backend": "ray"}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(plain))
    args = command.removesuffix(" --backend ray").split()
    assert at(configured(*args, "--recipe", tmp_path / "recipe.yaml"), path) == expected


def test_every_old_name_is_covered():
    tested = {(name, value) for _, _, name, value, _, _ in OLD}
    names = {name for name, _ in tested}
    assert set(renamed._NAMES) - {"extras"} <= names
    for name, (_, values) in renamed._VALUES.items():
        assert {(name, value) for value in values} <= tested
    evaluated = {("engine", "cavalcade"), ("engine", "cyborg")}
    assert set(renamed._MEANINGS) <= tested | evaluated


def test_extras_are_two_things(configured, tmp_path):
    """Losses of MettaGrid, now auxiliary; and observation extras of CAGE-2, which keep their name."""
    (tmp_path / "recipe.yaml").write_text("extras: {contrastive_coef: 0.5}")
    assert configured(*METTAGRID.split(), "--recipe", tmp_path / "recipe.yaml").auxiliary.contrastive_coef == 0.5
    assert configured(*METTAGRID.split(), "--contrastive-coef", "0.5").auxiliary.contrastive_coef == 0.5
    assert configured(*CAGE2.split(), "--extras", "scans,time").task.extras == ("scans", "time")
    assert configured(*CAGE2.split(), "--extras=scans").task.extras == ("scans",)
    (tmp_path / "recipe.yaml").write_text("task: {extras: [scans]}")
    assert configured(*CAGE2.split(), "--recipe", tmp_path / "recipe.yaml").task.extras == ("scans",)


def test_where_a_policy_is_scored_was_an_engine(capsys):
    quick = ("evaluate", "sleep", "--episodes", "2", "--revisions", "head")
    now = run(capsys, *quick, "--simulator", "cavalcade")
    assert now[0] == 0
    for old in (("--engine", "cavalcade"), ("--engine=cavalcade",)):
        assert run(capsys, *quick, *old)[:2] == now[:2]
    assert "simulator is cyborg without --cyborg" in run(capsys, *quick, "--engine", "cyborg")[2]


def test_what_was_not_renamed_stays_as_it_is(configured):
    config = configured(*CAGE2.split(), "--engine", "torch", "--replay", "2", "--seed=3", "--no-normalise-returns")
    assert (config.ppo.engine, config.ppo.replay, config.seed, config.ppo.normalise_returns) == ("torch", 2, 3, False)


def test_new_names_in_a_recipe_take_the_place_of_old_ones(configured, tmp_path):
    """The command line comes after the recipe, whichever name each has."""
    (tmp_path / "recipe.yaml").write_text("ppo: {update_steps: 20}")
    args = (*CAGE2.split(), "--recipe", tmp_path / "recipe.yaml")
    assert configured(*args).ppo.rollout_steps == 20
    assert configured(*args, "--rollout-steps", "40").ppo.rollout_steps == 40
    assert configured(*args, "--update-steps", "40").ppo.rollout_steps == 40


@pytest.mark.parametrize("command", HELPS)
def test_help_shows_new_names_only(capsys, command):
    status, out, _ = run(capsys, *command.split(), "--help-all")
    assert status == 0
    assert "\x1b" not in out
    flags = set(re.findall(r"--[a-z][a-z-]*", out))
    assert len(flags) > 5
    old = {name for _, _, name, _, _, _ in OLD if name != "engine"}
    assert not flags & {f"--{no}{name.replace('_', '-')}" for name in old for no in ("", "no-")}
    assert not re.search(r"--engine \S*(local|ray|cavalcade|cyborg)", out)
