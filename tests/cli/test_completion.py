"""Completion in shells."""

import shutil
import subprocess

import pytest

from cavalcade.cli import VERBS
from cavalcade.cli.completion import REDS, bash, fish, zsh
from cavalcade.config.presets import recipe_names
from cavalcade.envs.cage2 import scenario

from .helpers import refused, run

needs_bash = pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("completion") / "cavalcade.bash"
    path.write_text(bash())
    return path


def test_the_verb_prints_scripts(capsys):
    for shell, make in (("bash", bash), ("zsh", zsh), ("fish", fish)):
        assert run(capsys, "completion", shell) == (0, make(), "")
    assert "shell is 'tcsh'; it must be one of bash, zsh, fish" in refused(capsys, "completion", "tcsh")


@needs_bash
def test_bash_accepts_the_script(script):
    subprocess.run(["bash", "-n", str(script)], check=True)


def completed(script, line, folder):
    """What bash offers for the last word of a command line, split at colons as bash does."""
    words = line.replace(":", " : ").split(" ") if ":" in line else line.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    show = "printf '%s\\n' \"${COMPREPLY[@]}\""
    code = f"source {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _cavalcade; {show}"
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True, cwd=folder)
    assert done.stderr == ""
    return done.stdout.split()


@needs_bash
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("cavalcade ", [*VERBS, "--help", "--version"]),
        ("cavalcade tr", ["train"]),
        ("cavalcade train c", ["cage2", "cyborg"]),
        ("cavalcade train g", ["gym:"]),
        ("cavalcade bench g", ["gpu", "gp"]),
        ("cavalcade train cage2 --learn", ["--learning-rate"]),
        ("cavalcade train cage2 --stale", []),
        ("cavalcade train gym:CartPole-v1 --stale", ["--staleness"]),
        ("cavalcade train cage2 --red ", ["bline", "meander", "sleep", "mixed"]),
        ("cavalcade train cage2 --precision ", ["fp32", "tf32", "bf16"]),
        ("cavalcade train mettagrid --precision ", ["fp32", "tf32", "bf16", "fp16"]),
        ("cavalcade train cage2 --recipe ", recipe_names()),
        ("cavalcade train --resu", ["--resume"]),
        ("cavalcade train --resume runs/", ["runs/one", "runs/other"]),
        ("cavalcade evaluate runs/o", ["runs/one", "runs/other"]),
        ("cavalcade evaluate one", []),
        ("cavalcade play --blue r", ["random", "react", "react-restore"]),
        ("cavalcade evaluate x --json sc", ["scores.json"]),
    ],
)
def test_bash_completes(script, tmp_path, line, expected):
    (tmp_path / "runs" / "one").mkdir(parents=True)
    (tmp_path / "runs" / "one" / "config.yaml").touch()
    (tmp_path / "runs" / "other").mkdir()
    (tmp_path / "scores.json").touch()
    assert sorted(set(completed(script, line, tmp_path))) == sorted(expected)


def test_zsh_runs_the_script_of_bash():
    head = zsh().removesuffix(bash()).splitlines()
    assert head[-1] == "bashcompinit"
    assert len(head) == 4


def test_fish_knows_verbs_targets_options_choices_and_runs():
    lines = fish().splitlines()
    for verb in VERBS:
        assert any(line.startswith(f"complete -c cavalcade -n __fish_use_subcommand -a {verb} ") for line in lines)
    assert any("'train gym:*'" in line and "-l staleness" in line for line in lines)
    assert any("'train cage2*'" in line and "-l red -x -a 'bline meander sleep mixed'" in line for line in lines)
    assert set(REDS) == set(scenario.REDS)
    assert any("-l recipe" in line and "cage2-meander" in line for line in lines)
    assert any("-l resume -x -a '(__cavalcade_runs)'" in line for line in lines)
    assert all(line.count("'") % 2 == 0 or "\\'" in line for line in lines)


@pytest.mark.parametrize(("shell", "make"), [("zsh", zsh), ("fish", fish)])
def test_other_shells_accept_their_script(tmp_path, shell, make):
    if not shutil.which(shell):
        pytest.skip(f"needs {shell}")
    (tmp_path / "script").write_text(make())
    subprocess.run([shell, "-n", str(tmp_path / "script")], check=True)
