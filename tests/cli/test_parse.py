"""Arguments to settings, and what is said about those that do not fit."""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import pytest

from cavalcade.api import make_config
from cavalcade.cli.options import Positional, options_of
from cavalcade.cli.parse import check_folder, parse
from cavalcade.config.base import Settings, number, whole
from cavalcade.config.io import from_dict
from cavalcade.core.errors import ConfigError
from cavalcade.core.nearest import nearest
from cavalcade.targets.gym import GYM_PPO

from .helpers import refused
from .terminal import on_terminal


@dataclass(frozen=True)
class Inner(Settings):
    learning_rate: float = number(0.1, 0, 1)
    """Of the optimiser,
    on two lines."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths."""


@dataclass(frozen=True)
class Options(Settings):
    place: Positional[Path]
    """Where."""
    inner: Inner = field(default_factory=lambda: Inner(0.1, (32,)))
    count: int = whole(3, 1)
    """How many."""
    mode: Literal["slow", "fast"] | None = None
    """How."""
    names: tuple[str, ...] = ()
    """Of whom."""
    green: bool = False
    """Whether."""
    masks: bool = True
    """Whether too."""
    out: Path | None = None
    """Where to."""


def parsed(*args):
    return parse(Options, ["here", *args], "try")


@pytest.mark.parametrize(
    ("args", "name", "value"),
    [
        ("--count 5", "count", 5),
        ("--count=5", "count", 5),
        ("--count 1e3", "count", 1000),
        ("--count 2.5e10", "count", 25_000_000_000),
        ("--count 100_000", "count", 100_000),
        ("--count 5 --count 6", "count", 6),
        ("--mode fast", "mode", "fast"),
        ("--names a b --green", "names", ("a", "b")),
        ("--names a,b", "names", ("a", "b")),
        ("--names=a,b", "names", ("a", "b")),
        ("--names size=[1,2],b=3", "names", ("size=[1,2]", "b=3")),
        ("--names", "names", ()),
        ("--green", "green", True),
        ("--no-green", "green", False),
        ("--no-masks", "masks", False),
        ("--out x/y", "out", Path("x/y")),
        ("--learning-rate 1", "inner", Inner(1.0, (32,))),
        ("--learning_rate 0.5", "inner", Inner(0.5, (32,))),
        ("--hidden 8,8 --count 2", "inner", Inner(0.1, (8, 8))),
        ("--hidden 8 8", "inner", Inner(0.1, (8, 8))),
    ],
)
def test_values(args, name, value):
    found = parsed(*args.split())
    assert (getattr(found, name), found.place) == (value, Path("here"))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ("--lr 1", "unknown option --lr; did you mean --learning-rate?"),
        ("--learning 1", "unknown option --learning; did you mean --learning-rate?"),
        ("--coutn 1", "unknown option --coutn; did you mean --count"),
        ("--no-gren", "unknown option --no-gren; did you mean --green?"),
        ("-x", "unknown option -x; options are --learning-rate, --hidden, --count, --mode, --names, --green, --masks"),
        ("--count ten", "count is 'ten'; it must be a whole number of at least 1"),
        ("--count 2.5", "count is '2.5'; it must be a whole number of at least 1"),
        ("--count 1.25e1", "count is '1.25e1'; it must be a whole number of at least 1"),
        ("--out=", "out is empty; it must be a path"),
        ("--count 0", "count is 0; it must be a whole number of at least 1"),
        ("--count -1", "count is -1; it must be a whole number of at least 1"),
        ("--count", "--count has no value; write --count N"),
        ("--count --green", "--count has no value"),
        ("--learning-rate much", "learning_rate is 'much'; it must be a number from 0 to 1"),
        ("--learning-rate 1.5", "learning_rate is 1.5; it must be from 0 to 1"),
        ("--learning-rate nan", "learning_rate is nan; it must be from 0 to 1"),
        ("--hidden 64,x", "hidden is 'x'; it must be a whole number"),
        ("--mode medium", "mode is 'medium'; it must be one of slow, fast"),
        ("--green=3", "--green takes no value; use --green or --no-green"),
        ("count 3", "unexpected argument 'count'; write --count"),
        ("3", "unexpected argument '3'; cavalcade try --help shows the usage"),
        ("--target x", "unknown option --target; the target comes first, without a flag"),
    ],
)
def test_what_does_not_fit_is_named_with_what_would(args, said):
    with pytest.raises(ConfigError) as error:
        parsed(*args.split())
    assert str(error.value).startswith(said)


def test_what_is_missing_is_named():
    with pytest.raises(ConfigError, match=r"^PLACE missing; usage: cavalcade try PLACE \[options\]$"):
        parse(Options, [], "try")


def test_defaults_of_an_instance():
    default = Options(Path("there"), Inner(0.5), count=9)
    assert parse(Options, ["--hidden", "8"], "try", default) == Options(Path("there"), Inner(0.5, (8,)), count=9)


def test_an_option_knows_its_description_default_and_bounds():
    options = {option.name: option for option in options_of(Options)}
    rate = options["learning_rate"]
    assert (rate.help, rate.default, rate.low, rate.high) == ("Of the optimiser, on two lines.", 0.1, 0, 1)
    assert rate.path == ("inner", "learning_rate")
    assert options["mode"].choices == ("slow", "fast")
    assert options["masks"].spelt == "--no-masks"
    assert options["place"].required


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("lr", "learning_rate"), ("ent_coef", "entropy_coef"), ("epsiodes", "episodes"), ("n_steps", "rollout_steps"),
        ("max_grad_norm", "grad_clip"), ("ne", "num_envs"), ("total_timesteps", "episodes"), ("gama", "gamma"),
        ("gae", "gae_lambda"), ("clip_range", "clip"), ("n_envs", "num_envs"),
    ],
)  # fmt: skip
def test_names_of_other_trainers_abbreviations_and_slips_are_understood(typed, meant):
    names = (
        "episodes", "epochs", "learning_rate", "entropy_coef", "value_coef", "rollout_steps", "grad_clip", "num_envs",
        "gamma", "gae_lambda", "clip", "red", "seed",
    )  # fmt: skip
    assert nearest(typed, names)[0] == meant


def test_nothing_is_near_to_nonsense():
    assert nearest("wings", ["blue", "red", "seed"]) == []


# Every kind of mistake of the reports of new users, as typed.
MISTAKES = [
    ("train cage2 --gamma 1.5", "gamma is 1.5; it must be from 0 to 1"),
    ("train cage2 --lr 0.1", "unknown option --lr; did you mean --learning-rate?"),
    ("train cage2 --episodes ten", "episodes is 'ten'; it must be a whole number of at least 1"),
    ("train cage2 --episodes 0", "episodes is 0; it must be a whole number of at least 1"),
    ("train cage2 --learning-rate -1", "learning_rate is -1.0; it must be from 0 to 10"),
    ("train cage2 --red blue", "red is 'blue'; it must be one of bline, meander, sleep, mixed"),
    ("train cage2 --workers 2", "unknown option --workers; cage2 does not have it, but cyborg, gym:, mettagrid"),
    ("train gym:CartPole-v1 --env-options size", "env_options has 'size'; each must be name=value"),
    ("play --wings X", "unknown option --wings; cavalcade play --help-all lists the options"),
    ("export x", "nothing to write; give --onnx FILE, --file FILE or --agent FILE"),
    ("search cage2 --total-episodes few", "total_episodes is 'few'; it must be a whole number of at least 1"),
    ("tune cage2 --seconds soon", "seconds is 'soon'; it must be a number"),
]


@pytest.mark.parametrize(("command", "said"), MISTAKES)
def test_mistakes_in_a_pipe(capsys, command, said):
    assert refused(capsys, *command.split()).startswith(f"cavalcade {command.split()[0]}: {said}")


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_mistakes_on_a_terminal(encoding):
    """All in one process: imports take a second."""
    lines = [
        "from cavalcade.cli import main",
        f"for command in {[command for command, _ in MISTAKES]!r}:",
        "    try: main(command.split())",
        "    except SystemExit: pass",
    ]
    status, shown = on_terminal("-c", "\n".join(lines), module=False, PYTHONIOENCODING=encoding)
    assert status == 0
    lines = shown.splitlines()
    assert len(lines) == len(MISTAKES)
    for line, (command, said) in zip(lines, MISTAKES, strict=True):
        assert line.startswith(f"cavalcade {command.split()[0]}: {said}")


def test_files_that_cannot_be_written_are_refused_at_once(tmp_path):
    check_folder("json", None)
    check_folder("json", tmp_path / "a.json")
    assert not list(tmp_path.iterdir())
    (tmp_path / "old.json").write_text("kept")
    check_folder("json", tmp_path / "old.json")
    assert (tmp_path / "old.json").read_text() == "kept"
    for path, said in (
        (tmp_path / "no" / "a.json", "there is no folder"),
        (tmp_path, "a folder; name a file"),
        (Path("/proc/a.json"), "it cannot be written: "),
    ):
        if path.parent != Path("/proc") or os.path.isdir("/proc"):
            with pytest.raises(ConfigError, match=said):
                check_folder("json", path)


@pytest.mark.parametrize(
    "command",
    ["evaluate sleep --json {}", "profile cage2 --cprofile {}", "bench sim --json {}"],
)
def test_verbs_that_write_a_file_look_first(capsys, monkeypatch, tmp_path, command):
    monkeypatch.setattr("cavalcade.targets.cage2.Cage2Target.evaluate", None)  # nothing is played
    monkeypatch.setattr("cavalcade.targets.cage2.Cage2Target.prepare", None)
    file = Path("/proc/a.json")
    assert f"is {file}; it cannot be written: " in refused(capsys, *command.format(file).split())


def test_settings_of_a_recipe_and_the_command_line_are_checked_together(configured, tmp_path):
    """A recipe need not be complete: what it lacks may be given as an option."""
    (tmp_path / "r.yaml").write_text("ppo: {minibatches: 3}\nworkflow: {enforce: reward}\n")
    args = ("train", "cage2", "--recipe", tmp_path / "r.yaml", "--num-envs", "60", "--order", "reverse")
    config = configured(*args, "--alignment", "alpha-beta")
    assert (config.ppo.minibatches, config.ppo.num_envs, config.workflow.alpha) == (3, 60, 0.1)


def test_what_is_not_given_is_as_the_target_has_it(configured):
    """Not as the class of its settings has it: PPO on Gymnasium environments has defaults of its own."""
    ppo = configured("train", "gym:CartPole-v1", "--num-envs", "32").ppo
    assert ppo == replace(GYM_PPO, num_envs=32)
    assert make_config("gym:CartPole-v1", {"num_envs": 32}).ppo == ppo  # pyright: ignore — from Python too


def test_a_partial_recipe_is_completed_from_the_defaults_of_its_target(configured, tmp_path):
    (tmp_path / "r.yaml").write_text("ppo: {gamma: 0.9}\n")
    args = ("train", "gym:CartPole-v1", "--recipe", tmp_path / "r.yaml")
    assert configured(*args).ppo == replace(GYM_PPO, gamma=0.9)
    assert configured(*args, "--num-envs", "32").ppo == replace(GYM_PPO, gamma=0.9, num_envs=32)


def test_a_recipe_must_be_a_mapping(capsys, tmp_path):
    (tmp_path / "r.yaml").write_text("just words")
    assert "is not a mapping of settings" in refused(capsys, "train", "cage2", "--recipe", tmp_path / "r.yaml")


def test_parsing_is_the_same_as_plain_data():
    assert parsed("--count", "4") == from_dict(Options, {"place": Path("here"), "count": 4})
