"""Options of verbs that take a target: the target comes first and determines the settings."""

import dataclasses
from pathlib import Path
from typing import Any

from cavalcade.cli.help import HelpRequested, Page, help_asked
from cavalcade.cli.options import Option, options_of, union
from cavalcade.cli.parse import parse, values_of
from cavalcade.config.base import RunConfig
from cavalcade.config.hosting import refuse_idle
from cavalcade.config.io import from_dict, merged
from cavalcade.config.presets import hardware, recipe
from cavalcade.core.errors import ConfigError
from cavalcade.targets import target_named, target_names, targets
from cavalcade.targets.base import Target


def parse_target(common: type, args: list[str], verb: str) -> tuple[str, Any]:
    """Target and options: those of `common`, and as `config` the settings of a training on the target.

    Settings are defaults, then a recipe, then a hardware preset, then the command line; later ones take precedence.
    """
    name = args[0] if args and not args[0].startswith("-") else ""
    if not name and help_asked(args):
        known = {target.name: _options(common, target) for target in targets()}
        said = f"What to train on: {target_names()}. `cavalcade {verb} TARGET --help` shows its options."
        place = Option("target", positional=True, required=True, help=said)
        raise HelpRequested(Page(verb, common.__doc__ or "", (place, *union(known))))
    if not name:
        raise ConfigError(f"no target; name one first: {target_names()}")
    target, rest = target_named(name), args[1:]
    options = _options(common, target)
    if help_asked(args):
        raise HelpRequested(Page(f"{verb} {name}", common.__doc__ or "", tuple(options)))
    given = values_of(options, rest, f"{verb} {name}")
    plain: Any = {}
    if named := given.get("recipe"):
        plain = merged(plain, recipe(named))
    if named := given.get("hardware"):
        plain = merged(plain, hardware(named, name, shipped=target.hardware))
    typed = given.pop("config", {})
    config = from_dict(target.Config, merged(merged(plain, typed), {"target": name}))
    refuse_idle(config, typed)
    return name, _with_settings(common, config)(**given)


def _options(common: type, target: Target[Any]) -> list[Option]:
    return [*options_of(common), *options_of(target.Config, where=("config",))]


def parse_resumed(common: type, path: Path, config: RunConfig, args: list[str], verb: str) -> Any:
    """Options of a resumed run: those of `common`, and as `config` its settings with those that are given on top."""
    kind = _with_settings(common, config)
    return parse(kind, args, verb, kind(resume=path, config=config), config.target)


def _with_settings(common: type, base: RunConfig) -> Any:
    """The options of a verb, with the settings of a training as `config`."""
    settings = ("config", type(base), dataclasses.field(default_factory=lambda: base))
    made = dataclasses.make_dataclass("Options", [settings], bases=(common,), frozen=True)
    made.__doc__ = common.__doc__
    return made
