"""Metrics for TensorBoard and Weights & Biases."""

import builtins

import pytest

from cavalcade.core.errors import ConfigError
from cavalcade.runs.writers import make_writer


def test_tensorboard(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    writer = make_writer("tensorboard", tmp_path, {})
    writer.scalars(100, {"return": -14.0})
    writer.scalars(200, {"return": -13.0})
    writer.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("return")] == [(100, -14.0), (200, -13.0)]


@pytest.mark.parametrize(("name", "module"), [("tensorboard", "torch.utils.tensorboard"), ("wandb", "wandb")])
def test_a_missing_package_is_named(tmp_path, monkeypatch, name, module):
    real = builtins.__import__

    def absent(wanted, *args, **kwargs):
        if wanted == module:
            raise ImportError(wanted)
        return real(wanted, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(ConfigError, match=rf"writer {name} needs a package: pip install 'cavalcade\[{name}\]'"):
        make_writer(name, tmp_path, {})


def test_wandb(tmp_path, monkeypatch):
    """Against a stand-in: what is sent where."""
    import sys
    import types

    sent = []

    class Run:
        def log(self, values, step):
            sent.append((step, values))

        def finish(self):
            sent.append("finish")

    fake = types.ModuleType("wandb")
    fake.init = lambda **options: sent.append(options) or Run()  # pyright: ignore
    monkeypatch.setitem(sys.modules, "wandb", fake)
    writer = make_writer("wandb", tmp_path / "run", {"seed": 1})
    writer.scalars(5, {"kl": 0.1})
    writer.close()
    assert sent[0]["name"] == "run"
    assert sent[0]["config"] == {"seed": 1}
    assert sent[1:] == [(5, {"kl": 0.1}), "finish"]
