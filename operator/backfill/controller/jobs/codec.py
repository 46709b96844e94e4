"""Jobs and their results as JSON values, for the messages
between the controller and the process or pod of a job.

Nothing that a job's process or pod sends is executed, or trusted to be well formed: it is parsed
into the models listed here.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar

from pydantic import TypeAdapter

from backfill.api import errors
from backfill.api.base import Checked, shortened
from backfill.api.errors import BackfillError, BadInput, Problem, first_line
from backfill.api.resolved import Resolved
from backfill.controller.jobs.any_job import Job, Used, job_kind
from backfill.controller.jobs.job_messages import Message
from backfill.controller.jobs.kinds.discard import DiscardJob
from backfill.controller.jobs.kinds.extend import ExtendJob, Extension
from backfill.controller.jobs.kinds.make_plan import PlanJob, PlanResult
from backfill.controller.jobs.kinds.publish import PublishJob, PublishResult
from backfill.controller.jobs.kinds.recover import RecoverJob
from backfill.controller.jobs.kinds.resolve import ResolveJob
from backfill.controller.jobs.kinds.settle import SettleJob, SettleResult
from backfill.controller.jobs.kinds.undo import UndoJob, UndoResult
from backfill.controller.jobs.kinds.verify import VerifyJob
from backfill.planning.plan import PlanHeader
from backfill.planning.planning_progress import PlanningProgress

_JOBS: dict[str, TypeAdapter[Any]] = {
    job_kind(kind): TypeAdapter(kind)
    for kind in (
        ResolveJob,
        PlanJob,
        ExtendJob,
        RecoverJob,
        VerifyJob,
        SettleJob,
        PublishJob,
        UndoJob,
        DiscardJob,
    )
}
_RESULTS: dict[str, TypeAdapter[Any]] = {
    "resolve": TypeAdapter(Resolved),
    "plan": TypeAdapter(PlanResult),
    "extend": TypeAdapter(Extension),
    "recover": TypeAdapter(PlanHeader),
    "verify": TypeAdapter(None),
    "settle": TypeAdapter(SettleResult),
    "publish": TypeAdapter(PublishResult),
    "undo": TypeAdapter(UndoResult),
    "discard": TypeAdapter(None),
}
_PROGRESS: TypeAdapter[PlanningProgress | None] = TypeAdapter(PlanningProgress | None)
_KINDS = frozenset(("Progress", "Done", "Failed", "Broken", "OutOfMemory"))
_USED: TypeAdapter[Used | None] = TypeAdapter(Used | None)
_Read = TypeVar("_Read")
_PROBLEMS: TypeAdapter[tuple[Problem, ...]] = TypeAdapter(Checked[Problem])
_MOST_PROBLEMS = 64
"""Problems of one job that are shown."""


def job_parts(job: Job) -> dict[str, Any]:
    """A job. The same job always gives the same parts."""
    kind = job_kind(type(job))
    return {"kind": kind, "job": _JOBS[kind].dump_python(job, mode="json", by_alias=True)}


def identifying_parts(job: Any) -> dict[str, Any]:
    """The same parts for equal jobs, of which one continues the work of the other."""
    kind = job_kind(type(job))
    compared = {field.name for field in fields(job) if field.compare}
    return {
        "kind": kind,
        "job": _JOBS[kind].dump_python(job, mode="json", by_alias=True, include=compared),
    }


def job_of(parts: Any) -> Job:
    """The job.

    Raises:
        BackfillError: this version knows no such job.
    """

    def job() -> Job:
        found: Job = _JOBS[parts["kind"]].validate_python(parts["job"])
        return found

    return readable(job)


def message_parts(job: Job, message: Message) -> dict[str, Any]:
    """A message about a job."""
    error = message.error
    return {
        "kind": message.kind,
        "progress": _PROGRESS.dump_python(message.progress, mode="json"),
        "result": (
            _RESULTS[job_kind(type(job))].dump_python(message.result, mode="json", by_alias=True)
        ),
        "error": type(error).__name__ if error else None,
        "problems": (
            _PROBLEMS.dump_python(_some(error.problems), mode="json")
            if isinstance(error, BadInput)
            else ()
        ),
        "cause": _text(error or message.cause),
        "used": _USED.dump_python(message.used),
    }


def message_of(job: Job, parts: Any) -> Message:
    """A message about a job.

    Raises:
        BackfillError: it is not well formed.
    """

    def message() -> Message:
        kind = parts["kind"]
        if kind not in _KINDS:
            raise ValueError(f"a message of the kind {str(kind)[:20]}")
        result = (
            _RESULTS[job_kind(type(job))].validate_python(parts["result"])
            if kind == "Done"
            else None
        )
        error = _error(parts) if kind == "Failed" else None
        progress = _PROGRESS.validate_python(parts.get("progress"))
        used = _USED.validate_python(parts.get("used"))
        return Message(
            kind,
            progress=progress,
            result=result,
            error=error,
            cause=_text(parts["cause"]),
            used=used,
        )

    return readable(message)


def readable(reader: Callable[[], _Read]) -> _Read:
    """The result of a reader of a message.

    Raises:
        BackfillError: it is not well formed.
    """
    try:
        return reader()
    except (OSError, EOFError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise BackfillError(
            "incompatible job format: operator and image versions differ"
            f" ({type(error).__name__}: {first_line(error)})"
        ) from error


def _error(parts: dict[str, Any]) -> BackfillError:
    kind = getattr(errors, str(parts["error"]), BackfillError)
    if not (isinstance(kind, type) and issubclass(kind, BackfillError)):
        kind = BackfillError
    if issubclass(kind, BadInput):
        return kind(_some(_PROBLEMS.validate_python(parts["problems"])))
    return kind(_text(parts["cause"]))


def _some(problems: tuple[Problem, ...]) -> tuple[Problem, ...]:
    """The first problems, each as long as a message may be, and how many more there are: names in
    a table's metadata have no limit, and every message is searched for secrets.
    """
    texts = tuple(
        replace(each, field=_text(each.field), message=_text(each.message), fix=_text(each.fix))
        for each in problems[:_MOST_PROBLEMS]
    )
    more = problems[_MOST_PROBLEMS:]
    if not more:
        return texts
    return (
        *texts,
        Problem(
            "",
            f"and {len(more):,} more problems",
            may_pass=all(each.may_pass for each in more),
            unavailable=all(each.unavailable for each in more),
        ),
    )


def _text(value: object) -> str:
    return str(shortened(str(value)))
