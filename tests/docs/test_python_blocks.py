"""The Python blocks of the documents run, page by page, from top to bottom, with small budgets."""

import sys

import pytest
from tools.doc_blocks import ROOT, blocks, pages

import cavalcade
from cavalcade import api

SMALL = {"episodes": 20, "num_envs": 10, "steps": 4096}
train = api.train


def small_train(target, **settings):
    """A training with the smallest budgets that its settings allow."""
    asked = {"episodes"} if target == "cage2" else {"steps"}
    chosen = settings | {name: SMALL[name] for name in asked & set(settings)} | {"threads": 1, "progress": False}
    return train(target, **({"num_envs": SMALL["num_envs"]} | chosen if target == "cage2" else chosen))


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
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    scope = {"__name__": "reader"}
    for block in python_blocks(page):
        if block.note.startswith("file "):
            (folder / block.note.removeprefix("file ")).write_text(block.text)
        else:
            code = compile("\n" * block.line + block.text, str(page), "exec")
            exec(code, scope)
    assert cavalcade.train is small_train
