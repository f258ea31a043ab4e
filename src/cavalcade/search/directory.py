"""Run directories of searches."""

import time
from pathlib import Path

from cavalcade.runs.directory import RunDirectory, settings_of
from cavalcade.search.config import SearchConfig


def open_search(path: Path) -> RunDirectory[SearchConfig]:
    """Opens an existing search."""
    settings_of(path, "search")
    return RunDirectory(path, SearchConfig)


def default_path(target: str) -> Path:
    """The folder of a new search."""
    return Path("runs", f"search-{target}-{time.strftime('%Y%m%d-%H%M%S')}")
