"""What is said of a job by whoever does it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from backfill.api.base import shortened
from backfill.api.errors import BackfillError
from backfill.api.redaction import Redactor
from backfill.controller.jobs.job import JobState, Used
from backfill.planning.progress import PlanningProgress

LOG_LINES = 30
_MOST_LINE_CHARACTERS = 1000


@dataclass(frozen=True, slots=True)
class Message:
    """What the process tells of its job."""

    kind: Literal["Progress", "Done", "Failed", "Broken", "OutOfMemory"]
    """``Failed``: by a deliberate error. ``Broken``: by any other. The last four end the job."""
    progress: PlanningProgress | None = None
    result: object = None
    error: BackfillError | None = None
    cause: str = ""
    """What broke it, in one line."""
    used: Used | None = None
    """At the end, where nobody can look at the process from outside."""


def log_text(error: Exception, printed: Sequence[str]) -> str:
    """What the operator logs of a job that failed: why, and the last lines of what it printed, none
    of them for ever long.
    """
    lines = (line[:_MOST_LINE_CHARACTERS] for line in printed[-LOG_LINES:])
    return "\n".join((f"job failed: {shortened(str(error))}", *lines))


def redacted(message: Message, hidden: Redactor) -> Message:
    """The same message without what is secret."""
    error = hidden.error(message.error) if message.error else None
    return replace(message, error=error, cause=hidden.text(message.cause))


def told(state: JobState, message: Message, details: str) -> JobState:
    """A job's state after a message. ``details``: where a person finds what the process printed."""
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
