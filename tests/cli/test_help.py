"""Help: what people need first, all of it on demand, at once; stored pages that equal the dataclasses."""

import re
import shlex
import subprocess
import sys

import pytest

from cavalcade.cli import VERBS
from cavalcade.cli.bench import BENCHES
from cavalcade.cli.examples import COMMON, EXAMPLES
from cavalcade.cli.help import Page, render
from cavalcade.cli.pages import FILE, FIRST_WORDS, commands, page_of, stored
from cavalcade.cli.parse import values_of
from cavalcade.cli.write_pages import as_text, live
from cavalcade.config.presets import recipe_names

from .helpers import run


def test_stored_pages_equal_the_dataclasses():
    text = as_text([live(command) for command in commands()])
    assert text == FILE.read_text(), "options have changed: python -m cavalcade.cli.write_pages"


def test_every_verb_has_pages_and_examples():
    assert set(FIRST_WORDS) == set(VERBS)
    assert FIRST_WORDS["bench"] == tuple(BENCHES)
    assert all(len(EXAMPLES[verb]) >= 3 for verb in VERBS if verb != "bench")


LIGHT = """
import contextlib, io, sys
from cavalcade.cli import main
from cavalcade.cli.pages import commands
for command in ["", "bench", *commands()]:
    for flag in ("--help", "--help-all"):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            main([*command.split(), flag])
for shell in ("bash", "zsh", "fish"):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main(["completion", shell])
print(*(name for name in ("torch", "numba", "gymnasium", "numpy", "scipy", "ray") if name in sys.modules))
"""


def test_help_imports_nothing_that_takes_long():
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("\n", "")


def test_gymnasium_knows_the_environments_whoever_is_imported_first():
    code = "import {}, {}; import gymnasium; print('cavalcade/Cage2-v0' in gymnasium.registry)"
    for order in (("cavalcade", "gymnasium"), ("gymnasium", "cavalcade"), ("cavalcade", "gymnasium.spaces")):
        done = subprocess.run([sys.executable, "-c", code.format(*order)], capture_output=True, text=True, check=True)
        assert done.stdout == "True\n"


@pytest.mark.parametrize(
    "command", ["train cage2", "train gym:CartPole-v1", "train cyborg", "train mettagrid", "train env:a:B"]
)
def test_help_shows_the_road(capsys, command):
    status, out, _ = run(capsys, *command.split(), "--help")
    assert status == 0
    assert out.startswith(f"usage: cavalcade {command} [options]")
    flags = re.findall(r"^  (--[a-z-]+)", out, re.MULTILINE)
    assert 8 <= len(flags) <= 15
    assert "--resume" in flags
    assert "--target" not in flags
    assert len(re.findall(r"^  cavalcade ", out, re.MULTILINE)) == 3
    assert f"options: cavalcade {command} --help-all" in out
    _, everything, _ = run(capsys, *command.split(), "--help-all")
    all_flags = re.findall(r"^  (--[a-z-]+)", everything, re.MULTILINE)
    assert set(flags) < set(all_flags)
    assert f"All {len(all_flags)} options" in out
    assert "--target" not in all_flags
    assert {"--gamma", "--clip", "--gae-lambda"} <= set(all_flags)


def test_help_names_the_recipes_of_a_target(capsys):
    out = " ".join(run(capsys, "train", "cage2", "--help")[1].split())
    assert f"recipes: {', '.join(name for name in recipe_names() if name.startswith('cage2'))}" in out
    assert "mettagrid-guide" in run(capsys, "train", "mettagrid", "--help")[1]
    assert "recipes:" not in run(capsys, "train", "gym:CartPole-v1", "--help")[1]


def test_help_without_a_target_does_not_show_those_of_one(capsys):
    _, out, _ = run(capsys, "train", "--help")
    assert out.startswith("usage: cavalcade train TARGET [options]")
    assert "cage2, cyborg, gym:NAME, mettagrid, env:NAME" in " ".join(out.split())
    assert "--red" not in out
    assert "[cage2, cyborg] Budget of episodes" in out
    _, out, _ = run(capsys, "train", "--help-all")
    assert "[cage2, cyborg] Red agent" in out


def test_defaults_are_those_of_the_target(capsys):
    assert "Environments per policy. (default: 64)" in " ".join(run(capsys, "train", "gym:X", "--help")[1].split())
    everything = " ".join(run(capsys, "search", "gridworld", "--help-all")[1].split())
    assert "Steps per episode. (default: 40)" in everything


def test_resume_with_help_is_help(capsys):
    assert run(capsys, "train", "--resume", "/nowhere", "--help")[1].startswith("usage: cavalcade train TARGET")


def test_a_target_of_another_package_is_asked_itself():
    assert page_of("train", ["chess", "--help"]) is None
    assert page_of("train", ["gym:CartPole-v1", "-h"]).command == "train gym:CartPole-v1"
    assert page_of("record", ["runs/a", "--help"]).usage == "cavalcade record POLICY --out PATH [options]"
    assert page_of("record", ["--help"]).usage == "cavalcade record --cyborg PATH [options]"


def test_common_options_exist():
    known = {
        verb: {o.name for c, page in stored().items() if c.split()[0] == verb for o in page.options} for verb in VERBS
    }
    for command, names in COMMON.items():
        assert set(names) - {"resume"} <= known[command.split()[0]]


@pytest.mark.parametrize(
    "example", [e for examples in EXAMPLES.values() for e in examples if e.startswith("cavalcade ")]
)
def test_examples_are_understood(example):
    verb, *args = shlex.split(example.partition(" > ")[0])[1:]
    page = page_of(verb, args)
    if page is None:  # a run, which decides what the options are
        page, args = page_of(verb, []), args[1:]
    if "--resume" in args:
        assert args[args.index("--resume") + 1]
        return
    values_of(page.options, args[len(page.command.split()) - 1 :], page.command)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_help_fits_the_terminal(width):
    for page in stored().values():
        for line in render(page, True, width).splitlines():
            if not line.startswith(("  --", "  cavalcade", "usage", "  eval", "All", "  TARGET")):
                assert len(line) <= max(width, 62), line


def test_an_empty_page():
    assert render(Page("bench x", "", ()), False).startswith("usage: cavalcade bench x [options]")
