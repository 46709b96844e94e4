"""Everything that a decision depends on, read before anything is decided."""

from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from backfill.api.backfill import Backfill
from backfill.api.errors import Problem
from backfill.api.spark_application import Application
from backfill.api.spec import OrderingPolicy
from backfill.api.status import Attempt, DecisionStatus
from backfill.controller.decisions.policy import CLUSTER, Policy
from backfill.controller.driver import DriverState
from backfill.controller.jobs.any_job import JobState
from backfill.coordination.recent_rate import Rate
from backfill.coordination.timeline import SourceTimeline, Timeline
from backfill.coordination.watermarks import Watermarks, watermarks
from backfill.coordination.work_progress import Work, work
from backfill.planning.plan import PlanHeader
from backfill.protocol.hand_off_messages import LiveReport
from backfill.protocol.split_assignment import SplitAssignmentSpec, SplitAssignmentStatus


@dataclass(frozen=True)
class Observed:
    """A Backfill and its surroundings at one moment.

    Values that several decisions derive from them are computed once, when they are first needed.
    """

    backfill: Backfill
    now: datetime
    workspace: str = ""
    """Location of this Backfill's plan and checkpoints."""
    parallelism: int = 1
    """Number of tasks that can run at once. Planning splits large files by it."""
    application: Application | None = None
    """The application, while it is not known what it reads and writes."""
    policy: Policy = CLUSTER
    """How a watched run differs from one on a cluster."""
    shutting_down: bool = False
    """Whether the controller is shutting down:
    the driver must commit the steps in progress and stop.
    """
    obstacles: tuple[Problem, ...] = ()
    """Why no driver can be started at all. Checked before planning and when an attempt is due."""
    header: PlanHeader | None = None
    """Header of the plan that the status names; None before planning, or if it cannot be read."""
    plan_error: str = ""
    """Why the plan that the status names cannot be read."""
    rivals: tuple[str, ...] = ()
    """A warning for each other Backfill that will publish into the same window. Checked only when
    the plan is made.
    """
    decisions: tuple[DecisionStatus, ...] = ()
    """What people have decided about the present result."""
    job: JobState | None = None
    """The job in progress, or the last one."""
    driver: DriverState = field(default_factory=DriverState)
    assignment: SplitAssignmentSpec | None = None
    """The last assignment, of whichever attempt."""
    report: SplitAssignmentStatus | None = None
    """The last report of the current attempt's driver. Reports of earlier attempts are left out."""
    report_age_seconds: float = 0.0
    """Seconds since the current attempt's last report, by the controller's monotonic clock."""
    rate: Rate = field(default_factory=Rate)
    """Recent rate of planned rows committed, per second."""
    executor_rate: Rate = field(default_factory=Rate)
    """Recent rate of planned rows committed by one executor, per second of work."""
    live: DriverState | None = None
    """State of the live SparkApplication, once its name is recorded; None if it was not looked
    at.
    """
    live_report: LiveReport | None = None
    """The last report of the live application's driver."""
    next_child: str | None = None
    """Name of the next attempt's child; None if attempts have no child."""

    @property
    def attempt(self) -> Attempt | None:
        """The attempt that is not known to have ended."""
        return current_attempt(self.backfill.status.attempts)

    @property
    def plan(self) -> PlanHeader:
        """The plan header, in phases that require one."""
        if self.header is None:
            raise AssertionError("no plan was observed")
        return self.header

    @cached_property
    def timeline(self) -> Timeline:
        """The plan's timeline, in phases that require a plan."""
        header = self.plan
        return Timeline(
            starts_us=header.step_starts_us,
            ends_us=header.step_ends_us,
            read_end_us=header.inputs.read_end_us,
            sources=tuple(
                SourceTimeline(source.name, source.step_rows) for source in header.sources
            ),
            max_misalignment_us=header.inputs.max_misalignment_us,
            aligned=header.inputs.policy != OrderingPolicy.UNORDERED,
        )

    @cached_property
    def watermarks(self) -> Watermarks:
        """Watermarks by the current attempt's report, in phases that require a plan."""
        return watermarks(self.timeline, self.report)

    @cached_property
    def work(self) -> Work:
        """Work done and left by the current attempt's report, in phases that require a plan."""
        return work(self.timeline, self.report)


def next_attempt_number(attempts: tuple[Attempt, ...]) -> int:
    """Number of the next attempt. Numbers start at 1 and are never reused."""
    return attempts[-1].number + 1 if attempts else 1


def current_attempt(attempts: tuple[Attempt, ...]) -> Attempt | None:
    """The last attempt, unless it is known to have ended."""
    return attempts[-1] if attempts and attempts[-1].outcome == "Running" else None
