"""Shipped recipes: each is a valid configuration."""

import pytest

from cavalcade.config.io import from_dict
from cavalcade.config.presets import hardware, recipe, recipe_names, tuned_file
from cavalcade.core.errors import ConfigError
from cavalcade.ppo.engines.cuda.engine import check
from cavalcade.targets import target_named
from cavalcade.targets.cage2.config import Cage2Config


def test_there_is_one_per_red_and_revision_for_each_device():
    ours = [name for name in recipe_names() if name.startswith("cage2")]
    kinds = ("bline", "head", "leaderboard", "meander")
    assert ours == [f"cage2-{kind}{device}" for kind in kinds for device in ("", "-gpu")]


@pytest.mark.parametrize("name", recipe_names())
def test_recipes_are_valid(name):
    kind = target_named(name.partition("-")[0]).Config
    config = from_dict(kind, recipe(name))
    if name.endswith("-gpu"):
        check(config.ppo, config.task.horizon)
        assert config.device == "cuda"


def test_files_and_bad_names(tmp_path):
    (tmp_path / "mine.yaml").write_text("seed: 5")
    assert from_dict(Cage2Config, recipe(str(tmp_path / "mine.yaml"))).seed == 5
    with pytest.raises(ConfigError, match="recipe is 'soup'; it must be a YAML file or one of cage2-bline"):
        recipe("soup")
    (tmp_path / "bad.yaml").write_text("a: [")
    with pytest.raises(ConfigError, match="is not YAML"):
        recipe(str(tmp_path / "bad.yaml"))


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"\xff\xfe", "is not YAML: it is not a text file"), (bytes((1 << 26) + 1), "cannot be read: it has more than")],
)
def test_a_tuned_preset_that_is_damaged(tmp_path, monkeypatch, content, said):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    tuned_file("cage2").parent.mkdir(parents=True)
    tuned_file("cage2").write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        hardware("tuned", "cage2")
