"""The container for jobs comes and goes, and the operator goes on."""

import logging
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from backfill.api.catalog_properties import GivenCatalog
from backfill.api.errors import BackfillError, BadInput
from backfill.controller.jobs import pool as pool_module
from backfill.controller.jobs.kinds.make_plan import PlanResult
from backfill.controller.jobs.kinds.verify import VerifyJob
from backfill.controller.jobs.pool import JobPool
from backfill.controller.manager.jobs_container_client import JobsContainer
from backfill.kube.object_names import Key
from job_hosts import HostedPlace
from situations import HEADER
from table_jobs import LOOPBACK, Clicks, ended, job_processes, silent_catalog
from waiting import PATIENCE_SECONDS, eventually

KEY = ("default", "january")
JOB = VerifyJob(HEADER, 1)


@pytest.fixture
def place() -> Iterator[HostedPlace]:
    made = HostedPlace()
    yield made
    made.close()


@pytest.fixture
def pool(place: HostedPlace) -> Iterator[JobPool]:
    made = JobPool(lambda _key: {}, place=place, addresses=LOOPBACK)
    yield made
    made.close()


def test_a_container_that_is_lost_fails_its_jobs_which_may_be_tried_again_and_the_next_one_does_them(
    place: HostedPlace, pool: JobPool, tmp_path: Path
) -> None:
    clicks = Clicks(tmp_path)
    pool.directories = (tmp_path,)
    runner, job = pool.runner(KEY, lambda: None), clicks.plan_job()
    with silent_catalog() as silent, pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "catalogs", given(silent))
        runner.start(job)
        eventually(job_processes, "the process")
        place.hosts[0].kill()
        error = ended(runner, job).error
    assert isinstance(error, BackfillError) and not isinstance(error, BadInput), (
        "it is worth another try"
    )
    assert (
        "the operator's container for jobs has ended, possibly for lack of memory; it is started"
        " again" in str(error)
    )
    runner.start(job)
    waiting = eventually(lambda: (state := runner.state) and state.waits_for, "the wait is told")
    assert waiting == "the operator's container for jobs"
    pool.catalogs = given(clicks.properties)
    place.restart()
    assert isinstance(ended(runner, job).result, PlanResult)


def test_where_no_container_comes_the_job_fails_and_says_where_to_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool_module, "PLACE_SECONDS", 0.5)
    pool = JobPool(lambda _key: {}, place=HostedPlace(start=False))
    try:
        runner = pool.runner(KEY, lambda: None)
        runner.start(JOB)
        assert "check the operator's pods with kubectl describe" in str(ended(runner, JOB).error)
    finally:
        pool.close()


def test_a_job_that_is_abandoned_while_there_is_no_container_never_begins() -> None:
    place = HostedPlace(start=False)
    pool = JobPool(lambda _key: {}, place=place)
    try:
        runner = pool.runner(KEY, lambda: None)
        runner.start(JOB)
        eventually(lambda: (state := runner.state) and "container" in state.waits_for, "the wait")
        runner.cancel()
        place.restart()
        eventually(lambda: place.ready(0), "the container")
        assert runner.state is None
        assert not job_processes()
    finally:
        pool.close()


def test_the_container_ends_with_the_operator_and_its_jobs_with_it(
    place: HostedPlace, pool: JobPool, tmp_path: Path
) -> None:
    with silent_catalog() as silent, pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "catalogs", given(silent))
        pool.runner(KEY, lambda: None).start(Clicks(tmp_path).plan_job())
        eventually(job_processes, "the process")
        # a pod that is deleted: the operator comes to an end first, and its jobs with it
        place.hosts[0].terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            place.hosts[0].wait(0.5)
        pool.close()
        assert place.hosts[0].wait(PATIENCE_SECONDS) == 0
    assert not job_processes()


def test_a_container_that_waits_for_an_operator_ends_when_it_is_asked_to() -> None:
    place = HostedPlace(start=False)
    JobsContainer.close(place)  # nobody listens
    place.restart()
    eventually(lambda: handles(place.hosts[0].pid, signal.SIGTERM), "it waits")
    place.hosts[0].terminate()
    assert place.hosts[0].wait(PATIENCE_SECONDS) == 0
    place.close()


def test_secrets_in_the_containers_environment_are_neither_in_errors_nor_in_the_operators_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clicks, place = Clicks(tmp_path), HostedPlace(start=False)
    place.restart(
        AWS_SECRET_ACCESS_KEY="hunter22", PYICEBERG_CATALOG__LAKE__URI="http://hunter22.invalid"
    )
    pool = JobPool(
        lambda _key: {"lake": GivenCatalog({}, own=True)}, place=place, directories=(tmp_path,)
    )
    try:
        runner, job = pool.runner(KEY, lambda: None), clicks.plan_job()
        with caplog.at_level(logging.INFO):
            runner.start(job)
            error = str(ended(runner, job).error)
        assert "catalog lake cannot be opened" in error
        assert "opened at ***.invalid" in error
        eventually(lambda: "job failed" in caplog.text, "the log")
        assert "hunter22" not in error + caplog.text
    finally:
        pool.close()


def test_only_the_group_of_the_socket_may_connect() -> None:
    place = HostedPlace(start=False)
    assert stat.S_IMODE(place.path.stat().st_mode) == 0o660
    place.close()


def test_where_nobody_can_listen_the_operator_says_so_and_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(
        BackfillError, match=r"--jobs-socket: cannot listen on .*no-directory/socket"
    ):
        JobsContainer(tmp_path / "no-directory" / "socket")


def given(properties: Mapping[str, str]) -> Callable[[Key], dict[str, GivenCatalog]]:
    return lambda _key: {"lake": GivenCatalog(properties)}


def handles(pid: int, number: signal.Signals) -> bool:
    """Whether a process does something of its own at a signal."""
    caught = next(
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("SigCgt")
    )
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)
