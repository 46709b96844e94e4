"""Jobs in the operator's pool of processes, on real tables."""

import logging
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from backfill.api.catalog_properties import GivenCatalog
from backfill.api.errors import BadInput, Problem
from backfill.controller.jobs.kinds.make_plan import PlanResult
from backfill.controller.jobs.kinds.verify import VerifyJob
from backfill.controller.jobs.pool import BesideOperator, JobPlace, JobPool, JobUsage, Key
from job_hosts import HostedPlace
from situations import HEADER
from table_jobs import LOOPBACK, Clicks, ended, job_processes, silent_catalog
from waiting import eventually

KEY = ("default", "january")
MIB = 2**20


@pytest.fixture
def clicks(tmp_path: Path) -> Clicks:
    return Clicks(tmp_path / "lake")


class Pools:
    """Makes pools that know one catalog, and ends them."""

    def __init__(self, directory: Path, place: Callable[[], JobPlace]) -> None:
        self.usages: list[JobUsage] = []
        self._place = place
        self._directory = directory
        self._made: list[JobPool] = []

    def __call__(self, properties: Mapping[str, str], **options: Any) -> JobPool:
        def catalogs(_key: Key) -> Mapping[str, GivenCatalog]:
            return {"lake": GivenCatalog(properties)}

        options.setdefault("directories", (self._directory,))
        options.setdefault("addresses", LOOPBACK)
        self._made.append(
            JobPool(catalogs, place=self._place(), on_used=self.usages.append, **options)
        )
        return self._made[-1]

    def close(self) -> None:
        for pool in self._made:
            pool.close()


@pytest.fixture(params=[BesideOperator, HostedPlace])
def pools(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pools]:
    """Wherever the processes are, a job is done in the same way."""
    made = Pools(tmp_path, request.param)
    yield made
    made.close()


def test_a_job_has_the_credentials_of_its_backfill_and_gives_the_plan_that_this_process_makes(
    clicks: Clicks, pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: list[str] = []
    runner = pools(clicks.properties).runner(KEY, lambda: changes.append("change"))
    job = clicks.plan_job()
    runner.start(job)
    state = ended(runner, job)
    assert isinstance(state.result, PlanResult), state.error
    for name, value in clicks.properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    assert state.result.header == clicks.plan_here()
    assert len(changes) >= 2, "the beginning and the end are told"


def test_what_a_job_took_is_measured(clicks: Clicks, pools: Pools) -> None:
    runner = pools(clicks.properties).runner(KEY, lambda: None)
    runner.start(clicks.plan_job())
    usage = eventually(lambda: pools.usages and pools.usages[0], "the usage")
    assert (usage.key, usage.kind, usage.outcome) == (KEY, "plan", "Done")
    assert 0.2 < usage.seconds < 60
    assert 80 * MIB < usage.peak_bytes < 1000 * MIB


def test_no_more_jobs_run_than_there_are_processes_and_the_others_follow_in_order(
    clicks: Clicks, pools: Pools
) -> None:
    with silent_catalog() as properties:
        pool = pools(properties, processes=2)
        runners = [
            pool.runner(("default", f"backfill-{number}"), lambda: None) for number in range(4)
        ]
        for runner in runners:
            runner.start(clicks.plan_job())
        eventually(lambda: len(job_processes()) == 2, "two processes")
        assert [runner.state and runner.state.waits_for for runner in runners] == [
            "",
            "",
            "its turn",
            "its turn",
        ]
        runners[1].cancel()
        eventually(
            lambda: runners[2].state and not runners[2].state.waits_for, "the third one's turn"
        )
        assert runners[1].state is None
        assert runners[3].state is not None
        assert runners[3].state.waits_for == "its turn"


def test_the_waiting_job_of_a_backfill_that_is_gone_is_dropped(
    clicks: Clicks, pools: Pools
) -> None:
    with silent_catalog() as properties:
        pool = pools(properties, processes=1)
        first, gone, last = (
            pool.runner(("default", name), lambda: None) for name in ("first", "gone", "last")
        )
        for runner in (first, gone, last):
            runner.start(clicks.plan_job())
        gone.close()
        first.cancel()
        eventually(lambda: last.state and not last.state.waits_for, "the last one's turn")
        assert gone.state is None


def test_a_job_that_is_cancelled_ends_at_once(clicks: Clicks, pools: Pools) -> None:
    with silent_catalog() as properties:
        runner = pools(properties).runner(KEY, lambda: None)
        runner.start(clicks.plan_job())
        eventually(job_processes, "the process")
        runner.cancel()
        assert runner.state is None
        eventually(lambda: not job_processes(), "the end of the process")
    assert pools.usages == []


def test_another_job_takes_the_place_of_the_one_under_way(clicks: Clicks, pools: Pools) -> None:
    with silent_catalog() as properties:
        runner = pools(properties, processes=1).runner(KEY, lambda: None)
        runner.start(clicks.plan_job())
        eventually(job_processes, "the process")
        check = VerifyJob(HEADER, 1)
        runner.start(check)
        assert ended(runner, check).phase == "Done", "that plan has no sources"


def test_a_job_that_needs_more_memory_than_allowed_fails_and_says_what_to_do(
    clicks: Clicks, pools: Pools
) -> None:
    runner = pools(clicks.properties, memory_bytes=80 * MIB).runner(KEY, lambda: None)
    job = clicks.plan_job()
    runner.start(job)
    state = ended(runner, job)
    assert (
        str(state.error)
        == "the plan job needs more than 80 MiB of memory: raise the operator's --job-memory, or"
        " set planning.runIn: Pod"
    )
    eventually(lambda: not job_processes(), "the end of the process")


def test_a_job_that_never_ends_does_not_hold_up_the_others(clicks: Clicks, pools: Pools) -> None:
    with silent_catalog() as properties:
        pool = pools(properties, processes=1, longest_seconds=2.0)
        first, second = (
            pool.runner(("default", name), lambda: None) for name in ("first", "second")
        )
        job = clicks.plan_job()
        first.start(job)
        second.start(job)
        assert "has not finished in 2 s" in str(ended(first, job).error)
        eventually(lambda: second.state and not second.state.waits_for, "the second one's turn")


@pytest.mark.hostile
def test_a_catalog_that_never_answers_ends_its_job_and_holds_up_no_other_namespace_meanwhile(
    clicks: Clicks, pools: Pools
) -> None:
    with silent_catalog() as silent:
        known = {
            ("team-a", "x"): silent,
            ("team-a", "y"): silent,
            ("team-b", "july"): clicks.properties,
        }
        shared = (Path(clicks.properties["warehouse"]).parent,)
        pool = JobPool(
            lambda key: {"lake": GivenCatalog(known[key])},
            directories=shared,
            addresses=LOOPBACK,
            processes=2,
            idle_seconds=2.0,
            namespaces=lambda: 2,
        )
        try:
            theirs = [pool.runner(("team-a", name), lambda: None) for name in "xy"]
            for runner in theirs:
                runner.start(clicks.plan_job())
            ours = pool.runner(("team-b", "july"), lambda: None)
            ours.start(clicks.plan_job())
            assert isinstance(ended(ours, clicks.plan_job()).result, PlanResult)
            for runner in theirs:
                assert "has made no progress in 2 s" in str(ended(runner, clicks.plan_job()).error)
        finally:
            pool.close()


def test_a_process_that_is_killed_fails_its_job_and_the_next_job_is_done(
    clicks: Clicks, pools: Pools
) -> None:
    with silent_catalog() as properties:
        runner = pools(properties, processes=1).runner(KEY, lambda: None)
        job = clicks.plan_job()
        runner.start(job)
        os.kill(eventually(job_processes, "the process").pop(), signal.SIGKILL)
        assert "killed by signal 9" in str(ended(runner, job).error)
        check = VerifyJob(HEADER, 2)
        runner.start(check)
        assert ended(runner, check).phase == "Done"


def test_bad_input_keeps_all_its_problems_on_the_way_back(clicks: Clicks, pools: Pools) -> None:
    runner = pools(clicks.properties).runner(KEY, lambda: None)
    wrong = [
        {"name": name, "table": f"lake.raw.{name}", "timestampColumn": "at"}
        for name in ("click", "view")
    ]
    job = clicks.plan_job(sources=wrong)
    runner.start(job)
    error = ended(runner, job).error
    assert isinstance(error, BadInput)
    assert [problem.field for problem in error.problems] == [
        "spec.sources[0].table",
        "spec.sources[1].table",
    ]


def test_credentials_that_can_not_be_had_fail_the_job_with_their_problem(clicks: Clicks) -> None:
    problem = Problem("spec.catalogs[0].secretRef", "there is no Secret lake-catalog")

    def catalogs(_key: Key) -> Mapping[str, GivenCatalog]:
        raise BadInput(problem)

    pool = JobPool(catalogs)
    runner = pool.runner(KEY, lambda: None)
    job = clicks.plan_job()
    runner.start(job)
    error = ended(runner, job).error
    assert isinstance(error, BadInput)
    assert error.problems == (problem,)
    pool.close()


def test_secrets_are_neither_in_errors_nor_in_the_log(
    clicks: Clicks, pools: Pools, caplog: pytest.LogCaptureFixture
) -> None:
    secrets = {
        "type": "sql",
        "uri": "postgres:/me:hunter2@db/lake?sslpassword=hunter2",
        "s3.secret-access-key": "AKIA-very-secret",
    }
    runner = pools(secrets).runner(KEY, lambda: None)
    job = clicks.plan_job()
    with caplog.at_level(logging.INFO):
        runner.start(job)
        error = str(ended(runner, job).error)
        eventually(lambda: pools.usages, "the log")
    assert "catalog lake cannot be opened" in error
    assert "hunter2" not in error + caplog.text


def test_a_pool_that_ends_leaves_no_process(clicks: Clicks, pools: Pools) -> None:
    with silent_catalog() as properties:
        pool = pools(properties)
        pool.runner(KEY, lambda: None).start(clicks.plan_job())
        eventually(job_processes, "the process")
        pool.close()
        assert not job_processes()
