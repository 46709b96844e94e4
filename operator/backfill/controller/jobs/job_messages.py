"""Messages about a job, from the process that runs it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from backfill.api.base import shortened
from backfill.api.errors import BackfillError
from backfill.api.redaction import Redactor
from backfill.controller.jobs.any_job import JobState, Used
from backfill.planning.planning_progress import PlanningProgress

LOG_LINES = 30
_MOST_LINE_CHARACTERS = 1000


@dataclass(frozen=True, slots=True)
class Message:
    """A message about a job."""

    kind: Literal["Progress", "Done", "Failed", "Broken", "OutOfMemory"]
    """``Failed``: by a deliberate error.
    ``Broken``: by any other error. All but ``Progress`` end the job.
    """
    progress: PlanningProgress | None = None
    result: object = None
    error: BackfillError | None = None
    cause: str = ""
    """Why the job is broken, in one line."""
    used: Used | None = None
    """What the job has used, if the process cannot be observed from outside."""


def log_text(error: Exception, printed: Sequence[str]) -> str:
    """What the operator logs for a job that failed: the error, and the last lines that it printed,
    each limited in length.
    """
    lines = (line[:_MOST_LINE_CHARACTERS] for line in printed[-LOG_LINES:])
    return "\n".join((f"job failed: {shortened(str(error))}", *lines))


def redacted(message: Message, hidden: Redactor) -> Message:
    """The message without secrets."""
    error = hidden.error(message.error) if message.error else None
    return replace(message, error=error, cause=hidden.text(message.cause))


def with_message(state: JobState, message: Message, details: str) -> JobState:
    """The state of a job after a message. ``details`` says where the output of its process is."""
    state = replace(state, used=message.used)
    match message.kind:
        case "Progress":
            return replace(state, progress=message.progress)
        case "Done":
            return replace(state, phase="Done", result=message.result)
        case "Failed":
            return failed(state, message.error or BackfillError(message.cause))
        case "OutOfMemory":
            return failed(
                state,
                BackfillError(f"there is not enough memory for the job (details in {details})"),
            )
        case "Broken":
            return failed(state, BackfillError(f"{message.cause} (details in {details})"))


def failed(state: JobState, error: BackfillError) -> JobState:
    """The state of a job that failed."""
    return replace(state, phase="Failed", error=error)
