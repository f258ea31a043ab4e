"""Options of verbs that are about a training: its target comes first and decides which settings there are."""

import dataclasses
from typing import Any

from cavalcade.cli.parse import option, parse
from cavalcade.config import AnyTrainConfig, CyborgTrainConfig, TrainConfig, training_kind
from cavalcade.errors import ConfigError
from cavalcade.plain import from_dict, merged
from cavalcade.presets import hardware, recipe


def parse_target(common: type, args: list[str], verb: str) -> tuple[str, Any]:
    """Target and options: those of `common`, and as `config` the settings of a training on the target.

    Settings start from defaults, then comes a recipe, then a hardware preset, then what is given.
    """
    target = args[0] if args and not args[0].startswith("-") else ""
    if not target and not {"-h", "--help"} & set(args):
        raise ConfigError("no target; name one first: cage2, mettagrid, gym:NAME or cyborg")
    kind = training_kind(target or TrainConfig.target)
    rest = args[1:] if target else args
    plain: Any = {"cyborg": option(rest, "cyborg") or ""} if kind is CyborgTrainConfig else {}
    if name := option(rest, "recipe"):
        plain = merged(plain, recipe(name))
    if name := option(rest, "hardware"):
        plain = merged(plain, hardware(name, target))
    base = from_dict(kind, merged(plain, {"target": target} if target else {}))
    options: Any = parse(_with_settings(common, kind), rest, f"{verb} {target}".strip(), _default(common, base))
    if target and options.config.target != target:
        raise ConfigError(f"target is {options.config.target!r} and {target!r}; leave out --target")
    return target, options


def _with_settings(common: type, kind: type) -> type:
    """The options of a verb with the settings of a kind of training."""
    factory = (lambda: CyborgTrainConfig(cyborg="CLONE")) if kind is CyborgTrainConfig else kind
    settings = ("config", kind, dataclasses.field(default_factory=factory))
    made = dataclasses.make_dataclass("Options", [settings], bases=(common,), frozen=True)
    made.__doc__ = common.__doc__
    return made


def _default(common: type, config: AnyTrainConfig) -> Any:
    return _with_settings(common, type(config))(config=config)
