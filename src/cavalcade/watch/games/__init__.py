"""Games to look at: played or recorded, as plain data, behind the addresses below /api/game of the live page."""

from pathlib import Path
from typing import Any


def routes(root: Path) -> list[Any]:
    """Routes of a Starlette application; games are of runs and files below a folder."""
    from cavalcade.watch.games.endpoints import routes_below  # the pages that `play` writes need no server

    return routes_below(root)
