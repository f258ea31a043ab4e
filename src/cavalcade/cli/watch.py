"""`cavalcade watch`: a live page of runs in the browser."""

import webbrowser
from dataclasses import dataclass
from pathlib import Path

from cavalcade.cli.options import Positional
from cavalcade.cli.parse import parse
from cavalcade.core.errors import ConfigError
from cavalcade.watch.serve import HOST, address_of, check_installed, is_loopback, listen, new_token, run_server


@dataclass(frozen=True)
class Options:
    """Shows runs live in the browser: curves, searches and games of everything below a folder. Ctrl-C ends it.

    It only reads. Other machines cannot connect unless `--host` is given; the address then has a secret token.
    """

    runs: Positional[Path] = Path("runs")
    """Folder with runs, or one run."""
    port: int | None = None
    """Port; by default the first that is free from 8642 on."""
    host: str = HOST
    """Address to listen on. Others than loopback can be reached by other machines and need the token in the address."""
    open: bool = False
    """Open the page in the browser."""


def run(args: list[str]) -> int:
    options = parse(Options, args, "watch")
    check_installed()
    if not options.runs.is_dir():
        raise ConfigError(f"runs is {options.runs}; there is no such folder, name one with runs in it")
    token = "" if is_loopback(options.host) else new_token()
    with listen(options.host, options.port) as listening:
        address = address_of(listening, options.host, token)
        print(f"watch {address}\nCtrl-C ends it", flush=True)
        if options.open:
            webbrowser.open(address)
        run_server(options.runs, listening, host=options.host, token=token)
    return 0
