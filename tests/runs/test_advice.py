"""What is advised after workers failed."""

from pathlib import Path

from cavalcade.core.errors import RestartError, WorkerError
from cavalcade.runs.advice import resume_advice, resume_command


def test_more_restarts_are_advised_only_if_these_ran_out():
    run = Path("runs/a")
    assert resume_advice(WorkerError("gone"), "search", run) == "resume with: cavalcade search --resume runs/a"
    assert resume_advice(RestartError("gone", 30), "train", run) == (
        "resume with: cavalcade train --resume runs/a\n"
        "or allow more restarts: cavalcade train --resume runs/a --max-restarts 60"
    )
    assert resume_advice(RestartError("gone", 0), "train", run).endswith("--max-restarts 10")


def test_names_are_quoted_for_the_shell():
    assert resume_command("train", Path("my runs/a")) == "cavalcade train --resume 'my runs/a'"
