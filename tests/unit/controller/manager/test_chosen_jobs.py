"""Where jobs are done follows the spec."""

import pytest

from backfill.api.backfill import Backfill
from backfill.api.errors import BadInput
from backfill.controller.jobs.any_job import Job, JobState
from backfill.controller.jobs.kinds.verify import VerifyJob
from backfill.controller.manager.process_or_pod_jobs import ChosenJobs
from situations import HEADER, backfill

JOB = VerifyJob(HEADER, 1)
IN_POD = backfill(planning={"runIn": "Pod"})


class FakeRunner:
    """Remembers the job it was given."""

    def __init__(self) -> None:
        self.state: JobState | None = None
        self.closed = False

    def start(self, job: Job) -> None:
        self.state = JobState(job, "Running")

    def cancel(self) -> None:
        self.state = None

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def runners() -> tuple[FakeRunner, FakeRunner]:
    return FakeRunner(), FakeRunner()


@pytest.mark.parametrize(
    ("resource", "chosen"),
    [(backfill(), 0), (IN_POD, 1), (None, 0)],
    ids=["operator", "pod", "gone"],
)
def test_a_job_is_done_where_the_spec_says(
    runners: tuple[FakeRunner, FakeRunner], resource: Backfill | None, chosen: int
) -> None:
    jobs = ChosenJobs(lambda: resource, *runners)
    assert jobs.state is None
    jobs.start(JOB)
    assert jobs.state == runners[chosen].state == JobState(JOB, "Running")
    assert runners[1 - chosen].state is None


def test_a_job_that_moves_is_not_done_in_two_places(runners: tuple[FakeRunner, FakeRunner]) -> None:
    resources = [backfill(), IN_POD]
    jobs = ChosenJobs(lambda: resources.pop(0), *runners)
    jobs.start(JOB)
    jobs.start(JOB)
    assert runners[0].state is None
    assert jobs.state is not None
    jobs.cancel()
    assert jobs.state is None
    jobs.close()
    assert all(runner.closed for runner in runners)


@pytest.mark.hostile
def test_a_namespace_that_is_not_trusted_has_no_job_in_the_operator(
    runners: tuple[FakeRunner, FakeRunner],
) -> None:
    resources = [backfill(), IN_POD]
    jobs = ChosenJobs(lambda: resources.pop(0), *runners, lambda namespace: namespace == "trusted")
    jobs.start(JOB)
    assert runners[0].state is None
    assert jobs.state is not None
    assert isinstance(jobs.state.error, BadInput)
    (problem,) = jobs.state.error.problems
    assert problem.field == "spec.planning.runIn"
    assert "set planning.runIn: Pod" in problem.fix
    jobs.start(JOB)
    assert jobs.state == runners[1].state == JobState(JOB, "Running")
