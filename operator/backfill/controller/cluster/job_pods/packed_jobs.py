"""Jobs, their progress and their results as the operator and the pod of a job exchange them: in a
ConfigMap, and in a JobReport.
"""

from pydantic import TypeAdapter, ValidationError

from backfill.api.errors import BackfillError
from backfill.api.job_report import MOST_PROGRESS
from backfill.api.json_text import read_json_text
from backfill.controller.jobs.any_job import Job
from backfill.controller.jobs.codec import (
    identifying_parts,
    job_of,
    job_parts,
    message_of,
    message_parts,
    readable,
)
from backfill.controller.jobs.job_messages import Message
from backfill.kube.packed_json import packed, read_packed
from backfill.planning.planning_progress import PlanningProgress

_PROGRESS: TypeAdapter[PlanningProgress] = TypeAdapter(PlanningProgress)


def encode_job(job: Job) -> bytes:
    """A job. The same job always gives the same bytes."""
    return packed(job_parts(job))


def job_identity(job: Job) -> bytes:
    """The same bytes for equal jobs, of which one continues the work of the other."""
    return packed(identifying_parts(job))


def decode_job(content: bytes) -> Job:
    """The job.

    Raises:
        BackfillError: this version knows no such job.
    """
    return readable(lambda: read_packed(content, lambda text: job_of(read_json_text(text))))


def encode_end(job: Job, message: Message) -> bytes:
    """How a job has ended."""
    return packed(message_parts(job, message))


def decode_end(job: Job, content: bytes) -> Message:
    """How a job has ended.

    Raises:
        BackfillError: the content is not well formed, or does not say that.
    """
    end = readable(lambda: read_packed(content, lambda text: message_of(job, read_json_text(text))))
    if end.kind == "Progress":
        raise BackfillError("incompatible job format: operator and image versions differ")
    return end


def encode_progress(progress: PlanningProgress) -> str:
    """The progress of planning."""
    return _PROGRESS.dump_json(progress).decode()


def decode_progress(text: str) -> PlanningProgress | None:
    """The progress of planning; None if the text is too long or not well formed."""
    if len(text) >= MOST_PROGRESS:
        return None
    try:
        return _PROGRESS.validate_json(text)
    except ValidationError:
        return None
