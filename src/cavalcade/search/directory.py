"""Run directories of searches."""

from pathlib import Path

from cavalcade.runs.directory import RunDirectory, settings_of
from cavalcade.search.config import SearchConfig

SUMMARY, REPORT = "summary.json", "report.html"


def open_search(path: Path) -> RunDirectory[SearchConfig]:
    """Opens an existing search."""
    settings_of(path, "search")
    return RunDirectory(path, SearchConfig)
