"""Names of the files in a run directory. Imports nothing, so that code that only reads runs starts fast."""

CONFIG, META, LOCK = "config.yaml", "meta.json", ".lock"
METRICS, EPISODES, NOTES, HISTORY, HELDOUT = (
    "metrics.jsonl", "episodes.csv", "notes.jsonl", "history.jsonl", "heldout.json",
)  # fmt: skip
CHECKPOINTS, STATE = "checkpoints", "state.json"
SEARCH, DECISIONS, SUMMARY, REPORT = "search.csv", "decisions.jsonl", "summary.json", "report.html"
