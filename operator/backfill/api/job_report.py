"""The JobReport: how the pod of a job reports progress and result to the controller.

It is a kind of its own so that the service account of job pods can write nothing else. A pod reads
its job from a mounted ConfigMap, and can change neither that nor the report's spec.
"""

from typing import Annotated, Final, Literal

from pydantic import Field

from backfill.api.backfill import ObjectMeta
from backfill.api.base import Model
from backfill.api.field_types import Name

JOB_VARIABLE: Final = "BACKFILL_JOB"
"""Environment variable of a job's pod, with the name of the job's objects."""
MOST_RESULT_BYTES: Final = 900 * 1024
"""Bytes of a compressed result. Base64 adds a third, and etcd takes at most 1.5 MiB."""
MOST_PROGRESS: Final = 1024
"""Characters of a progress report. A longer one is ignored."""


class JobReportSpec(Model):
    """Identifies the job. Written by the controller only."""

    backfill: Name
    """Name of the Backfill that the job belongs to."""
    job: Annotated[str, Field(max_length=32)]
    """The job: ``resolve``, ``plan``, ``extend``, ``recover``, ``verify``, ``settle``, ``publish``,
    ``undo`` or ``discard``.
    """


class JobReportStatus(Model):
    """Progress and result of the job. Written by its pod only."""

    progress: Annotated[str, Field(max_length=MOST_PROGRESS)] = ""
    """Progress of a ``plan`` job, in JSON."""
    result: Annotated[
        str, Field(max_length=-(-MOST_RESULT_BYTES // 3) * 4, json_schema_extra={"format": "byte"})
    ] = ""
    """Result of the job: gzip-compressed JSON in Base64. Empty until the job has ended."""


class JobReport(Model):
    """Internal: reports of a job pod to the controller."""

    api_version: Literal["backfill.dev/v1alpha1"] = "backfill.dev/v1alpha1"
    """API version of the resource."""
    kind: Literal["JobReport"] = "JobReport"
    """Kind of the resource."""
    metadata: ObjectMeta
    """Standard object metadata. The object has the name of the job's pod and is owned by the
    Backfill.
    """
    spec: JobReportSpec
    """The job. Written by the controller."""
    status: JobReportStatus | None = None
    """Progress and result. Written by the pod."""
