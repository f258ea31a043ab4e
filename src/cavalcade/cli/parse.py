"""Command-line arguments to dataclasses: `--name value`, `--name=value`, `--no-switch`, lists as `64,64` or `64 64`."""

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from cavalcade.cli.help import HelpRequested, Page, help_asked
from cavalcade.cli.options import Option, options_of
from cavalcade.cli.pages import FIRST_WORDS, NO_PAGE, page_of, stored
from cavalcade.config.io import as_dict, from_dict, merged
from cavalcade.core.errors import ConfigError, one_of
from cavalcade.core.nearest import nearest
from cavalcade.runs.durable import aside_of

T = TypeVar("T")
_FLAG = re.compile(r"--?[A-Za-z]")  # a negative number is a value


def check_folder(name: str, path: Path | None) -> None:
    """Raises `ConfigError`, before any work is done, if a file could not be written."""
    if path is None:
        return
    folder = path.absolute().parent
    if not folder.is_dir():
        raise ConfigError(f"{name} is {path}; there is no folder {path.parent}")
    if path.is_dir():
        raise ConfigError(f"{name} is {path}, a folder; name a file")
    try:
        if path.exists():
            os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK))  # a pipe would wait for its reader
        else:
            aside = aside_of(path)  # not the file itself, which is there whole or not at all
            aside.open("ab").close()
            aside.unlink()
    except OSError as error:
        raise ConfigError(f"{name} is {path}; it cannot be written: {error.strerror}") from None


def import_from_here() -> None:
    """Lets users name packages in the working directory."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def check_seconds(seconds: float, name: str = "seconds") -> None:
    """Raises `ConfigError` unless the seconds to measure are above 0 and below 3600."""
    if not 0 < seconds < 3600:
        raise ConfigError(f"{name} is {seconds}; it must be above 0 and below 3600")


def option(args: Sequence[str], name: str) -> str | None:
    """Value of an option that is needed before all of them are parsed."""
    flag, found = f"--{name}", None
    for i, arg in enumerate(args):
        if arg == flag:
            found = args[i + 1] if i + 1 < len(args) else ""
        elif arg.startswith(f"{flag}="):
            found = arg.partition("=")[2]
    if found == "" or (found is not None and _FLAG.match(found)):
        raise ConfigError(f"{flag} has no value; write {flag} {'RUN' if name == 'resume' else name.upper()}")
    return found


def parse(options: type[T], args: Sequence[str], verb: str, default: T | None = None, target: str = "") -> T:
    """Parses the options of a verb; nested settings need no prefix.

    default: an instance with the defaults; target: that of the run, where the verb takes a run.
    """
    rows = options_of(options, default)
    if help_asked(args):
        raise HelpRequested(Page(verb, options.__doc__ or "", tuple(rows)))
    given = values_of(rows, args, verb, target)
    return from_dict(options, given if default is None else merged(as_dict(default), given))


def values_of(options: Sequence[Option], args: Sequence[str], command: str, target: str = "") -> dict[str, Any]:
    """The values that arguments give to options, nested like the dataclass; raises `ConfigError` for what is wrong."""
    flags = {option.flag: option for option in options if not option.positional}
    texts: dict[str, Any] = {}  # by name of the option
    words, left = [], list(args)
    while left:
        arg = left.pop(0)
        if not _FLAG.match(arg):
            words.append(arg)
            continue
        flag, sign, text = arg.partition("=")
        flag = flag.replace("_", "-")
        positive = flag if flag in flags else flag.replace("--no-", "--", 1)
        if (found := flags.get(positive)) and found.kind == "switch":
            if sign:
                raise ConfigError(f"{flag} takes no value; use {found.flag} or --no-{found.flag[2:]}")
            texts[found.name] = flag == positive
        elif not (found := flags.get(flag)):
            _unknown(flag, options, command, target)
        elif found.many:
            texts[found.name] = [text] if sign else []
            while not sign and left and not _FLAG.match(left[0]):
                texts[found.name].append(left.pop(0))
        elif sign or (left and not _FLAG.match(left[0])):
            texts[found.name] = text if sign else left.pop(0)
        else:
            raise ConfigError(f"{flag} has no value; write {found.spelt}")
    texts |= _by_place([option for option in options if option.positional], words, flags, command)
    lacking = [option for option in options if option.required and option.name not in texts]
    if missing := [option.name.upper() if option.positional else option.spelt for option in lacking]:
        raise ConfigError(f"{' and '.join(missing)} missing; usage: {Page(command, '', tuple(options)).usage}")
    values: dict[str, Any] = {}
    for option in options:
        if option.name in texts:
            place = values
            for name in option.path[:-1]:
                place = place.setdefault(name, {})
            place[option.name] = _value(option, texts[option.name])
    return values


def _by_place(
    options: Sequence[Option], words: list[str], flags: dict[str, Option], command: str
) -> dict[str, list[str] | str]:
    """Positional arguments; the last may take many."""
    found: dict[str, list[str] | str] = {}
    for option in options:
        if option.many:
            found[option.name], words = words, []
        elif words:
            found[option.name], *words = words
    if words:
        hint = f"write --{words[0]}" if f"--{words[0]}" in flags else f"cavalcade {command} --help shows the usage"
        raise ConfigError(f"unexpected argument {words[0]!r}; {hint}")
    return found


def _unknown(flag: str, options: Sequence[Option], command: str, target: str) -> NoReturn:
    """Raises `ConfigError` with what was probably meant."""
    known = [option for option in options if not option.positional]
    verb, _, word = command.partition(" ")
    target = target or word
    whole = stored().get(verb, NO_PAGE)
    resumed = any(option.name == "resume" for option in known)
    if verb == "play":  # its page without a target is that of cage2
        elsewhere = ", ".join(name for name in FIRST_WORDS[verb] if _has(stored()[f"{verb} {name}"], flag))
    else:
        elsewhere = next((option.targets for option in whole.options if option.flag == flag), "")
    if flag == "--target":
        hint = "the target comes first, without a flag"
    elif resumed and _has(page_of(verb, [target]) or whole, flag):
        hint = f"{verb} has it for new runs, not with --resume"
    elif target and elsewhere:
        hint = f"{target} does not have it, but {elsewhere}"
    elif near := nearest(flag.lstrip("-").removeprefix("no-"), [option.name for option in known]):
        hint = f"did you mean {' or '.join('--' + name.replace('_', '-') for name in near)}?"
    elif len(known) > 12:
        hint = f"cavalcade {command} --help-all lists the options"
    else:
        hint = f"options are {', '.join(option.flag for option in known)}"
    raise ConfigError(f"unknown option {flag}; {hint}")


def _has(page: Page, flag: str) -> bool:
    return any(option.flag == flag for option in page.options)


def _value(option: Option, text: Any) -> Any:
    if option.kind == "switch":
        return text
    if option.many:
        # At commas, but not at those within brackets: env_options are YAML.
        return [_one(option, item) for part in text for item in re.split(r",(?![^\[{(]*[\]})])", part)]
    return _one(option, text)


def _one(option: Option, text: str) -> Any:
    """A value as its type wants it."""
    if option.kind == "choice":
        one_of(option.name, text, option.choices)
    if option.kind in ("text", "choice"):
        return text
    if option.kind == "path":
        if not text:
            raise ConfigError(f"{option.name} is empty; it must be a path")
        return Path(text)
    try:
        if option.kind == "number":
            return float(text)
        if re.fullmatch(r"\d+(\.\d+)?e\d\d?", text) and float(text).is_integer():
            return int(float(text))
        return int(text)
    except ValueError:
        raise ConfigError(f"{option.name} is {text!r}; it must be {option.allowed}") from None
