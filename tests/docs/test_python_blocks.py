"""The Python blocks of the documents run, page by page, from top to bottom, with small budgets."""

import sys
import tempfile
from pathlib import Path

import pytest
from tools.doc_blocks import ROOT, blocks, pages

import cavalcade
from cavalcade import api

SMALL = {"episodes": 20, "num_envs": 10, "steps": 4096}
train, resume = api.train, api.Run.resume


def small_train(target, **settings):
    """A training with a small budget, whatever the page asks for."""
    small = {name: SMALL[name] for name in ("episodes", "num_envs")} if target == "cage2" else {"steps": SMALL["steps"]}
    folder = Path(tempfile.mkdtemp(dir=".")) / "run"  # default names have seconds, and these take less than one
    return train(target, **({"run": folder} | settings | small | {"threads": 1, "progress": False}))


def small_resume(run, **settings):
    """A resumed training that goes on for a few episodes only."""
    return resume(run, **(settings | {name: 2 * SMALL[name] for name in {"episodes"} & set(settings)}), progress=False)


def python_blocks(page):
    found = [block for block in blocks(page) if block.language == "python"]
    return [block for block in found if not block.note.startswith(("skip", "long"))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the run that the pages speak of."""
    path = tmp_path_factory.mktemp("reader")
    train("cage2", red="meander", episodes=20, num_envs=10, run=path / "runs/meander", threads=1, progress=False)
    return path


@pytest.mark.parametrize(
    "page", [page for page in pages() if python_blocks(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_python_blocks_run(page, folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(api, "train", small_train)
    monkeypatch.setattr(api.Run, "resume", small_resume)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    scope = {"__name__": "reader"}
    for block in python_blocks(page):
        if block.note.startswith("file "):
            (folder / block.note.removeprefix("file ")).write_text(block.text)
        else:
            code = compile("\n" * block.line + block.text, str(page), "exec")
            exec(code, scope)
    assert cavalcade.train is small_train
