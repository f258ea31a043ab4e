"""Settings shipped with the package: recipes for training."""

from importlib.resources import files
from pathlib import Path
from typing import Any

from cavalcade.errors import ConfigError

_RECIPES = files("cavalcade.presets") / "recipes"


def recipe_names() -> list[str]:
    """The shipped recipes."""
    return sorted(path.name.removesuffix(".yaml") for path in _RECIPES.iterdir() if path.name.endswith(".yaml"))


def recipe(name: str) -> Any:
    """A recipe as plain data: one of the shipped ones by name, or a YAML file."""
    import yaml

    shipped = _RECIPES / f"{name}.yaml"
    path = Path(name)
    if "/" not in name and shipped.is_file():
        text = shipped.read_text()
    elif path.is_file():
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError):
            raise ConfigError(f"recipe {name} is not YAML: it is no text") from None
    else:
        raise ConfigError(f"recipe is {name!r}; it must be a YAML file or one of {', '.join(recipe_names())}")
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"recipe {name} is not YAML: {str(error).splitlines()[0]}") from None
