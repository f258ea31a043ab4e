"""The page of a game as one file."""

import json
import re

import pytest

from cavalcade.envs.cage2.env import Cage2
from cavalcade.envs.cage2.scripted import BLUES
from cavalcade.watch.games.page import STATIC, bundled, game_page
from cavalcade.watch.games.record import recorded

NASTY = "</script><script>alert(1)</script>"


@pytest.fixture
def game():
    env = Cage2(1, horizon=3, autoreset=False)
    env.reset()
    return recorded(env, lambda env: BLUES["sleep"](env, None), about={"blue": NASTY, "seed": 0})


def test_a_page_needs_nothing_else(game):
    page = game_page(game)
    assert not re.search(r"""(src|href)=|@import|url\(["']?(http|/)|\bimport\b[^;]* from|fetch\(""", page)
    data = re.search(r'<script type="application/json" id="game">(.*?)</script>', page, re.DOTALL)
    assert json.loads(data[1]) == game


def test_names_are_never_markup(game):
    page = game_page(game)
    assert NASTY not in page
    assert page.count("</script>") == 2
    assert "<title>&lt;/script&gt;" in page


def test_no_module_writes_markup():
    for path in STATIC.glob("*.js"):
        text = path.read_text()
        for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert way not in text, path.name


def test_modules_are_bundled_in_the_order_of_their_imports():
    script = bundled("standalone")
    order = re.findall(r"^modules\.(\w+) = ", script, re.MULTILINE)
    assert order[0] == "element"
    assert order[-1] == "standalone"
    assert len(order) == len(set(order))
    assert not re.search(r"^(import|export) ", script, re.MULTILINE)
