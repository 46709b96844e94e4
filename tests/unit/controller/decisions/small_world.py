"""A world around one Backfill in which anything may happen at any time, and which does what is
decided.
"""

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from backfill.api.conditions import ConditionType, find_condition
from backfill.api.status import BackfillStatus, OutputStatus
from backfill.controller.decisions.actions import (
    Action,
    CancelJob,
    KillDriver,
    RemoveAssignment,
    RemoveResource,
    StartDriver,
    StartJob,
    WriteAssignment,
)
from backfill.controller.decisions.decide import decide
from backfill.controller.decisions.observed import Observed, next_attempt_number
from backfill.controller.driver import DriverState
from backfill.controller.jobs.any_job import Job, JobState
from backfill.controller.jobs.kinds.make_plan import PlanJob, PlanResult
from backfill.controller.jobs.kinds.publish import PublishJob, PublishResult
from backfill.controller.jobs.kinds.settle import SettleJob, SettleResult, Totals
from backfill.protocol.split_assignment import SplitAssignmentSpec, SplitAssignmentStatus
from situations import HEADER, NOW, STEPS, backfill, reported

ABSENT = DriverState("Absent")


class SmallWorld:
    """What is true, apart from what a controller believes. Its controller can be killed between any
    two acts.
    """

    def __init__(self) -> None:
        self.now = NOW
        self.status = BackfillStatus()
        self.spec: dict[str, Any] = {"failurePolicy": {"maxAttempts": 3, "backoff": "10s"}}
        self.generation = 1
        self.deleted_at: datetime | None = None
        self.removed = False
        self.writes = 0
        self.job: JobState | None = None
        self.assignment: SplitAssignmentSpec | None = None
        self.report: SplitAssignmentStatus | None = None
        self.heard_at = NOW
        self.drivers: dict[int, DriverState] = {}
        self.made: Counter[int] = Counter()
        self.committed = 0

    @property
    def alive(self) -> int | None:
        """The attempt whose driver works or may begin to."""
        found = [number for number, driver in self.drivers.items() if driver.alive]
        assert len(found) <= 1, "two drivers at once"
        return found[0] if found else None

    def observe(self) -> Observed:
        resource = backfill(self.status, generation=self.generation, **self.spec)
        resource = resource.model_copy(
            update={
                "metadata": resource.metadata.model_copy(
                    update={"deletion_timestamp": self.deleted_at}
                )
            }
        )
        header = HEADER if self.status.plan_id else None
        child = f"january-a{next_attempt_number(self.status.attempts)}"
        seen = Observed(
            resource,
            self.now,
            "/work",
            header=header,
            job=self.job,
            assignment=self.assignment,
            next_child=child,
        )
        attempt = seen.attempt
        if attempt is None:
            return seen
        own = self.report if self.report and self.report.attempt == attempt.number else None
        heard_at = max(self.heard_at, attempt.started_at)
        age = (self.now - heard_at).total_seconds()
        return replace(
            seen,
            driver=self.drivers.get(attempt.number, ABSENT),
            report=own,
            report_age_seconds=age,
        )

    def turn(self, survives: int = 99) -> bool:
        """One turn; whether anything was written or done. The controller is killed after
        ``survives`` acts.
        """
        decision = decide(self.observe())
        busy = decision.status != self.status or bool(decision.next.actions)
        if decision.status != self.status:
            self.writes += 1
            self.status = decision.status
        for action in decision.next.actions[:survives]:
            self._act(action)
        if survives < len(decision.next.actions):
            self.job = None  # jobs die with their controller
        return busy

    def settle(self) -> None:
        """Turns until nothing is to be done before something happens or time passes."""
        for _ in range(12):
            if self.removed or not self.turn():
                return
        assert all(
            isinstance(action, CancelJob | KillDriver | StartDriver | WriteAssignment)
            for action in self._wanted()
        ), self._wanted()
        assert decide(self.observe()).status == self.status, (
            "it goes on writing though nothing happens"
        )

    def _wanted(self) -> tuple[Action, ...]:
        return decide(self.observe()).next.actions

    def _act(self, action: Action) -> None:
        match action:
            case StartJob(job):
                self.job = JobState(job, "Running")
            case CancelJob():
                self.job = None
            case WriteAssignment(assignment):
                old = self.assignment
                assert old is None or assignment.attempt >= old.attempt, (
                    "an older attempt was told something"
                )
                if old is not None and assignment.attempt == old.attempt:
                    assert assignment.released >= old.released, "a release was taken back"
                    assert assignment.stop or not old.stop, "a stop was taken back"
                self.assignment = assignment
            case RemoveAssignment():
                assert self.alive is None, "a driver loses its assignment"
                self.assignment = None
            case StartDriver(attempt):
                assert self.alive in (None, attempt), "a driver beside another"
                assert self.status.attempts[-1].number == attempt, "started before it was recorded"
                if attempt not in self.drivers:
                    self.drivers[attempt] = DriverState(
                        "Pending", reason="Submitted", since=self.now
                    )
                    self.made[attempt] += 1
            case KillDriver(attempt):
                if self.drivers.get(attempt, ABSENT).alive:
                    self.drivers[attempt] = DriverState("Running", reason="Terminating")
            case RemoveResource():
                self.removed = True

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def say(self, phase: str, committed: int) -> None:
        """The living driver reports."""
        if self.alive is not None:
            self.report = reported(
                phase, committed=committed, number=self.alive, heartbeat=self.now
            )
            self.heard_at = self.now

    def commit_what_is_released(self) -> None:
        """The living driver does what it may, and ends when it is told to or all is done."""
        if (
            self.alive is None
            or self.drivers[self.alive].phase != "Running"
            or self.assignment is None
        ):
            return
        self.committed = max(self.committed, self.assignment.released)
        if self.assignment.stop or self.committed == STEPS:
            number = self.alive
            self.say(
                "Stopped" if self.assignment.stop else "Finished",
                self.committed + (not self.assignment.stop),
            )
            self.drivers[number] = DriverState("Exited", 0)
        else:
            self.say("Running", self.committed)

    def edit(self, **fields: object) -> None:
        """A person changes the spec."""
        if any(self.spec.get(key) != value for key, value in fields.items()):
            self.spec |= fields
            self.generation += 1

    def end_job(self, error: Exception | None) -> None:
        if self.job is not None and self.job.phase == "Running":
            ended = (
                replace(self.job, phase="Failed", error=error)
                if error
                else replace(self.job, phase="Done")
            )
            self.job = ended if error else replace(ended, result=_result(self.job.job))

    @property
    def outcome(self) -> str:
        found = find_condition(self.status.conditions, ConditionType.SUCCEEDED)
        return found.status if found else "Unknown"


def _result(job: Job) -> object:
    match job:
        case PlanJob():
            return PlanResult(
                HEADER, (OutputStatus(name="counts", table="lake.ops.counts", base_snapshot_id=7),)
            )
        case SettleJob():
            return SettleResult(
                {"counts": Totals("backfill/january", rows=40, rows_outside_window=0)}
            )
        case PublishJob():
            return PublishResult("counts", 99)
        case _:
            return None
