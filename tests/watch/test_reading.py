"""Small files of a run, however they are damaged."""

import pytest

from cavalcade.watch.reading import read_yaml


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "- " * 100_000])
def test_deep_nesting_does_not_end_the_server(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    assert read_yaml(tmp_path / "config.yaml") is None
