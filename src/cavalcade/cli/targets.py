"""Options of verbs that take a target: the target comes first and determines the settings."""

import dataclasses
from pathlib import Path
from typing import Any

from cavalcade.cli.parse import option, parse
from cavalcade.config.base import RunConfig
from cavalcade.config.io import from_dict, merged
from cavalcade.config.presets import hardware, recipe
from cavalcade.core.errors import ConfigError
from cavalcade.targets import target_named, target_names


def parse_target(common: type, args: list[str], verb: str) -> tuple[str, Any]:
    """Target and options: those of `common`, and as `config` the settings of a training on the target.

    Settings are defaults, then a recipe, then a hardware preset, then the command line; later ones take precedence.
    """
    name = args[0] if args and not args[0].startswith("-") else ""
    if not name and not {"-h", "--help"} & set(args):
        raise ConfigError(f"no target; name one first: {target_names()}")
    target, rest = target_named(name or "cage2"), args[1:] if name else args
    plain: Any = target.required(lambda flag: option(rest, flag))
    if given := option(rest, "recipe"):
        plain = merged(plain, recipe(given))
    if given := option(rest, "hardware"):
        plain = merged(plain, hardware(given, name, shipped=target.hardware))
    base = from_dict(target.Config, merged(plain, {"target": name} if name else {}))
    kind = _with_settings(common, base)
    options: Any = parse(kind, rest, f"{verb} {name}".strip(), kind(config=base))
    if name and options.config.target != name:
        raise ConfigError(f"target is {options.config.target!r} and {name!r}; leave out --target")
    return name, options


def parse_resumed(common: type, path: Path, config: RunConfig, args: list[str], verb: str) -> Any:
    """Options of a resumed run: those of `common`, and as `config` its settings with those that are given on top."""
    kind = _with_settings(common, config)
    return parse(kind, args, verb, kind(resume=path, config=config))


def _with_settings(common: type, base: RunConfig) -> Any:
    """The options of a verb, with the settings of a training as `config`."""
    settings = ("config", type(base), dataclasses.field(default_factory=lambda: base))
    made = dataclasses.make_dataclass("Options", [settings], bases=(common,), frozen=True)
    made.__doc__ = common.__doc__
    return made
