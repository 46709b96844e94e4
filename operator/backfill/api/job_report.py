"""The JobReport: what the pod of a job tells the controller.

A kind of its own, so that the account of the application's pods needs no right to write anything else. The pod reads its job
from a ConfigMap that is mounted, and can change neither that nor the report's spec.
"""

from typing import Annotated, Final, Literal

from pydantic import Field

from backfill.api.backfill import ObjectMeta
from backfill.api.base import Model
from backfill.api.spec import Name

MOST_RESULT_BYTES: Final = 900 * 1024
"""Of a result, compressed. In Base64 it takes a third more, and etcd takes 1.5 MiB."""
MOST_PROGRESS: Final = 1024
"""Characters; more is no progress."""


class JobReportSpec(Model):
    """Which job it is. Written by the controller only."""

    backfill: Name
    """The Backfill this belongs to."""
    job: Annotated[str, Field(max_length=32)]
    """What the job does: plan, recover, verify, settle, publish or discard."""


class JobReportStatus(Model):
    """What became of the job. Written by its pod only."""

    progress: Annotated[str, Field(max_length=MOST_PROGRESS)] = ""
    """How far a plan job is, in JSON."""
    result: Annotated[str, Field(max_length=-(-MOST_RESULT_BYTES // 3) * 4, json_schema_extra={"format": "byte"})] = ""
    """How the job has ended: JSON, compressed with gzip, in Base64. Empty until then."""


class JobReport(Model):
    """Internal: what the pod of a job tells the controller."""

    api_version: Literal["backfill.dev/v1alpha1"] = "backfill.dev/v1alpha1"
    """The version of this resource."""
    kind: Literal["JobReport"] = "JobReport"
    """The kind of this resource."""
    metadata: ObjectMeta
    """It has the name of the job's pod; the Backfill owns it."""
    spec: JobReportSpec
    """Written by the controller."""
    status: JobReportStatus | None = None
    """Written by the pod."""
