"""One reconcile of the controller: observe, decide, record, act.

It may be killed between any two lines.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from backfill.api.backfill import Backfill
from backfill.api.errors import BackfillError, BadInput, ConflictError, PlanCorrupt, Problem
from backfill.api.status import BackfillStatus
from backfill.api.validation import to_compare
from backfill.controller.decisions.actions import (
    Action,
    CancelJob,
    Decision,
    KillDriver,
    RemoveAssignment,
    RemoveResource,
    StartDriver,
    StartJob,
    StartLive,
    WriteAssignment,
)
from backfill.controller.decisions.decide import decide, finished
from backfill.controller.decisions.deleting import removal_overdue
from backfill.controller.decisions.observed import Observed, next_attempt_number
from backfill.controller.decisions.overlapping_backfills import rivals, tables_of_rivals
from backfill.controller.decisions.policy import CLUSTER, Policy
from backfill.controller.decisions.run.attempts import seconds_until_attempt
from backfill.controller.decisions.run.measured_rates import Meter
from backfill.controller.decisions.run.received_plans import is_of_status
from backfill.controller.driver import Backend, DriverState, Launch
from backfill.controller.interfaces import Channel, JobRunner, LiveApplication, Plans, Store
from backfill.controller.jobs.any_job import JobState
from backfill.controller.jobs.kinds.extend import Extension
from backfill.controller.jobs.kinds.make_plan import PlanResult
from backfill.planning.plan import PlanHeader, plan_directory
from backfill.planning.workspace import Workspace, checkpoints
from backfill.protocol.split_assignment import SplitAssignmentStatus

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What a reconcile observed and decided."""

    observed: Observed
    decision: Decision


class Reconciler:
    """Reconciles one Backfill.

    Its only state that cannot be read again is when the driver last reported.
    """

    def __init__(
        self,
        store: Store,
        plans: Plans,
        backend: Backend,
        channel: Channel,
        jobs: JobRunner,
        *,
        live: LiveApplication | None = None,
        progress_every_seconds: float = 0.5,
        policy: Policy = CLUSTER,
        leads: Callable[[], bool] = lambda: True,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ):
        """Keeps what reconciles work with.

        Args:
            store: storage of the resource.
            plans: storage of plan headers.
            backend: runs drivers.
            channel: communicates with drivers.
            jobs: runs work that takes longer than a reconcile.
            live: runs the live application after the hand-off; none on this machine.
            progress_every_seconds: minimum time between two status writes in which only progress
                changes.
            policy: how a watched run differs from one on a cluster.
            leads: whether this process may still act.
            monotonic: a monotonic clock, in seconds.
            clock: the clock for times in the resource.
        """
        self._store = store
        self._plans = plans
        self._backend = backend
        self._channel = channel
        self._jobs = jobs
        self._live = live
        self._progress_every_seconds = progress_every_seconds
        self._policy = policy
        self._leads = leads
        self._monotonic = monotonic
        self._clock = clock
        self._withheld: tuple[BackfillStatus, BackfillStatus] | None = None
        """The recorded status, and the one to be recorded in its place."""
        self._recorded_at = -progress_every_seconds
        self._meter = Meter()
        self.shutting_down = False
        """Set to end in good order: the driver stops after the step under way."""

    @property
    def withheld_seconds(self) -> float | None:
        """Seconds until progress that the last reconcile did not write may be written;
        None if there is none.
        """
        return (
            None
            if self._withheld is None
            else max(self._recorded_at + self._progress_every_seconds - self._monotonic(), 0.0)
        )

    def reconcile(self) -> Reconciled | None:
        """Observes, decides, records and acts. None if the resource no longer exists.

        Raises:
            ConflictError: something changed since it was observed, or this process no longer leads;
                reconcile again.
        """
        backfill = self._store.load()
        if backfill is None:
            return None
        observed = self._observe(self._with_withheld(backfill))
        decision = decide(observed)
        try:
            decision = self._with_kept_plan(observed, decision)
        except BadInput as error:
            if observed.job is None or not isinstance(observed.job.result, Extension):
                raise
            kept_as_it_is = replace(observed.job, result=Extension(reason=str(error)))
            observed = replace(observed, job=kept_as_it_is)
            decision = decide(observed)
        self._record_if_it_matters(backfill.status, decision)
        for action in decision.next.actions:
            if not self._leads():  # another operator may have decided otherwise since
                raise ConflictError("this process no longer leads")
            self._act(action, observed, decision.status)
        return Reconciled(observed, decision)

    def _with_withheld(self, backfill: Backfill) -> Backfill:
        """The Backfill with progress that was not written yet,
        unless another status has been recorded since.
        """
        recorded, status = self._withheld or (None, None)
        return (
            backfill.model_copy(update={"status": status})
            if recorded == backfill.status
            else backfill
        )

    def _observe(self, backfill: Backfill) -> Observed:
        """Observes only what is needed: a deletion must not wait for what is gone, nor a restart
        for what is over.
        """
        now = self._clock()
        at_work = backfill.metadata.deletion_timestamp is None and not finished(backfill)
        header, plan_error = self._plan(backfill) if at_work else (None, "")
        unplanned = at_work and backfill.status.plan_id is None
        workspace, nowhere = self._place(backfill)
        job = self._jobs.state
        observed = Observed(
            backfill=backfill,
            now=now,
            workspace=workspace,
            parallelism=self._backend.parallelism if unplanned else 1,
            application=(
                self._backend.application if unplanned and backfill.spec.is_short else None
            ),
            policy=self._policy,
            shutting_down=self.shutting_down,
            obstacles=(
                tuple(self._backend.obstacles()) or nowhere
                if at_work and _is_to_start(backfill, now)
                else ()
            ),
            header=header,
            plan_error=plan_error,
            rivals=self._rivals(backfill, job) if unplanned else (),
            decisions=self._store.decisions(backfill) if backfill.status.result else (),
            job=job,
            assignment=self._channel.assignment(),
            next_child=self._backend.child(next_attempt_number(backfill.status.attempts)),
        )
        if at_work and backfill.status.attempts:
            observed = self._with_live(observed)
        attempt = observed.attempt
        if attempt is None or (removal_overdue(backfill, now) and self._policy.abandons_removals):
            return observed
        driver = self._driver(attempt.number)
        report = self._report(attempt.number, newest=not driver.alive)
        observed = replace(observed, driver=driver, report=report)
        self._meter.note(attempt.number, observed, self._monotonic())
        return replace(
            observed,
            report_age_seconds=self._meter.silence(self._monotonic()),
            rate=self._meter.rate,
            executor_rate=self._meter.executor_rate,
        )

    def _with_live(self, observed: Observed) -> Observed:
        """The observation with the live application, once its name is recorded."""
        handed = observed.backfill.status.hand_off
        if self._live is None or handed is None or handed.application is None:
            return observed
        report = self._channel.report()
        return replace(
            observed,
            live=self._live.observe(handed.application),
            live_report=report.live if report is not None else None,
        )

    def _rivals(self, backfill: Backfill, job: JobState | None) -> tuple[str, ...]:
        """Looks for rivals only once there is a plan to record,
        because that goes through all Backfills.
        """
        if job is None or not isinstance(job.result, PlanResult):
            return ()
        return rivals(
            backfill,
            self._store.writers_of(tables_of_rivals(backfill)),
            one_owner=self._policy.one_process,
        )

    def _place(self, backfill: Backfill) -> tuple[str, tuple[Problem, ...]]:
        """Location of the Backfill's plan and checkpoints, or why there is none. Before there is a
        plan, the spec may still be corrected.
        """
        if backfill.status.workspace and backfill.status.plan_id is not None:
            return backfill.status.workspace, ()
        try:
            return self._store.workspace(backfill.spec).uri, ()
        except BadInput as error:
            return "", error.problems

    def _plan(self, backfill: Backfill) -> tuple[PlanHeader | None, str]:
        try:
            return self._plans.header(backfill), ""
        except PlanCorrupt as error:
            return None, str(error)

    def _with_kept_plan(self, observed: Observed, decision: Decision) -> Decision:
        """Stores a plan that is new or was lost, before a status names it. With each attempt that
        is made before anything was read, production's application is stored as it is then.
        """
        result = observed.job.result if observed.job else None
        plan_id = observed.backfill.status.newest_plan_id
        new = decision.status.newest_plan_id != plan_id
        if isinstance(result, PlanResult | Extension) and result.header is not None and new:
            header = result.header
        elif (
            isinstance(result, PlanHeader)
            and observed.plan_error
            and is_of_status(result, observed.backfill.status)
        ):
            header = result
        elif observed.backfill.status.watermark is None and any(
            isinstance(action, StartDriver) for action in decision.next.actions
        ):
            header = observed.plan
        else:
            return decision
        kept = {"application_digest": self._plans.keep(observed.backfill, header)}
        return replace(decision, status=decision.status.model_copy(update=kept))

    def _report(self, attempt: int, *, newest: bool) -> SplitAssignmentStatus | None:
        report = self._channel.report(newest=newest)
        return report if report is not None and report.attempt == attempt else None

    def _driver(self, attempt: int) -> DriverState:
        state = self._backend.observe(attempt)
        return (
            replace(state, log_tail=self._backend.log_tail(attempt))
            if state.phase == "Exited"
            else state
        )

    def _record_if_it_matters(self, recorded: BackfillStatus, decision: Decision) -> None:
        """Records the status. A failure to do so does not prevent the deletion of the resource."""
        try:
            self._record(recorded, decision)
        except BackfillError as error:
            if RemoveResource() not in decision.next.actions:
                raise
            _LOG.warning("deleted without its last status, which could not be written: %s", error)

    def _record(self, recorded: BackfillStatus, decision: Decision) -> None:
        """Writes progress at intervals, and everything else at once, before it is acted on."""
        status, now = decision.status, self._monotonic()
        self._withheld = None  # if it cannot be recorded, it is discarded
        if status == recorded:
            return
        due = now - self._recorded_at >= self._progress_every_seconds or decision.next.at_rest
        if due or _without_progress(status) != _without_progress(recorded):
            self._store.write_status(status)
            self._recorded_at = now
        else:
            self._withheld = recorded, status

    def _act(self, action: Action, observed: Observed, status: BackfillStatus) -> None:
        match action:
            case StartJob(job):
                self._jobs.start(job)
            case CancelJob():
                self._jobs.cancel()
            case WriteAssignment(assignment):
                self._channel.write(assignment)
            case RemoveAssignment():
                self._channel.remove()
            case StartDriver(attempt):
                self._backend.start(self._launch(attempt, observed, status))
            case KillDriver(attempt):
                self._backend.kill(attempt)
            case StartLive():
                if self._live is None:
                    raise AssertionError("a live application needs a cluster")
                self._live.start(observed.backfill.model_copy(update={"status": status}))
            case RemoveResource():
                self._jobs.close()
                self._store.delete()

    def _launch(self, attempt: int, observed: Observed, status: BackfillStatus) -> Launch:
        backfill = observed.backfill.model_copy(update={"status": status})
        workspace = Workspace.of(backfill, observed.workspace)
        return Launch(
            attempt,
            backfill,
            observed.plan.plan_id,
            plan_directory(workspace, observed.plan.inputs.own_id()),
            checkpoints(workspace).child(backfill.metadata.uid),
        )


def _is_to_start(backfill: Backfill, now: datetime) -> bool:
    """Whether the Backfill must be planned, or its next attempt is due."""
    status = backfill.status
    if status.plan_id is None:
        return True
    idle = (
        not status.attempts
        or status.attempts[-1].outcome in {"Failed", "Stopped"}
        or (
            status.attempts[-1].outcome == "Succeeded"
            and bool(to_compare(backfill) or status.delivering)
        )
    )
    return (
        idle
        and not backfill.spec.suspend
        and not seconds_until_attempt(status, backfill.metadata.generation, now)
    )


def _without_progress(status: BackfillStatus) -> BackfillStatus:
    handed = status.hand_off.without_lag if status.hand_off is not None else None
    outputs = tuple(output.without_progress for output in status.outputs)
    fields = {
        "progress": None,
        "sources": (),
        "watermark": None,
        "hand_off": handed,
        "outputs": outputs,
    }
    return status.model_copy(update=fields)
