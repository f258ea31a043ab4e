"""Commands that are parsed and checked, but not carried out."""

import pytest

from .helpers import run


@pytest.fixture
def configured(capsys, monkeypatch, tmp_path):
    """The settings of a command, which is not carried out."""
    found = []

    def keep(_directory, config, *_args, **_options):
        found.append(config)
        return 0

    monkeypatch.setattr("cavalcade.cli.train._train", keep)
    monkeypatch.setattr("cavalcade.cli.search._search", keep)

    def get(*args):
        status, _, err = run(capsys, *args, "--run", tmp_path / "run")
        assert status == 0, err
        return found.pop()

    return get
