"""The SplitAssignment: what the controller has released to one driver, and what that driver has committed.

The controller writes ``spec``, the driver writes ``status``; neither waits for the other and either may be read late,
twice or not at all: both sides only ever move forward within one attempt.
"""

from typing import Annotated, Literal

from pydantic import Field

from backfill.api.backfill import ObjectMeta
from backfill.api.base import Message, Model
from backfill.api.quantities import Time
from backfill.api.spec import MOST_SOURCES, InputName, Name
from backfill.api.status import PlanId

ASSIGNMENT_FILE = "assignment.json"
"""Without a cluster: the file in the channel's directory that holds the spec."""
DRIVER_MANAGER = "backfill-driver"
"""In a cluster: the field manager of what a driver writes."""
STATUS_FILE = "status.json"
"""Without a cluster: the file in the channel's directory that holds the status."""
LOCK_FILE = "controller.lock"
"""Without a cluster: a controller that is alive holds a lock (``flock``) on this file of the channel's directory."""

Count = Annotated[int, Field(ge=0, le=10**15)]
"""A driver is a tenant's: what it reports is added up and calculated with."""
QueryName = Annotated[str, Field(max_length=255)]


class SplitAssignmentSpec(Model):
    """What the driver may do. Written by the controller only."""

    backfill: Name
    """The Backfill this belongs to."""
    plan_id: PlanId
    """The plan whose steps are counted here."""
    attempt: Annotated[int, Field(ge=1)]
    """The attempt that may act on it; a driver of another attempt must stop."""
    steps: Annotated[int, Field(ge=0)]
    """Steps of the plan. Offset ``steps + 1`` is the flush: no rows, the watermark of the last step takes effect."""
    released: Annotated[int, Field(ge=0)] = 0
    """How many steps may be read. Never goes back within an attempt: the next one begins with what it finds committed."""
    watermark: Time
    """The global watermark this release was computed from."""
    executor_target: int | None = None
    """How many executors should be at work; null leaves it to the driver."""
    stop: bool = False
    """Commit the step under way and end."""


class SourceProgress(Model):
    """One source within one query."""

    name: InputName
    """The source."""
    committed: Count = 0
    """Steps read and committed; ``steps + 1`` after the flush."""
    rows: Count = 0
    """Rows read by committed steps."""


class QueryProgress(Model):
    """One streaming query of the application."""

    name: QueryName
    """The query."""
    output: QueryName | None = None
    """The output it writes."""
    sources: Annotated[tuple[SourceProgress, ...], Field(max_length=MOST_SOURCES)] = ()
    """The sources it reads."""
    late_rows: Count = 0
    """Rows dropped as late."""
    open_at_end: Count | None = None
    """Results of the window still in state after the flush; null if unknown."""
    open_from: Time | None = None
    """The time of the earliest of them."""
    needed_drain_seconds: Annotated[float, Field(ge=0, le=10**12)] | None = None
    """A drain longer than this would have closed them; null if unknown."""
    open_unknown: Annotated[str, Field(max_length=512)] = ""
    """Why their number is unknown."""
    by_clock: Annotated[str, Field(max_length=128)] = ""
    """Where it selects, joins or groups rows by the time of day; empty if nowhere."""


class SplitAssignmentStatus(Model):
    """What the driver has done. Written by the driver only."""

    attempt: int
    """The attempt that writes this."""
    phase: Literal["Starting", "Running", "Finished", "Stopped", "Failed"] = "Starting"
    """``Finished``: every query has committed the flush. ``Stopped``: ended because it was told to."""
    queries: Annotated[tuple[QueryProgress, ...], Field(max_length=64)] = ()
    """The queries of the application. Complete once ``phase`` is past ``Starting``."""
    executors: Annotated[int, Field(ge=0, le=10**6)] = 0
    """Executors at work; a local run counts as one."""
    heartbeat: Time
    """When the driver last wrote."""
    processing_seconds: Annotated[float, Field(ge=0, le=10**12)] = 0.0
    """Time this attempt spent in micro-batches, for the rate per executor."""
    max_observed_misalignment_seconds: Annotated[float, Field(ge=-(10**12), le=10**12)] | None = None
    """The furthest any row really read was ahead of the global watermark at that moment."""
    reason: Annotated[str, Field(max_length=64)] = ""
    """One word for a failure: ``UnsupportedProgram`` and ``InvalidInput`` must not be tried again."""
    message: Message = ""
    """What failed, or while it is starting what it waits for, for people."""


class SplitAssignment(Model):
    """Internal: how a controller and one driver talk to each other."""

    api_version: Literal["backfill.dev/v1alpha1"] = "backfill.dev/v1alpha1"
    """The version of this resource."""
    kind: Literal["SplitAssignment"] = "SplitAssignment"
    """The kind of this resource."""
    metadata: ObjectMeta
    """The Backfill's name and namespace; the Backfill owns it."""
    spec: SplitAssignmentSpec
    """Written by the controller."""
    status: SplitAssignmentStatus | None = None
    """Written by the driver."""
