"""Commands that messages name: how to resume a run."""

from pathlib import Path
from shlex import quote

from cavalcade.core.errors import RestartError, WorkerError


def resume_command(verb: str, run: Path | str) -> str:
    """The command that resumes a run, for a shell."""
    return f"cavalcade {verb} --resume {quote(str(run))}"


def resume_advice(error: WorkerError, verb: str, run: Path) -> str:
    """What to do after workers failed: resume, or with more restarts if these ran out."""
    resume = resume_command(verb, run)
    if not isinstance(error, RestartError):
        return f"resume with: {resume}"
    return f"resume with: {resume}\nor allow more restarts: {resume} --max-restarts {max(2 * error.allowed, 10)}"
