"""Jobs and what became of them as JSON, compressed: what travels between the operator and a job's pod.

Nothing that a pod says is run or trusted to be well formed: it is read into the models that the operator knows.
"""

import gzip
import json
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from backfill.api import errors
from backfill.api.errors import BackfillError, BadInput, Problem
from backfill.controller.job_process import Message
from backfill.controller.jobs import (
    DiscardJob,
    Job,
    PlanJob,
    PlanResult,
    PublishJob,
    PublishResult,
    RecoverJob,
    SettleJob,
    SettleResult,
    Used,
    VerifyJob,
    job_kind,
)
from backfill.controller.kubernetes.plans import packed
from backfill.planning.plan import PlanHeader
from backfill.planning.progress import PlanningProgress

_JOBS: dict[str, TypeAdapter[Any]] = {
    job_kind(kind): TypeAdapter(kind) for kind in (PlanJob, RecoverJob, VerifyJob, SettleJob, PublishJob, DiscardJob)
}
_RESULTS: dict[str, TypeAdapter[Any]] = {
    "plan": TypeAdapter(PlanResult),
    "recover": TypeAdapter(PlanHeader),
    "verify": TypeAdapter(None),
    "settle": TypeAdapter(SettleResult),
    "publish": TypeAdapter(PublishResult),
    "discard": TypeAdapter(None),
}
_Read = TypeVar("_Read")
_PROGRESS = TypeAdapter(PlanningProgress)
_USED: TypeAdapter[Used | None] = TypeAdapter(Used | None)
_PROBLEMS = TypeAdapter(tuple[Problem, ...])


def encode_job(job: Job) -> bytes:
    """A job. The same job always gives the same bytes."""
    kind = job_kind(type(job))
    return packed({"kind": kind, "job": _JOBS[kind].dump_python(job, mode="json", by_alias=True)})


def job_identity(job: Any) -> bytes:
    """The same bytes for equal jobs, which go on with each other's work."""
    kind = job_kind(type(job))
    compared = {field.name for field in fields(job) if field.compare}
    return packed({"kind": kind, "job": _JOBS[kind].dump_python(job, mode="json", by_alias=True, include=compared)})


def decode_job(content: bytes) -> Job:
    """The job.

    Raises:
        BackfillError: it is none that this version knows.
    """

    def job(parts: dict[str, Any]) -> Job:
        found: Job = _JOBS[parts["kind"]].validate_python(parts["job"])
        return found

    return _read(content, job)


def encode_end(job: Job, message: Message) -> bytes:
    """How a job has ended."""
    error = message.error
    return packed(
        {
            "kind": message.kind,
            "result": _RESULTS[job_kind(type(job))].dump_python(message.result, mode="json", by_alias=True),
            "error": type(error).__name__ if error else None,
            "problems": _PROBLEMS.dump_python(error.problems, mode="json") if isinstance(error, BadInput) else (),
            "cause": str(error) if error else message.cause,
            "used": _USED.dump_python(message.used),
        }
    )


def decode_end(job: Job, content: bytes) -> Message:
    """How a job has ended.

    Raises:
        BackfillError: that can not be told from this.
    """

    def end(parts: dict[str, Any]) -> Message:
        result = _RESULTS[job_kind(type(job))].validate_python(parts["result"]) if parts["kind"] == "Done" else None
        error = _error(parts) if parts["kind"] == "Failed" else None
        used = _USED.validate_python(parts.get("used"))
        return Message(parts["kind"], result=result, error=error, cause=parts["cause"], used=used)

    return _read(content, end)


def encode_progress(progress: PlanningProgress) -> str:
    """How far planning is."""
    return _PROGRESS.dump_json(progress).decode()


def decode_progress(text: str) -> PlanningProgress | None:
    """How far planning is; None where that can not be told."""
    try:
        return _PROGRESS.validate_json(text)
    except ValidationError:
        return None


def _error(parts: dict[str, Any]) -> BackfillError:
    kind = getattr(errors, parts["error"], BackfillError)
    if not issubclass(kind, BackfillError):
        kind = BackfillError
    return kind(_PROBLEMS.validate_python(parts["problems"])) if issubclass(kind, BadInput) else kind(parts["cause"])


def _read(content: bytes, reader: Callable[[dict[str, Any]], _Read]) -> _Read:
    try:
        return reader(json.loads(gzip.decompress(content)))
    except (OSError, EOFError, ValueError, LookupError, TypeError) as error:
        raise BackfillError(
            f"what operator and pod say to each other can not be read: are they of one version? ({error})"
        ) from error
