"""The pages in a real browser."""

import pytest

from cavalcade.watch.server import make_app

from .conftest import PATIENCE, serving
from .helpers import held, make_run, row


def test_the_list_and_a_run_that_grows_and_is_deleted(page, address, runs):
    path = make_run(runs / "alive", checkpoint=10)
    make_run(runs / "done", updates=100, checkpoint=100)
    with held(path):
        page.goto(address)
        page.wait_for_selector(".run:has-text('alive') .badge[data-state=running]")
        assert page.locator(".run").count() == 2
        page.fill("input[type=search]", "don")
        assert page.locator(".run").count() == 1
        page.fill("input[type=search]", "")
        page.click("text=alive")
        page.wait_for_selector(".fact:has-text('update') >> text=20")
        page.wait_for_selector(".live[data-state=live]")
        with (path / "metrics.jsonl").open("a") as file:
            file.write("".join(row(u, value=-7.25) for u in range(21, 61)))
        page.wait_for_selector(".fact:has-text('update') >> text=60")
        page.wait_for_selector("canvas[aria-label*='Latest: mean −7.25']")
        (path / "metrics.jsonl").write_text("".join(row(u) for u in range(1, 11)))  # a resume cuts it back
        page.wait_for_selector("canvas[aria-label*='Latest: mean −30.5']")
    (path / "config.yaml").unlink()
    page.wait_for_selector("text=This run was deleted")


def test_the_first_requests_of_a_page_are_made_once_and_not_one_after_the_other(page, address, runs):
    make_run(runs / "a", policies=3)
    entry = "(e) => [e.name.split('/').pop(), e.startTime, e.responseEnd]"

    def opened(place, selector):
        page.goto("about:blank")
        page.goto(f"{address}/{place}")
        page.wait_for_selector(selector)
        page.wait_for_selector(".live[data-state=live]")
        return page.evaluate(f"() => performance.getEntriesByType('resource').map({entry})")

    listed = [name for name, *_ in opened("", ".run") if "runs" in name]
    assert listed == ["runs?most=24"]
    found = opened("#/run/a", "canvas[aria-label*='Latest: mean −']")
    asked = {name: times for name, *times in found if "path=a" in name}
    assert list(asked) == ["run?path=a", "metrics?path=a&points=300&lines=0", "metrics?path=a&points=800"]
    assert asked["metrics?path=a&points=300&lines=0"][0] < asked["run?path=a"][1]  # before the other was answered


@pytest.mark.parametrize(
    ("clicked", "reached"),
    [("text=alive", ".fact"), (".chip", ".chip[aria-pressed=true]"), (".tick input", "text=Compare 1")],
)
def test_a_click_in_the_middle_of_an_update_is_not_lost(page, address, runs, clicked, reached):
    path = make_run(runs / "alive")
    page.goto(address)
    page.wait_for_selector(".live[data-state=live]")
    page.hover(clicked)
    page.mouse.down()
    with (path / "metrics.jsonl").open("a") as file:
        file.write("".join(row(u, value=7.25) for u in range(21, 61)))
    page.wait_for_selector(".score:has-text('7.25')")
    page.mouse.up()
    page.wait_for_selector(reached)


def test_what_a_reader_unfolds_and_types_stays_while_a_run_goes_on(page, address, runs):
    path = make_run(runs / "alive")
    page.goto(f"{address}/#/run/alive")
    page.click("summary")
    page.fill("input[aria-label='Filter settings']", "learning")
    with (path / "metrics.jsonl").open("a") as file:
        file.write("".join(row(u) for u in range(21, 61)))
    page.wait_for_selector(".fact:has-text('update') >> text=60")
    assert page.input_value("input[aria-label='Filter settings']") == "learning"
    assert page.locator(".settings[open] tbody tr").count() == 1


def test_zoom_and_controls(page, address, runs):
    make_run(runs / "a", updates=2000, planned=2000)
    page.goto(f"{address}/#/run/a")
    chart = page.locator("canvas[tabindex]")
    box = chart.bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 100)
    page.wait_for_selector(".tip >> text=policy 1")
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 100)
    with page.expect_response(lambda answer: "low=" in answer.url) as zoomed:
        page.mouse.up()
    assert 0 < zoomed.value.json()["rows"] < 1000
    with page.expect_response(lambda answer: "/api/metrics" in answer.url and "low=" not in answer.url):
        page.click("text=Whole run")
    page.click("text=log x")
    assert page.get_attribute("text=log x", "aria-pressed") == "true"


def test_compare_in_the_dark(page, address, runs):
    make_run(runs / "a")
    make_run(runs / "b", planned=200)
    page.goto(address)
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 19, 22)"
    page.check("[aria-label='compare a']")
    page.check("[aria-label='compare b']")
    page.click("text=Compare 2")
    page.wait_for_selector(".legend >> text=b")
    page.wait_for_selector("tr:has-text('episodes') >> text=10000")


def test_a_narrow_window_does_not_scroll_sideways(page, address, runs):
    make_run(runs / "a-run-with-quite-a-long-name-that-does-not-fit" / "seed-0", checkpoint=20)
    page.set_viewport_size({"width": 390, "height": 800})
    for place in ("", "#/run/a-run-with-quite-a-long-name-that-does-not-fit/seed-0", "#/compare?runs="):
        page.goto(f"{address}/{place}")
        page.wait_for_selector(".page > *")
        page.wait_for_load_state()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_token_opens_the_page_and_what_a_run_says_is_text(browser, runs):
    path = make_run(runs / "<img src=x onerror=alert(1)>")
    (path / "notes.jsonl").write_text('{"date": "2026", "update": 1, "note": "<script>alert(1)</script>"}\n')
    with serving(make_app(runs, token="geheim")) as address, browser.new_context() as context:
        context.set_default_timeout(PATIENCE)
        opened = context.new_page()
        opened.goto(f"{address}/?token=geheim")
        opened.click("text=<img src=x")
        opened.wait_for_selector("td:has-text('<script>alert(1)</script>')")
        assert opened.locator("main img, main script").count() == 0
