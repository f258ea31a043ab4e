"""The command line in this process."""

import pytest

from cavalcade.cli import main


def run(capsys, *args):
    """Exit status, what was printed, what was complained about."""
    with pytest.raises(SystemExit) as stop:
        main([str(arg) for arg in args])
    captured = capsys.readouterr()
    return stop.value.code or 0, captured.out, without_notices(captured.err)


def without_notices(err):
    """What stands on stderr besides notices of what takes its time: on a busy machine anything may."""
    return "".join(line for line in err.splitlines(keepends=True) if not line.endswith(" ...\n"))


def refused(capsys, *args):
    """The one line with which bad input is answered."""
    status, out, err = run(capsys, *args)
    assert status == 2
    assert out == ""
    assert err.count("\n") == 1
    return err
