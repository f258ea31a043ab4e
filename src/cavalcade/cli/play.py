"""`cavalcade play [TARGET|RUN|SEARCH]`: a game in the terminal."""

from pathlib import Path
from typing import Any

from cavalcade.api import load_policy
from cavalcade.cli.parse import import_from_here, option, parse
from cavalcade.cli.run_argument import run_among, target_of_run
from cavalcade.core.errors import ConfigError
from cavalcade.runs.directory import is_search, write_whole
from cavalcade.runs.policies import is_saved
from cavalcade.targets import is_target, target_named
from cavalcade.watch.games.page import game_page
from cavalcade.watch.games.played import played


def run(args: list[str]) -> int:
    import_from_here()
    named = run_among(args, "--run", "--html")
    rest = list(args)
    if named:
        rest.remove(named)
    path = option(rest, "run")
    if is_target(named):
        name = named
    elif named and path is not None:
        raise ConfigError(f"two runs are given, {named} and {path}; leave one out")
    elif named:
        if not is_saved(named):
            raise ConfigError(f"{named!r} is neither a target nor a run; {_ALLOWED}")
        name, rest = target_of_run(Path(named)), [*rest, "--run", named]
    else:
        name = target_of_run(Path(path)) if path else "cage2"
    target = target_named(name)
    if target.PlayOptions is None:
        raise ConfigError(f"games of {target.name} cannot be watched in the terminal; {_ALLOWED}")
    options = parse(target.PlayOptions, rest, f"play {named}".strip(), target=name)
    if getattr(options, "html", None):
        _write_page(options)
    else:
        target.play(options, _load)
    return 0


def _write_page(options: Any) -> None:
    """Plays the game that the options name and writes it as a page."""
    write_whole(options.html, game_page(played(options, _load)))
    print(f"wrote {options.html}; open it in a browser")


_ALLOWED = "name cage2, mettagrid, a run, a checkpoint, a search, a policy file or model:NAME"


def _load(path: str, order: str | None = None, member: int | None = None) -> Any:
    """Loads the policies of a run, or of a search the one that follows an order."""
    return load_policy(path, order=order, member=member if is_search(Path(path)) else None)
