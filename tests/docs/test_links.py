"""Links of the documents lead somewhere, and the commands for newcomers run."""

import re
import shlex

import pytest
from tools.doc_blocks import ROOT, blocks, commands, pages

from cavalcade.cli import main

COMING_FROM = ROOT / "docs" / "coming-from.md"


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


FILE = re.compile(r"(?<![\w/.-])(?!runs/)[a-z]+/[\w/-]+\.(?:py|csv|md)\b")  # but not those of a run


@pytest.mark.parametrize("page", [page for page in pages() if page.name != "CHANGELOG.md"], ids=lambda page: page.stem)
def test_files_that_are_named_exist(page):
    for name in FILE.findall(page.read_text()):
        places = (ROOT, ROOT / "src" / "cavalcade", page.parent)
        assert any((place / name).exists() for place in places), name


# What makes a command small; later options go before earlier ones.
SMALL = {
    "search": ["--n-envs", "5", "--max-episodes", "2", "--total-episodes", "30", "--n-workflows", "2", "--hidden", "8",
               "--score-episodes", "4", "--confirm", "1", "--rivals", "1", "--threads", "1", "--run", "RUN"],
    "train": ["--num-envs", "5", "--episodes", "20", "--hidden", "8", "--threads", "1", "--run", "RUN"],
    "evaluate": ["--episodes", "4"],
    "profile": ["--updates", "1", "--threads", "1"],
    "bench speedup": ["--help"],  # measured in tests/cli/test_search.py
}  # fmt: skip


@pytest.mark.parametrize("command", [command.text for block in blocks(COMING_FROM) for command in commands(block)])
def test_commands_for_newcomers_run(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    args = shlex.split(command)[1:]
    small = next(options for verb, options in SMALL.items() if args[: len(verb.split())] == verb.split())
    with pytest.raises(SystemExit) as stop:
        main([*args, *(str(tmp_path / "run") if option == "RUN" else option for option in small)])
    assert not stop.value.code, capsys.readouterr().err
