"""Runs resumed with other settings: what changes, what is refused, and what is recorded."""

import json
import os
import shutil
import signal
from dataclasses import replace

import pytest

import cavalcade
from cavalcade.cli import main
from cavalcade.core.errors import ConfigError
from cavalcade.runs import directory, history
from cavalcade.runs.checkpoint import checkpoints
from cavalcade.runs.directory import open_run
from cavalcade.runs.history import read_history
from cavalcade.targets.cage2.config import Cage2Config
from cavalcade.targets.gym import GymConfig
from cavalcade.targets.mettagrid.config import MettagridConfig

from ..cli.helpers import refused, run
from ..processes import Process, command
from .helpers import SMALL_CONFIG, left_behind, train


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """A finished run of 20 updates."""
    path = tmp_path_factory.mktemp("runs") / "half"
    assert train(path, replace(SMALL_CONFIG, episodes=50)).finished
    return path


@pytest.fixture
def copy(half, tmp_path):
    shutil.copytree(half, tmp_path / "copy")
    return tmp_path / "copy"


def rates(path):
    rows = [json.loads(row) for row in (path / "metrics.jsonl").read_text().splitlines()]
    return [row["learning_rate"][0] for row in rows]


def test_a_finished_run_is_extended(copy):
    found = cavalcade.Run(copy).resume(episodes=100, progress=False)
    assert found.outcome.finished
    assert found.outcome.updates == 40
    assert found.config.episodes == 100
    rate = rates(copy)
    assert rate[19] == pytest.approx(0.002 / 20)  # the schedule of 20 updates …
    assert rate[20] == pytest.approx(0.002 * (1 - 20 / 40))  # … and over the new total
    (event,) = found.history()
    assert event["update"] == 20
    assert event["changes"] == {"episodes": [50, 100]}
    assert event["date"].startswith("20")


def test_an_extended_run_is_resumed_exactly(copy, tmp_path):
    shutil.copytree(copy, tmp_path / "other")
    options = {"episodes": 100, "learning_rate": 1e-3, "progress": False}
    cavalcade.Run(copy).resume(**options)
    stops = iter([False] * 7 + [True] + [False] * 99)
    cavalcade.Run(tmp_path / "other").resume(callbacks=[lambda _: next(stops)], **options)
    assert checkpoints(tmp_path / "other" / "checkpoints")[-1].name == "00000028"
    cavalcade.Run(tmp_path / "other").resume(progress=False)
    assert left_behind(tmp_path / "other") == left_behind(copy)
    assert len(read_history(tmp_path / "other")) == 1


def test_on_the_command_line(capsys, copy):
    args = ("train", "--resume", copy, "--episodes", "60", "--learning-rate", "1e-4", "--threads", "1")
    status, out, err = run(capsys, *args)
    assert status == 0, err
    assert "episodes 50 → 60 from update 20" in out
    assert "ppo.learning_rate 0.002 → 0.0001 from update 20" in out
    assert rates(copy)[20:] == pytest.approx([1e-4 * (1 - u / 24) for u in range(20, 24)], rel=1e-5)
    config = open_run(copy).config()
    assert (config.episodes, config.ppo.learning_rate) == (60, 1e-4)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--hidden 32", "hidden is 32; in {run} it is 16 and cannot change"),
        ("--num-envs 20", "num_envs is 20; in {run} it is 10"),
        ("--policies 2", "policies is 2; in {run} it is 1"),
        ("--engine torch", "engine is torch; in {run} it is auto"),
        ("--extras scans", "extras is scans; in {run} it is  and cannot change"),
        ("--red meander", "red is meander; in {run} it is bline"),
        ("--rollout-steps 50", "rollout_steps is 50"),
        ("--seed 1", "seed is 1"),
        ("--target gym:CartPole-v1", "unknown option --target"),
        ("--normalise-observations", "normalise_observations is True"),
    ],
)
def test_what_the_saved_state_depends_on_is_refused(capsys, copy, option, said):
    before = (copy / "config.yaml").read_text()
    err = refused(capsys, "train", "--resume", copy, *option.split())
    assert said.format(run=copy) in err
    if option.split()[0] in ("--hidden", "--extras"):
        assert err.endswith("cannot change, begin a new run\n")  # weights of another network do not fit
    else:
        assert option.startswith("--target") or f"start a new run from its weights with --init {copy}" in err
    assert (copy / "config.yaml").read_text() == before
    assert read_history(copy) == []


def test_a_budget_that_is_spent_is_refused(copy):
    with pytest.raises(ConfigError, match=r"episodes is 30, 12 updates; .* has already made 20, give more"):
        cavalcade.Run(copy).resume(episodes=30, progress=False)
    with pytest.raises(ConfigError, match="learnin_rate is not a setting; did you mean learning_rate"):
        cavalcade.Run(copy).resume(learnin_rate=1, progress=False)


def test_a_setting_edited_by_hand_is_recorded_too(copy):
    file = copy / "config.yaml"
    file.write_text(file.read_text().replace("episodes: 50", "episodes: 60"))
    assert train(copy, resume=True).updates == 24
    assert read_history(copy)[0]["changes"] == {"episodes": [50, 60]}


def test_settings_without_effect_on_results_change_nothing(copy, half):
    cavalcade.Run(copy).resume(keep_checkpoints=1, progress=False)
    assert left_behind(copy) == left_behind(half)
    assert read_history(copy)[0]["changes"] == {"keep_checkpoints": [3, 1]}
    assert open_run(copy).config().keep_checkpoints == 1


def die_after(writes, *args):
    """A command that is killed after some files of its change were written."""
    real, count = directory.write_whole, 0

    def dying(path, content):
        nonlocal count
        if count == writes:
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1
        real(path, content)

    directory.write_whole = history.write_whole = dying
    main(list(args))


@pytest.mark.parametrize("after", [0, 1])
def test_kill_between_any_two_writes_of_a_change(copy, after):
    """Before config.yaml, and between it and the history."""
    args = ["train", "--resume", str(copy), "--episodes", "60", "--quiet"]
    done = Process(die_after, after, *args).wait()
    assert done.returncode == -signal.SIGKILL
    assert open_run(copy).config().episodes == (50 if after == 0 else 60)
    assert train(copy, resume=True).updates == (20 if after == 0 else 24)
    assert [event["changes"] for event in read_history(copy)] == [{"episodes": [50, 60]}] * after
    assert not list(copy.glob(".writing-*")) or after == 0


def test_killed_after_a_change_before_the_next_checkpoint(copy):
    change = cavalcade.Run(copy).config
    path = open_run(copy)
    from cavalcade.runs.training import Training

    with path.locked():  # as far as a process comes that is killed in its first update
        Training(path, replace(change, episodes=60), resume=True, quiet=True)
    assert train(copy, resume=True).updates == 24
    assert [event["changes"] for event in read_history(copy)] == [{"episodes": [50, 60]}]


def test_what_may_change_exists():
    """Names in the lists of changeable settings are settings."""
    from cavalcade.config.io import flat
    from cavalcade.search.config import SearchConfig
    from cavalcade.targets.cyborg import CyborgConfig
    from cavalcade.targets.env import EnvConfig

    for kind in (Cage2Config, GymConfig, MettagridConfig, SearchConfig, CyborgConfig, EnvConfig):
        given = {"target": "env:x:y"} if kind is EnvConfig else {}
        if kind is CyborgConfig:
            from cavalcade.envs.cage2.task import Original

            given = {"original": Original(cyborg="/tmp")}
        known = flat(kind(**given))
        assert [name for name in kind.changeable if name not in known] == []


def test_more_restarts_as_the_error_advises(tmp_path):
    """A run that ran out of restarts goes on when it is allowed more."""
    (tmp_path / "failing.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Failing(CartPoleEnv):\n"
        "    count = 0\n"
        "    def step(self, action):\n"
        "        Failing.count += 1\n"
        "        if Failing.count == 3000:\n"
        "            raise RuntimeError('now and then')\n"
        "        return super().step(action)\n"
        "gymnasium.register('Failing-v0', entry_point=Failing, max_episode_steps=50)\n"
    )
    small = ["--num-envs", "4", "--rollout-steps", "64", "--hidden", "8", "--workers", "1", "--threads", "1", "--quiet"]
    args = ["gym:failing:Failing-v0", *small, "--max-restarts", "0", "--steps", "5120", "--run", "r"]
    first = command("train", *args, cwd=tmp_path)
    assert first.returncode == 2
    assert "--max-restarts" in first.stderr
    again = command("train", "--resume", "r", "--max-restarts", "9", "--quiet", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert read_history(tmp_path / "r")[0]["changes"] == {"host.max_restarts": [0, 9]}
