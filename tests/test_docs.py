"""What the documents say is so: links lead somewhere, commands run."""

import re
import shlex
from pathlib import Path

import pytest

from cavalcade.cli import VERBS, main

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def commands(page):
    """The commands in the code blocks of a page."""
    blocks = re.findall(r"^```\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.startswith(("cavalcade ", "$ cavalcade "))]


# What makes a command small; later options go before earlier ones.
SMALL = {
    "search": ["--n-envs", "5", "--max-episodes", "2", "--total-episodes", "30", "--n-workflows", "2", "--hidden", "8",
               "--score-episodes", "4", "--confirm", "1", "--rivals", "1", "--threads", "1", "--run", "RUN"],
    "train": ["--num-envs", "5", "--episodes", "20", "--hidden", "8", "--threads", "1", "--run", "RUN"],
    "evaluate": ["--episodes", "4"],
    "profile": ["--updates", "1", "--threads", "1"],
    "bench speedup": ["--help"],  # measured in tests/cli/test_search.py
}  # fmt: skip


@pytest.mark.parametrize("command", commands("docs/coming-from.md"))
def test_commands_for_newcomers_run(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    args = shlex.split(command)[1:]
    small = next(options for verb, options in SMALL.items() if args[: len(verb.split())] == verb.split())
    with pytest.raises(SystemExit) as stop:
        main([*args, *(str(tmp_path / "run") if option == "RUN" else option for option in small)])
    assert not stop.value.code, capsys.readouterr().err


def test_every_command_in_the_documents_exists():
    found = [command for page in PAGES for command in commands(page.relative_to(ROOT))]
    assert len(found) > 20
    for command in found:
        assert command.split()[1] in VERBS or command.split()[1].startswith("-"), command
