"""`cavalcade play`: trained policies, scripted Blues and a person, as a user sees them."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

import cavalcade
from cavalcade.envs.cage2.scenario import ACTIONS

from .helpers import refused, run

TINY = {"num_envs": 8, "hidden": (8,), "threads": 1, "progress": False}
HERE = {"backend": "serial"}
BEST = re.compile(r"^ {8}((?:\S.*?) [\d.]+%(?:,  .*? [\d.]+%){0,2});  value (-?[\d.]+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two policies that see extras."""
    path = tmp_path_factory.mktemp("runs") / "a"
    settings = {"red": "meander", "horizon": 12, "rollout_steps": 12, "extras": ("scans", "time"), "policies": 2}
    return cavalcade.train("cage2", **settings, **TINY, episodes=16, run=path).path


@pytest.fixture(scope="module")
def tiny_run(tmp_path_factory):
    """Trains on an environment for two updates."""

    def make(target, **options):
        path = tmp_path_factory.mktemp("runs") / "gym"
        settings = {"rollout_steps": 8, "steps": 128, "minibatches": 1}
        return cavalcade.train(target, **settings, **TINY, **options, run=path).path

    return make


def test_a_run_is_watched_with_its_extras_and_explained(capsys, trained):
    status, out, _ = run(capsys, "play", trained)
    assert status == 0
    assert re.search(r"/a at update 2, greedy, policy \d of 2, the best in validation\n", out)
    assert out.count("\nstep ") == 13
    assert out.splitlines()[-1].startswith("policy against meander: 12 steps, return ")
    told = BEST.findall(out)
    assert len(told) == 12
    taken = [line.removesuffix(" (failed)") for line in re.findall(r"^  Blue  (.*)$", out, re.MULTILINE)][1:]
    for action, (best, _) in zip(taken, told, strict=True):
        names, chances = zip(*re.findall(r"(?:^|,  )(.*?) ([\d.]+)%", best), strict=True)
        assert names[0] == action
        assert set(names) <= set(ACTIONS)
        assert sorted(map(float, chances), reverse=True) == list(map(float, chances))


def test_every_way_to_name_a_run(capsys, trained):
    found = run(capsys, "play", trained, "--member", "1")
    assert "policy 1 of 2\n" in found[1]
    for args in ((f"--run={trained}",), ("--run", trained), ("cage2", "--run", trained), ("--no-sampled", trained)):
        assert run(capsys, "play", *args, "--member", "1") == found
    newest = max((trained / "checkpoints").iterdir())
    assert run(capsys, "play", newest, "--member", "1")[1] == found[1]


def test_the_game_of_a_run_can_be_changed(capsys, trained):
    args = ("play", trained, "--member", "0", "--sampled", "--seed", "3")
    given = ("--red", "bline", "--horizon", "5", "--green")
    status, out, _ = run(capsys, *args, *given)
    assert status == 0
    assert "sampled" in out.splitlines()[0]
    assert "  Green " in out
    assert out.splitlines()[-1].startswith("policy against bline: 5 steps, return ")
    assert run(capsys, *args, *given)[1] == out
    assert run(capsys, *args[:-1], "4", *given)[1] != out


def test_an_order_that_is_enforced_on_the_true_state_is_explained_too(capsys, tmp_path):
    """The mask needs the state of the game: repairs that it forbids are never among the best."""
    settings = {"horizon": 10, "rollout_steps": 10, "episodes": 8, "enforce": "mask-true"}
    path = cavalcade.train("cage2", order="user_priority", **settings, **TINY, run=tmp_path / "a").path
    status, out, _ = run(capsys, "play", path, "--horizon", "20")
    assert status == 0
    assert out.splitlines()[0].endswith(", order user_priority")
    assert len(BEST.findall(out)) == 20


def test_bad_input_is_answered_in_one_line(capsys, trained, tmp_path):
    for args, words in (
        (("nowhere",), ("'nowhere' is neither a target nor a run", "cage2, mettagrid, a run")),
        ((tmp_path,), ("is neither a run", "nor a checkpoint")),
        ((trained, "--run", trained), ("two runs are given",)),
        (("--run",), ("--run has no value; write --run RUN",)),
        (("cage2", "--run", "--sampled"), ("--run has no value",)),
        ((trained, "--blue", "react"), ("blue is react with the run", "leave one out")),
        ((trained, "--member", "7"), ("member is 7", "has 2")),
        ((trained, "--order", "user_priority"), ("is not a search",)),
        ((trained, "--horizon", "0"), ("horizon is 0", "at least 1")),
        (("--member", "1"), ("member is 1 without a run", "cavalcade play RUN")),
        (("--sampled",), ("sampled is True without a run",)),
        (("--blue", "react", "--show-red"), ("show_red is given without --blue human",)),
        (("mettagrid", "--run", trained), ("was trained on cage2", f"with: cavalcade play {trained}")),
        (("gym:CartPole-v1",), ("no run is given", "gym:NAME with: cavalcade play RUN")),
        (("gym:CartPole-v1", "--run", trained), ("was trained on cage2, not on gym:NAME;", f"play {trained}")),
    ):
        err = refused(capsys, "play", *args)
        for word in words:
            assert word in err, args


def test_a_person_does_not_see_what_red_does(capsys, monkeypatch):
    def played(*args):
        typed = iter(["", "", "", "q"])
        monkeypatch.setattr("builtins.input", lambda _: next(typed))
        return run(capsys, "play", "cage2", "--blue", "human", "--green", *args)[1]

    fair, told = played(), played("--show-red")
    for secret in ("Red holds", "  Red   ", "  Green ", "DiscoverRemoteSystems"):
        assert secret not in fair
        assert secret in told
    for known in ("Blue sees", "believes", "decoys", "User0", "reward"):
        assert known in fair
    assert re.search(r"User0 +privileged", told)
    assert not re.search(r"User0 +privileged", fair)


def test_gymnasium_renders_itself(capsys, tiny_run):
    path = tiny_run("gym:FrozenLake-v1", **HERE, env_options=("is_slippery=false",))
    status, out, _ = run(capsys, "play", path, "--steps", "6")
    assert status == 0
    lines = out.splitlines()
    assert lines[0].endswith("at update 2, greedy")
    steps = int(re.match(r"(\d+) steps, return", lines[-1])[1])
    assert out.count("\x1b[41m") == steps + 1  # where the player stands, in every picture
    assert len(re.findall(r"^step \d+   action \d   reward ", out, re.MULTILINE)) == steps
    assert len(re.findall(r"^  \d [\d.]+%,  \d [\d.]+%,  \d [\d.]+%;  value ", out, re.MULTILINE)) == steps
    assert run(capsys, "play", path, "--steps", "6")[1] == out
    status, out, _ = run(capsys, "play", path, "--steps", "2", "--render", "none")
    assert status == 0
    assert "  observation " in out
    assert "\x1b" not in out
    assert "render is rgb_array without a terminal" in refused(capsys, "play", path, "--render", "rgb_array")


def test_the_last_picture_is_that_of_the_last_step(capsys, tiny_run):
    """The next episode begins in the same step; what is shown is still the end of the one that is watched."""
    path = tiny_run("gym:tests.vector.games:Drawn-v0", **HERE)
    status, out, _ = run(capsys, "play", path)
    assert status == 0
    assert re.findall(r"^drawn: (\d)$", out, re.MULTILINE) == ["0", "1", "2", "3"]
    assert out.splitlines()[-1].endswith("terminated")


def test_pictures_are_drawn_on_a_terminal(capsys, tiny_run, monkeypatch):
    path = tiny_run("gym:tests.vector.games:Drawn-v0", **HERE)
    for name, value in {"COLUMNS": "60", "LINES": "24", "COLORTERM": "truecolor", "TERM": "xterm-256color"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    status, out, _ = run(capsys, "play", path, "--render", "rgb_array", "--delay", "0")
    assert status == 0
    for step in range(4):
        level = 10 * step
        assert f"\x1b[38;2;{level};{level};{level};48;2;{level};{level};{level}m▀" in out
    assert re.search(r"3 steps, return [\d.]+, terminated\n$", out)


def test_without_a_picture_there_are_numbers(capsys, tiny_run):
    path = tiny_run("gym:CartPole-v1", **HERE)
    status, out, _ = run(capsys, "play", path, "--steps", "3")
    assert status == 0
    assert len(re.findall(r"^  observation -?[\d.]+, -?[\d.]+, -?[\d.]+, -?[\d.]+$", out, re.MULTILINE)) == 4
    assert out.splitlines()[-1] == "3 steps, return 3.00, not over yet"
    assert "render is ansi; CartPole-v1 has human, rgb_array" in refused(capsys, "play", path, "--render", "ansi")
    if importlib.util.find_spec("pygame") is None:
        err = refused(capsys, "play", path, "--render", "human")
        assert "CartPole-v1 cannot be rendered: pygame is not installed" in err


def test_points_and_several_choices_are_explained(capsys, tiny_run):
    status, out, _ = run(capsys, "play", tiny_run("gym:tests.vector.games:Steered-v0", **HERE), "--steps", "2")
    assert status == 0
    assert re.search(r"^  means -?[\d.]+(, -?[\d.]+)*;  value ", out, re.MULTILINE)
    status, out, _ = run(capsys, "play", tiny_run("gym:tests.vector.games:Nested-v0", **HERE), "--steps", "2")
    assert status == 0
    parts = re.search(r"^  (.*);  value ", out, re.MULTILINE)[1].split(" | ")
    assert [len(part.split(",  ")) for part in parts] == [3, 3, 2, 2, 2]
    for part in parts[2:]:
        assert sum(float(x) for x in re.findall(r"([\d.]+)%", part)) == pytest.approx(100, abs=0.2)


def test_environments_of_ones_own_are_watched(capsys, tiny_run, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    path = tiny_run("env:own_environment:Corridor")
    status, out, _ = run(capsys, "play", path, "--steps", "2")
    assert status == 0
    assert out.count("  observation ") == 3
    assert "environments of env: are not rendered" in refused(capsys, "play", path, "--render", "ansi")


def test_a_game_is_written_as_a_page(capsys, trained, tmp_path):
    _, shown, _ = run(capsys, "play", trained, "--member", "1", "--seed", "4")
    status, out, _ = run(capsys, "play", trained, "--member", "1", "--seed", "4", "--html", tmp_path / "game.html")
    assert (status, out) == (0, f"wrote {tmp_path / 'game.html'}; open it in a browser\n")
    page = (tmp_path / "game.html").read_text()
    game = json.loads(re.search(r'id="game">(.*?)</script>', page, re.DOTALL)[1])
    assert f"return {game['steps'][-1]['total']}\n" in shown
    assert game["meta"]["blue"].endswith("policy 1 of 2")
    run(capsys, "play", "cage2", "--blue", "react-restore", "--horizon", "5", "--html", tmp_path / "scripted.html")
    assert '"blue":"react-restore"' in (tmp_path / "scripted.html").read_text()
    assert "html is given with --blue human" in refused(
        capsys, "play", "--blue", "human", "--html", tmp_path / "x.html"
    )
    assert "cannot be written" in refused(capsys, "play", "cage2", "--html", tmp_path / "no" / "folder.html")
