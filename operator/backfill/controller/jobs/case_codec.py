"""Jobs and what became of them, compressed: what travels between the operator and a job's pod."""

import json
from typing import Any

from backfill.api.errors import BackfillError
from backfill.controller.jobs.codec import (
    identifying_parts,
    job_of,
    job_parts,
    message_of,
    message_parts,
    readable,
)
from backfill.controller.jobs.kinds import Job
from backfill.controller.jobs.messages import Message
from backfill.kube.packed import packed, unpacked


def encode_job(job: Job) -> bytes:
    """A job. The same job always gives the same bytes."""
    return packed(job_parts(job))


def job_identity(job: Job) -> bytes:
    """The same bytes for equal jobs, which go on with each other's work."""
    return packed(identifying_parts(job))


def decode_job(content: bytes) -> Job:
    """The job.

    Raises:
        BackfillError: it is none that this version knows.
    """
    return job_of(_unpacked(content))


def encode_end(job: Job, message: Message) -> bytes:
    """How a job has ended."""
    return packed(message_parts(job, message))


def decode_end(job: Job, content: bytes) -> Message:
    """How a job has ended.

    Raises:
        BackfillError: that cannot be told from this.
    """
    end = message_of(job, _unpacked(content))
    if end.kind == "Progress":
        raise BackfillError("incompatible job format: operator and image versions differ")
    return end


def _unpacked(content: bytes) -> Any:
    return readable(lambda: json.loads(unpacked(content)))
