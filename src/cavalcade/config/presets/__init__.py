"""Settings shipped with the package: recipes for training."""

import os
import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from cavalcade.core.errors import ConfigError
from cavalcade.core.files import plain_yaml, read_text

_RECIPES = files(__name__) / "recipes"
_HARDWARE = files(__name__) / "hardware"


def recipe_names() -> list[str]:
    """The shipped recipes."""
    return _names(_RECIPES)


def _names(folder: Traversable) -> list[str]:
    return sorted(path.name.removesuffix(".yaml") for path in folder.iterdir() if path.name.endswith(".yaml"))


def recipe(name: str) -> Any:
    """A recipe as plain data: one of the shipped ones by name, or a YAML file."""
    shipped = _RECIPES / f"{name}.yaml"
    path = Path(name)
    if "/" not in name and shipped.is_file():
        text = shipped.read_text()
    elif path.is_file():
        text = _text(f"recipe {name}", path)
    else:
        raise ConfigError(f"recipe is {name!r}; it must be a YAML file or one of {', '.join(recipe_names())}")
    return _read(f"recipe {name}", text)


def tuned_file(target: str) -> Path:
    """Where `cavalcade tune` puts what it found for a target on this machine."""
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config", "cavalcade", "tuned")
    return folder / f"{file_name(target)}.yaml"


def file_name(text: str) -> str:
    """A text as the name of a file."""
    return re.sub(r"[^a-zA-Z0-9_.-]+", "-", text)


def hardware(name: str, target: str, *, shipped: bool = False) -> Any:
    """A hardware preset as plain data; shipped: whether there are any for the target besides the tuned one."""
    if name != "tuned":
        file = _HARDWARE / f"{name}.yaml"
        if not shipped or not file.is_file():
            others = f" or one of {', '.join(_names(_HARDWARE))}" if shipped else ""
            raise ConfigError(f"hardware is {name!r}; it must be tuned{others}")
        return _read(f"hardware {name}", file.read_text())
    path = tuned_file(target)
    if not path.is_file():
        raise ConfigError(f"hardware is tuned, but {target} was not tuned here; run: cavalcade tune {target}")
    return _read(str(path), _text(str(path), path))


def _text(what: str, path: Path) -> str:
    try:
        return read_text(path)
    except OSError as error:
        raise ConfigError(f"{what} cannot be read: {error.strerror}") from None
    except ValueError:
        raise ConfigError(f"{what} is not YAML: it is not a text file") from None


def _read(what: str, text: str) -> Any:
    try:
        found = plain_yaml(text)
    except ValueError as error:
        raise ConfigError(f"{what} is not YAML: {error}") from None
    if not isinstance(found, dict | None):
        raise ConfigError(f"{what} is not a mapping of settings")
    return found or {}
