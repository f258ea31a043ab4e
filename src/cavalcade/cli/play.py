"""`cavalcade play [TARGET]`: a game in the terminal."""

from cavalcade.cli.parse import import_from_here, parse
from cavalcade.core.errors import ConfigError
from cavalcade.runs.policies import load_policy
from cavalcade.targets import target_named


def run(args: list[str]) -> int:
    import_from_here()
    named = args[0] if args and not args[0].startswith("-") else ""
    target = target_named(named or "cage2")
    if target.PlayOptions is None:
        raise ConfigError(f"games of {named} cannot be watched in the terminal; use cage2 or mettagrid")
    options = parse(target.PlayOptions, args[1:] if named else args, f"play {named}".strip())
    target.play(options, load_policy)
    return 0
