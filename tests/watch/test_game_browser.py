"""The game viewer in a real browser."""

from contextlib import contextmanager

import pytest

from cavalcade.watch.games.library import Library
from cavalcade.watch.games.page import game_page
from cavalcade.watch.server import make_app

from .conftest import PATIENCE, serving
from .game_runs import folder_of_runs

playwright = pytest.importorskip("playwright.sync_api")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, data):
    return folder_of_runs(tmp_path_factory, data)


@pytest.fixture(scope="module")
def address(folder):
    with serving(make_app(folder)) as found:
        yield f"{found}/"


@pytest.fixture
def open_page(browser):
    """Opens an address; whatever the browser complains about fails the test."""

    @contextmanager
    def opened(url, width=1280, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        complaints = []
        page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append("dialog") or dialog.dismiss())
        page.goto(url)
        page.wait_for_selector(".boards")
        yield page
        assert not complaints
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
        context.close()

    return opened


GAME = "#/game?run=two&member=0&seed=3&horizon=12"


def place(page):
    return page.locator(".transport .place").inner_text()


def test_keys_step_through_a_game(address, open_page, folder):
    game = Library(folder).play({"run": "two", "member": "0", "seed": "3", "horizon": "12"})
    with open_page(address + GAME) as page:
        assert page.locator("h1").inner_text() == "two at update 2, greedy, policy 0 of 2"
        assert page.locator(".network .host").count() == 13
        assert place(page) == "0 / 12"
        for key, expected in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", 12), ("Home", 0)):
            page.keyboard.press(key)
            assert place(page) == f"{expected} / 12"
        page.keyboard.press("End")
        assert page.locator(".step-panel dd").nth(2).inner_text() == f"{game['steps'][-1]['total']:.1f}".replace(
            "-", "−"
        )
        said = page.locator(".unseen").inner_text()
        assert said.startswith("Step 12. Blue: ")
        rewards = [step["reward"] for step in game["steps"]]
        page.keyboard.press("w")
        assert place(page) == f"{rewards.index(min(rewards))} / 12"
        page.keyboard.press("Home")
        got = [t for t in range(1, 13) if _further(game["steps"][t - 1], game["steps"][t])]
        if got:
            page.keyboard.press("n")
            assert place(page) == f"{got[0]} / 12"
        page.keyboard.press("Home")
        page.locator(".transport select").select_option("16")
        page.keyboard.press("Escape")
        page.locator("h1").click()
        page.keyboard.press(" ")
        playwright.expect(page.locator(".transport .place")).to_have_text("12 / 12", timeout=PATIENCE)


def _further(before, after):
    rank = {"": 0, "user": 1, "privileged": 2}
    pairs = zip(before["hosts"], after["hosts"], strict=True)
    return any(rank[b.get("held", "")] > rank[a.get("held", "")] for a, b in pairs)


def test_hosts_and_table_show_the_step(address, open_page, folder):
    game = Library(folder).play({"blue": "sleep", "red": "bline", "horizon": "30"})
    with open_page(f"{address}#/game?blue=sleep&red=bline&horizon=30") as page:
        page.keyboard.press("End")
        read = "all => all.map(h => [h.querySelector('.name').textContent, h.dataset.state])"
        shown = dict(page.eval_on_selector_all(".network .host", read))
        last = game["steps"][-1]
        for fact, host in zip(game["hosts"], last["hosts"], strict=True):
            expected = host.get("held") or ("scanned" if "scanned" in host else "clean")
            assert shown[fact["name"].replace("_", " ")] == ("foothold" if fact["name"] == "User0" else expected)
        assert page.locator(".network .service").text_content() == "✕ service DOWN"
        differing = page.locator(".table-panel tbody tr:not([data-differs=''])").count()
        assert differing == sum("differs" in host for host in last["hosts"])


def test_branching_shows_both_futures(address, open_page):
    with open_page(address + GAME) as page:
        assert not page.locator(".branch-panel select").is_visible()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        page.locator(".branch-panel select").select_option("Restore User2")
        page.locator(".branch-panel .primary").click()
        page.wait_for_selector(".futures")
        assert page.locator(".future").count() == 2
        assert "instead Restore User2" in page.locator(".futures").inner_text()
        page.get_by_text("Watch both futures").click()
        page.wait_for_selector(".boards.two")
        assert page.locator("h1").inner_text() == "Two futures"
        assert page.locator(".side h3").all_inner_texts()[1] == "instead: Restore User2"
        assert place(page) == "2 / 12"
        assert page.locator(".side .move.blue").nth(1).inner_text().startswith("Blue\nRestore User2")


def test_two_blues_side_by_side_in_the_dark(address, open_page):
    with open_page(f"{address}{GAME}&vs=react", scheme="dark") as page:
        page.wait_for_selector(".boards.two")
        assert page.locator(".network").count() == 2
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.locator("#theme").click()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark


@pytest.mark.parametrize("what", [GAME, GAME + "&vs=sleep", "#/game?trace=games.npz"])
def test_a_narrow_window(address, open_page, what):
    with open_page(address + what, width=390) as page:
        page.keyboard.press("End")
        assert page.locator(".network").first.get_attribute("data-narrow") == "true"


def test_ranked_games_are_linked(address, open_page):
    with open_page(f"{address}#/game?run=two&member=0&cell=meander-30&episodes=40&rank=worst") as page:
        totals = {}
        for rank in ("worst", "best"):
            page.locator(".ranks a", has_text=rank).click()
            page.wait_for_selector(f".ranks a[aria-current]:has-text('{rank}')")
            totals[rank] = page.locator(".head .final").inner_text()
            assert page.locator(".ranks a[aria-current]").inner_text() == f"{rank} {totals[rank]}"


def test_a_refusal_is_shown_with_its_reason(browser, address):
    page = browser.new_page()
    page.goto(f"{address}#/game?run=young")
    page.wait_for_selector(".empty", timeout=PATIENCE)
    assert "has no checkpoint yet" in page.locator(".empty").inner_text()
    page.close()


def test_a_page_of_its_own_from_a_file(open_page, folder, tmp_path):
    game = Library(folder).play({"run": "two", "member": "0", "horizon": "12"})
    nasty = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"
    game["meta"]["blue"] = nasty
    (tmp_path / "game.html").write_text(game_page(game), encoding="utf-8")
    with open_page(f"file://{tmp_path}/game.html") as page:
        assert page.locator("h1").inner_text() == nasty
        page.keyboard.press("End")
        assert place(page) == "12 / 12"
        assert page.locator(".network .host").count() == 13
        assert page.locator(".branch-panel").count() == 0
