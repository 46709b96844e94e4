"""What is kept between turns, commands and controllers: resources, messages, the lock, the worker,
the meter.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from backfill.api.backfill import Backfill
from backfill.api.catalog_properties import catalog_variables
from backfill.api.conditions import ConditionType, Reason
from backfill.api.errors import BackfillError, BadInput, ControllerRunning
from backfill.api.spark_application import Application
from backfill.controller.decisions.run.measured_rates import Meter
from backfill.controller.jobs.kinds.make_plan import PlanJob, PlanResult
from backfill.controller.local.channel import ControllerChannel
from backfill.controller.local.jobs import Worker
from backfill.controller.local.lock import ControllerLock
from backfill.controller.local.store import LocalStore, stored
from backfill.protocol.controller_liveness import controller_alive
from backfill.protocol.split_assignment import STATUS_FILE
from situations import NOW, assigned, backfill, planned, reported, running, with_condition
from table_jobs import Clicks, ended, job_processes, silent_catalog
from waiting import eventually

APPLICATION = Application(name="app", main_application_file="/app/main.py")


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    made = LocalStore(tmp_path, "default", "january")
    made.create(backfill(), APPLICATION)
    return made


def loaded(store: LocalStore) -> Backfill:
    found = store.load()
    assert found is not None
    return found


def again(store: LocalStore) -> LocalStore:
    """As another process sees it."""
    return LocalStore(store.directory.parents[1], store.namespace, store.name)


def test_a_resource_is_found_by_another_process(store: LocalStore) -> None:
    found = loaded(again(store))
    assert (found.spec, found.status, found.metadata.name) == (
        backfill().spec,
        backfill().status,
        "january",
    )
    assert found.metadata.uid
    assert again(store).application() == APPLICATION
    assert [found.name for found in stored(store.directory.parents[1])] == ["january"]


def test_a_backfill_of_the_same_name_in_another_state_directory_is_stored_in_another_place(
    store: LocalStore, tmp_path: Path
) -> None:
    first = loaded(store).metadata
    store.delete()
    store.create(backfill(), APPLICATION)
    second = loaded(store).metadata
    assert (second.kept_in, str(tmp_path) in second.kept_in) == (first.kept_in, True)
    assert second.uid != first.uid
    elsewhere = LocalStore(tmp_path / "b", "default", "january")
    elsewhere.create(backfill(), APPLICATION)
    assert loaded(elsewhere).metadata.kept_in != first.kept_in


def test_a_status_does_not_undo_a_spec_that_was_changed_meanwhile(store: LocalStore) -> None:
    loaded(store)
    again(store).suspend()
    store.write_status(planned())
    assert loaded(store).spec.suspend
    assert loaded(store).status == planned()


def test_changes_by_several_processes_at_once_are_all_kept(store: LocalStore) -> None:
    def flip() -> None:
        mine = again(store)
        for _ in range(10):
            mine.suspend()
            mine.resume()

    threads = [threading.Thread(target=flip) for _ in range(3)]
    for thread in threads:
        thread.start()
    for count in range(20):
        store.write_status(planned(committed=count))
    for thread in threads:
        thread.join()
    assert loaded(store).status.progress.committed == 19
    assert loaded(store).metadata.generation > 1


def test_a_generation_counts_changes_and_not_commands(store: LocalStore) -> None:
    store.resume()
    assert loaded(store).metadata.generation == 1
    store.suspend()
    store.suspend()
    assert loaded(store).metadata.generation == 2


def test_wanting_a_failed_backfill_again_is_a_new_generation(store: LocalStore) -> None:
    store.write_status(
        with_condition(planned(), ConditionType.SUCCEEDED, "False", Reason.ATTEMPTS_EXHAUSTED)
    )
    store.apply(loaded(store).spec, APPLICATION)
    assert loaded(store).metadata.generation == 2


def test_a_damaged_resource_is_said_to_be_so(store: LocalStore) -> None:
    (store.directory / "backfill.json").write_text("{")
    with pytest.raises(BackfillError, match=r"backfill\.json is damaged"):
        again(store).load()


def test_a_report_that_makes_no_sense_is_none(tmp_path: Path) -> None:
    channel = ControllerChannel(tmp_path)
    (tmp_path / STATUS_FILE).write_text('{"attempt": "one"}')
    assert channel.report() is None


def test_an_assignment_that_is_removed_is_none(tmp_path: Path) -> None:
    channel = ControllerChannel(tmp_path)
    channel.write(assigned())
    assert channel.assignment() == assigned()
    for _ in range(2):
        channel.remove()
        assert channel.assignment() is None


def test_the_lock_is_free_as_soon_as_its_holder_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from backfill.controller.local.lock import"
        " ControllerLock\nwith ControllerLock(Path(sys.argv[1])): print('locked', flush=True);"
        " time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        assert controller_alive(tmp_path)
        with pytest.raises(ControllerRunning), ControllerLock(tmp_path):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert not controller_alive(tmp_path)


@pytest.fixture
def clicks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clicks:
    """A table that the worker's process finds where PyIceberg's configuration is."""
    clicks = Clicks(tmp_path / "lake")
    for name, value in clicks.variables.items():
        monkeypatch.setenv(name, value)
    return clicks


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    made = Worker(tmp_path / "worker.log")
    yield made
    made.close()


@pytest.fixture
def endless(clicks: Clicks, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlanJob]:
    """A job that waits for its catalog."""
    with silent_catalog() as properties:
        for name, value in catalog_variables("silent", properties).items():
            monkeypatch.setenv(name, value)
        yield clicks.plan_job(
            sources=[{"name": "clicks", "table": "silent.raw.clicks", "timestampColumn": "at"}]
        )


def test_the_worker_does_one_job_after_the_other_and_survives_their_failures(
    worker: Worker, clicks: Clicks, tmp_path: Path
) -> None:
    wrong = clicks.plan_job(
        sources=[
            {"name": name, "table": f"lake.raw.{name}", "timestampColumn": "at"} for name in "ab"
        ]
    )
    worker.start(wrong)
    refused = ended(worker, wrong).error
    assert isinstance(refused, BadInput)
    assert len(refused.problems) == 2
    (tmp_path / "lake" / "taken").write_text("no directory")
    worker.start(clicks.plan_job("taken"))
    assert ended(worker, clicks.plan_job("taken")).phase == "Failed"
    worker.start(clicks.plan_job())
    assert isinstance(ended(worker, clicks.plan_job()).result, PlanResult)


def test_a_worker_that_is_killed_fails_its_job_and_does_the_next(
    worker: Worker, clicks: Clicks, endless: PlanJob
) -> None:
    worker.start(endless)
    (process,) = eventually(job_processes, "the job's process")
    os.kill(process, signal.SIGKILL)
    assert "ended unexpectedly" in str(ended(worker, endless).error)
    worker.start(clicks.plan_job())
    assert ended(worker, clicks.plan_job()).phase == "Done"


def test_a_job_under_way_is_abandoned_for_another(
    worker: Worker, clicks: Clicks, endless: PlanJob
) -> None:
    worker.start(endless)
    worker.start(clicks.plan_job())
    assert ended(worker, clicks.plan_job()).phase == "Done"
    worker.start(endless)
    worker.cancel()
    assert worker.state is None
    assert job_processes() == set()


def test_silence_is_counted_from_the_last_new_report() -> None:
    meter, reading = Meter(), running(report=reported("Running", committed=1))
    meter.note(1, running(), now=100.0)
    assert meter.silence(130.0) == 30.0, (
        "a driver that is starting is waited for as long as one that is running"
    )
    meter.note(1, reading, now=140.0)
    meter.note(1, reading, now=150.0)
    assert meter.silence(150.0) == 10.0
    meter.note(2, reading, now=160.0)
    assert meter.silence(161.0) == 1.0, "a new attempt begins to be listened to when it begins"


def test_the_rate_leaves_out_the_first_batch_which_waits_for_much_to_start() -> None:
    meter = Meter()
    for committed, now in ((0, 0.0), (0, 50.0), (1, 60.0), (2, 61.0), (3, 62.0)):
        report = reported("Running", committed=committed, heartbeat=NOW)
        meter.note(1, running(report=report), now)
    assert meter.rate.per_second == pytest.approx(100.0)
