"""Everything one decision is made from. It is read in one go, before anything is decided."""

from dataclasses import dataclass, field
from datetime import datetime

from backfill.api.backfill import Backfill
from backfill.api.errors import Problem
from backfill.api.status import Attempt
from backfill.controller.decisions.policy import CLUSTER, Policy
from backfill.controller.driver import DriverState
from backfill.controller.jobs.kinds import JobState
from backfill.coordination.rate import Rate
from backfill.planning.plan import PlanHeader
from backfill.protocol.split_assignment import SplitAssignmentSpec, SplitAssignmentStatus


@dataclass(frozen=True, slots=True)
class Observed:
    """One Backfill and the world around it at one moment."""

    backfill: Backfill
    now: datetime
    workspace: str = ""
    """Where this Backfill's plan and checkpoints are, or will be."""
    parallelism: int = 1
    """Tasks that can run at once; decides how big files are split when the plan is made."""
    policy: Policy = CLUSTER
    """How decisions are made here."""
    shutting_down: bool = False
    """The controller was asked to end: the driver is to commit the step under way and stop."""
    obstacles: tuple[Problem, ...] = ()
    """Why no driver can be started here at all; looked for before planning and when an attempt is due."""
    header: PlanHeader | None = None
    """The plan named in the status; None before planning, and where it cannot be read."""
    plan_error: str = ""
    """Why the plan named in the status cannot be read."""
    rivals: tuple[str, ...] = ()
    """Other Backfills that will publish into the same window, a sentence for each; looked for when the plan is made only."""
    job: JobState | None = None
    """What the worker does, or did last."""
    driver: DriverState = field(default_factory=DriverState)
    assignment: SplitAssignmentSpec | None = None
    """What was last released, to whatever attempt."""
    report: SplitAssignmentStatus | None = None
    """What the driver of the current attempt reported last; reports of earlier attempts are left out."""
    report_age_seconds: float = 0.0
    """How long the current attempt has not been heard of, by the controller's own monotonic clock."""
    rate: Rate = field(default_factory=Rate)
    """Planned rows committed per second of late."""
    executor_rate: Rate = field(default_factory=Rate)
    """Planned rows that one executor committed of late per second of work."""
    next_child: str | None = None
    """The name that the next attempt's child will have; None where there are no names."""

    @property
    def attempt(self) -> Attempt | None:
        """The attempt that is not known to have ended."""
        return current_attempt(self.backfill.status.attempts)

    @property
    def plan(self) -> PlanHeader:
        """The plan, in phases that are only entered with one."""
        if self.header is None:
            raise AssertionError("no plan was observed")
        return self.header


def next_attempt_number(attempts: tuple[Attempt, ...]) -> int:
    """Attempts are counted from one, and a number is never given twice."""
    return attempts[-1].number + 1 if attempts else 1


def current_attempt(attempts: tuple[Attempt, ...]) -> Attempt | None:
    """The last attempt, if it is not known to have ended."""
    return attempts[-1] if attempts and attempts[-1].outcome == "Running" else None
