"""A word to the user while something takes its time, where there is no terminal."""

import time

from cavalcade.cli.waiting import waiting


def test_what_is_quick_needs_no_word(capsys):
    with waiting("thinking") as news:
        news("thinking: 1 of 2")
    assert capsys.readouterr() == ("", "")


def test_what_takes_long_is_announced_and_followed(capsys):
    with waiting("thinking", after=0, every=0.2) as news:
        time.sleep(0.3)
        for n in range(1, 4):
            news(f"thinking: {n} of 3")
    assert capsys.readouterr() == ("", "thinking ...\nthinking: 1 of 3 ...\n")
