"""The command line in this process."""

import pytest

from cavalcade.cli import main


def run(capsys, *args):
    """Exit status, what was printed, what was complained about."""
    with pytest.raises(SystemExit) as stop:
        main([str(arg) for arg in args])
    captured = capsys.readouterr()
    return stop.value.code or 0, captured.out, captured.err


def refused(capsys, *args):
    """The one line with which bad input is answered; a busy machine may say before what it is waiting for."""
    status, out, err = run(capsys, *args)
    assert status == 2
    assert out == ""
    lines = [line for line in err.splitlines() if not line.endswith(" ...")]
    assert len(lines) == 1
    return lines[0] + "\n"
