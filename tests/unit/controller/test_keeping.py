"""What is kept between turns, commands and controllers: resources, messages, the lock, the worker, the meter."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from situations import HEADER, NOW, backfill, planned, reported, with_condition

from backfill.api.backfill import Application, Backfill
from backfill.api.conditions import ConditionType, Reason
from backfill.api.errors import BackfillError, ControllerRunning, InvalidPlanInput, Problem
from backfill.api.liveness import controller_alive
from backfill.api.split_assignment import STATUS_FILE
from backfill.controller.channel import ControllerChannel
from backfill.controller.jobs import JobState, OnProgress
from backfill.controller.lock import ControllerLock
from backfill.controller.meter import Meter
from backfill.controller.store import LocalStore, stored
from backfill.controller.worker import Worker
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
    assert (found.spec, found.status, found.metadata.name) == (backfill().spec, backfill().status, "january")
    assert found.metadata.uid
    assert again(store).application() == APPLICATION
    assert [found.name for found in stored(store.directory.parents[1])] == ["january"]


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
    store.write_status(with_condition(planned(), ConditionType.SUCCEEDED, "False", Reason.ATTEMPTS_EXHAUSTED))
    store.apply(loaded(store).spec, APPLICATION)
    assert loaded(store).metadata.generation == 2


def test_a_damaged_resource_is_said_to_be_so(store: LocalStore) -> None:
    (store.directory / "backfill.json").write_text("{")
    with pytest.raises(BackfillError, match=r"backfill\.json can not be read"):
        again(store).load()


def test_a_report_that_makes_no_sense_is_none(tmp_path: Path) -> None:
    channel = ControllerChannel(tmp_path)
    (tmp_path / STATUS_FILE).write_text('{"attempt": "one"}')
    assert channel.report() is None


def test_the_lock_is_free_as_soon_as_its_holder_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from backfill.controller.lock import ControllerLock\n"
        "with ControllerLock(Path(sys.argv[1])): print('locked', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        assert controller_alive(tmp_path)
        with pytest.raises(ControllerRunning), ControllerLock(tmp_path):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert not controller_alive(tmp_path)


@dataclass(frozen=True)
class Echo:
    """A job that does what its word says."""

    word: str

    def run(self, on_progress: OnProgress) -> object:
        match self.word:
            case "sleep":
                time.sleep(600)
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "bad input":
                raise InvalidPlanInput([Problem("spec", "is wrong"), Problem("spec", "in two ways")])
            case "break":
                raise KeyError("user")
        return self.word


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    return Worker(tmp_path / "worker.log")


def done(worker: Worker, job: Echo) -> JobState:
    worker.start(job)
    state: JobState = eventually(lambda: (found := worker.state) and found.phase != "Running" and found, f"the end of {job}")
    return state


def test_the_worker_does_one_job_after_the_other_and_survives_their_failures(worker: Worker, tmp_path: Path) -> None:
    assert done(worker, Echo("hello")) == JobState(Echo("hello"), "Done", result="hello")
    wrong = done(worker, Echo("bad input"))
    assert isinstance(wrong.error, InvalidPlanInput)
    assert len(wrong.error.problems) == 2
    broken = done(worker, Echo("break"))
    assert "KeyError" in str(broken.error)
    assert "Traceback" in (tmp_path / "worker.log").read_text()
    assert done(worker, Echo("hello again")).result == "hello again"
    worker.close()


def test_a_worker_that_is_killed_fails_its_job_and_does_the_next(worker: Worker) -> None:
    assert "ended unexpectedly" in str(done(worker, Echo("die")).error)
    assert done(worker, Echo("hello")).result == "hello"
    worker.close()


def test_a_job_under_way_is_abandoned_for_another(worker: Worker) -> None:
    worker.start(Echo("sleep"))
    assert done(worker, Echo("hello")).result == "hello"
    worker.start(Echo("sleep"))
    worker.cancel()
    assert worker.state is None


def test_silence_is_counted_from_the_last_new_report() -> None:
    meter, report = Meter(), reported("Running", committed=1)
    meter.note(1, HEADER, None, now=100.0)
    assert meter.silence(130.0) == 30.0, "a driver that is starting is waited for as long as one that is running"
    meter.note(1, HEADER, report, now=140.0)
    meter.note(1, HEADER, report, now=150.0)
    assert meter.silence(150.0) == 10.0
    meter.note(2, HEADER, report, now=160.0)
    assert meter.silence(161.0) == 1.0, "a new attempt begins to be listened to when it begins"


def test_the_rate_leaves_out_the_first_batch_which_waits_for_much_to_start() -> None:
    meter = Meter()
    for committed, now in ((0, 0.0), (0, 50.0), (1, 60.0), (2, 61.0), (3, 62.0)):
        meter.note(1, HEADER, reported("Running", committed=committed, heartbeat=NOW), now)
    assert meter.rate.per_second == pytest.approx(100.0)
