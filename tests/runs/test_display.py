"""What a user sees of a run in progress."""

import io

import pytest
from rich.console import Console

from cavalcade.runs import display
from cavalcade.runs.display import LiveDisplay, PlainDisplay, Progress, QuietDisplay, line, make_display

PROGRESS = Progress(
    update=50, updates=200, steps=250_000, episodes=2_500, steps_per_second=123_456.7, episodes_per_second=1_234.5,
    seconds_left=3_725, returns={"bline": -14.25, "meander": -18.5}, losses={"kl": 0.0123},
    phases={"step": 0.6, "act": 0.3, "log": 0.001},
)  # fmt: skip


def test_a_line_says_it_all():
    assert line(PROGRESS) == (
        "update 50/200  2,500 episodes  123,457 steps/s  1:02:05 left  bline -14.25  meander -18.50"
    )


def test_plain_lines_come_now_and_then_and_at_the_end(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    shown = PlainDisplay()
    for i in range(100):
        now[0] = 0.1 * i
        if shown.due(last=False):
            shown.show(PROGRESS)
    out = capsys.readouterr().out
    assert out.count("\n") == 4
    assert "\x1b" not in out
    assert not shown.due(last=False)
    assert shown.due(last=True)


def test_the_live_table(monkeypatch):
    text = io.StringIO()
    monkeypatch.setattr(display, "Console", lambda: Console(file=text, force_terminal=True, width=120))
    shown = LiveDisplay()
    shown.show(PROGRESS)
    shown.close()
    for words in ("update 50 of 200", "123,457 steps/s", "1,234 episodes/s", "1:02:05 left", "step 60%", "CPU", "MB"):
        assert words in text.getvalue()
    assert "-14.25" in text.getvalue()
    assert "log 0%" not in text.getvalue()


@pytest.mark.parametrize(
    ("quiet", "terminal", "kind"),
    [(True, True, QuietDisplay), (False, False, PlainDisplay), (False, True, LiveDisplay)],
)
def test_what_fits_where_output_goes(monkeypatch, quiet, terminal, kind):
    monkeypatch.setattr(display.sys.stdout, "isatty", lambda: terminal)
    monkeypatch.setattr(display, "Console", lambda: Console(file=io.StringIO()))
    shown = make_display(quiet)
    assert isinstance(shown, kind)
    assert shown.due(last=True) is not quiet
    shown.show(PROGRESS)
    shown.close()
