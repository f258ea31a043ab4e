"""Run directories of searches."""

from pathlib import Path

from cavalcade.runs.directory import RunDirectory, new_path, settings_of
from cavalcade.search.config import SearchConfig


def open_search(path: Path) -> RunDirectory[SearchConfig]:
    """Opens an existing search."""
    settings_of(path, "search")
    return RunDirectory(path, SearchConfig)


def default_path(target: str) -> Path:
    """The folder of a new search."""
    return new_path(f"search-{target}")
