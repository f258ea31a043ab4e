"""What to do after a run stopped because workers failed."""

from pathlib import Path

from cavalcade.core.errors import RestartError, WorkerError


def resume_advice(error: WorkerError, verb: str, run: Path) -> str:
    """The commands that resume a run: with more restarts, if these ran out."""
    resume = f"cavalcade {verb} --resume {run}"
    if not isinstance(error, RestartError):
        return f"resume with: {resume}"
    return f"resume with: {resume}\nor allow more restarts: {resume} --max-restarts {max(2 * error.allowed, 10)}"
