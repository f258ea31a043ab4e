"""Policies that are shipped with the package: NAME.safetensors, and its model card NAME.json.

`model:NAME` stands for one wherever a run is expected. `benchmarks/model_zoo.py` writes both files from a run.
"""

import json
from pathlib import Path
from typing import Any

from cavalcade.core.errors import ConfigError

PREFIX = "model:"
_FOLDER = Path(__file__).parent


def names() -> list[str]:
    """The names of all shipped models."""
    return sorted(path.stem for path in _FOLDER.glob("*.safetensors"))


def is_model(name: str | Path) -> bool:
    """Whether a name has the form of a shipped model."""
    return str(name).startswith(PREFIX)


def model_file(name: str | Path) -> Path:
    """The file of a model, given as `model:NAME`."""
    short = str(name).removeprefix(PREFIX)
    if short not in names():
        raise ConfigError(f"there is no model {short!r}; it must be one of {', '.join(names())}")
    return _FOLDER / f"{short}.safetensors"


def card(name: str | Path) -> dict[str, Any]:
    """The card of a model: how it was trained and chosen, its scores and its limits."""
    return json.loads(model_file(name).with_suffix(".json").read_text())
