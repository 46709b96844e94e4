"""What a turn does with what it has decided, on the files of this machine."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from backfill.api.conditions import ConditionType, Reason, find_condition
from backfill.api.errors import ConflictError, Problem
from backfill.api.spark_application import Application
from backfill.api.spec import BackfillSpec
from backfill.api.status import BackfillStatus
from backfill.controller.decisions.deleting import REMOVAL_LIMIT
from backfill.controller.driver import DriverState, Launch
from backfill.controller.jobs.any_job import Job, JobState
from backfill.controller.jobs.kinds.make_plan import PlanJob
from backfill.controller.local.channel import ControllerChannel
from backfill.controller.local.plan_headers import StoredPlans
from backfill.controller.local.store import LocalStore
from backfill.controller.reconcile import Reconciler
from backfill.kube.request_errors import Forbidden
from situations import backfill, planned

APPLICATION = Application(name="app", main_application_file="/app/main.py")


class FakeBackend:
    """Has no drivers, and nothing against one."""

    parallelism = 1

    def obstacles(self) -> tuple[Problem, ...]:
        return ()

    def child(self, attempt: int) -> str:
        return f"january-a{attempt}"

    def start(self, launch: Launch) -> None:
        raise AssertionError("no driver is due")

    def observe(self, attempt: int) -> DriverState:
        return DriverState("Absent")

    def kill(self, attempt: int) -> None:
        raise AssertionError("there is no driver")

    def log_tail(self, attempt: int) -> tuple[str, ...]:
        return ()


class FakeJobs:
    """Takes jobs and does not come to their end."""

    def __init__(self) -> None:
        self.state: JobState | None = None

    def start(self, job: Job) -> None:
        self.state = JobState(job, "Running")

    def cancel(self) -> None:
        self.state = None

    def close(self) -> None:
        self.state = None


class UnwritableStatus(LocalStore):
    """Whose status cannot be written, for a reason."""

    why: Exception = Forbidden("may not patch backfills/status", 403)

    def write_status(self, status: BackfillStatus) -> None:
        raise self.why


@pytest.fixture
def store(tmp_path: Path) -> UnwritableStatus:
    return UnwritableStatus(tmp_path, "default", "january")


def reconciler(store: LocalStore, jobs: FakeJobs) -> Reconciler:
    return Reconciler(store, StoredPlans(), FakeBackend(), ControllerChannel(store.directory), jobs)


def spec(**fields: Any) -> BackfillSpec:
    return backfill(**fields).spec


def planned_where(jobs: FakeJobs) -> str:
    assert jobs.state is not None
    assert isinstance(jobs.state.job, PlanJob)
    return jobs.state.job.workspace.uri


def test_a_workspace_may_be_corrected_until_there_is_a_plan(tmp_path: Path) -> None:
    store, jobs = LocalStore(tmp_path, "default", "january"), FakeJobs()
    store.create(backfill(workspace="/wrong"), APPLICATION)
    turns = reconciler(store, jobs)
    turns.reconcile()
    assert planned_where(jobs) == "/wrong/default/january"
    store.apply(spec(workspace="/right"), APPLICATION)
    turn = turns.reconcile()
    assert planned_where(jobs) == "/right/default/january"
    assert turn is not None
    assert turn.decision.status.workspace == "/right/default/january"


def deleted(store: LocalStore, ago: timedelta) -> None:
    resource = backfill(planned())
    asked = datetime.now(UTC) - ago
    store.create(
        resource.model_copy(
            update={"metadata": resource.metadata.model_copy(update={"deletion_timestamp": asked})}
        ),
        APPLICATION,
    )


def test_a_deletion_whose_status_can_not_be_written_ends_all_the_same_after_its_limit(
    store: UnwritableStatus,
) -> None:
    deleted(store, REMOVAL_LIMIT)
    turn = reconciler(store, FakeJobs()).reconcile()
    assert turn is not None
    last = find_condition(turn.decision.status.conditions, ConditionType.SUCCEEDED)
    assert last is not None
    assert last.reason == Reason.CLEANUP_INCOMPLETE
    assert store.load() is None


def test_before_the_limit_a_status_that_can_not_be_written_is_tried_again(
    store: UnwritableStatus,
) -> None:
    deleted(store, REMOVAL_LIMIT / 2)
    jobs = FakeJobs()
    with pytest.raises(Forbidden):
        reconciler(store, jobs).reconcile()
    assert store.load() is not None
    assert jobs.state is None, "nothing is done that is not recorded"


def test_what_has_changed_since_it_was_decided_on_is_not_let_go_of(store: UnwritableStatus) -> None:
    deleted(store, REMOVAL_LIMIT)
    store.why = ConflictError("it has changed")
    with pytest.raises(ConflictError):
        reconciler(store, FakeJobs()).reconcile()
    assert store.load() is not None


def test_a_process_that_no_longer_leads_does_nothing_more_of_what_it_has_decided(
    tmp_path: Path,
) -> None:
    store, jobs = LocalStore(tmp_path, "default", "january"), FakeJobs()
    store.create(backfill(workspace="/work"), APPLICATION)
    channel = ControllerChannel(store.directory)
    turns = Reconciler(store, StoredPlans(), FakeBackend(), channel, jobs, leads=lambda: False)
    with pytest.raises(ConflictError):
        turns.reconcile()
    assert jobs.state is None
