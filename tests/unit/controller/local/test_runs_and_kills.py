"""Whole runs on this machine: what fails, is killed, stopped and asked for again, with real
processes and files.
"""

import json
import random
import signal
import time
from collections.abc import Callable

import pytest

from backfill.api.conditions import Reason
from backfill.controller.local_driver.processes import group_members
from local_runs import HOURS, STEPS, LocalRuns


def test_a_run_commits_every_step_once_and_tells_the_result_on_the_last_line(
    runs: LocalRuns,
) -> None:
    ended = runs.run("--output", "json")
    assert ended.status == 0, ended.err
    runs.assert_every_step_was_committed_once_and_in_order()
    document = ended.document
    assert (document["name"], document["steps"], document["rowsRead"]) == (
        "january",
        STEPS,
        2 * HOURS * 60,
    )
    assert (document["rowsDroppedLate"], document["openAtEnd"]) == (0, 0)
    assert document["maxObservedMisalignmentSeconds"] == 0.5
    assert [(source["name"], source["rows"]) for source in document["sources"]] == [
        ("clicks", 360),
        ("views", 360),
    ]
    assert document["sources"][0]["watermark"] == f"2024-01-01T{HOURS:02}:00:00Z"
    assert {condition["type"]: condition["status"] for condition in document["conditions"]} == {
        "Planned": "True",
        "InputComplete": "Unknown",  # no row from after the window has arrived
        "Running": "False",
        "Published": "False",
        "Succeeded": "True",
        "Ready": "True",
    }


def test_a_driver_that_crashes_is_followed_by_another_that_goes_on(runs: LocalRuns) -> None:
    ended = runs.run(crash_at=5)
    assert ended.status == 0, ended.err
    runs.assert_every_step_was_committed_once_and_in_order()
    assert [
        (attempt.outcome, attempt.steps_at_start) for attempt in runs.backfill.status.attempts
    ] == [
        ("Failed", 0),
        ("Succeeded", 5),
    ]


def test_a_driver_that_always_crashes_is_given_up_and_the_end_of_its_log_is_shown(
    runs: LocalRuns,
) -> None:
    ended = runs.run(crash_always_at=2)
    assert ended.status == 1
    assert "3 attempts in a row" in ended.err
    assert "the fake driver crashes" in ended.err
    assert "driver.log" in ended.err
    assert len(runs.backfill.status.attempts) == 4, "the first one made progress and does not count"
    again = runs.run()
    assert again.status == 0, "running it again gives it new attempts"
    runs.assert_every_step_was_committed_once_and_in_order()


def test_what_a_run_made_is_removed_when_it_is_asked_for_after_its_time(runs: LocalRuns) -> None:
    runs.write(ttlAfterFinished="1ms")
    assert runs.run().status == 0
    made = [runs.store.directory / part for part in ("plans", "checkpoints")]
    assert all(path.exists() for path in made)
    again = runs.run()
    assert (again.status, "already succeeded" in again.out) == (0, True)
    assert not any(path.exists() for path in made)
    assert runs.backfill.status.discarded_at is not None


def test_a_program_that_can_not_be_redirected_is_bad_input(runs: LocalRuns) -> None:
    ended = runs.run(unsupported=True)
    assert ended.status == 2
    assert "error: foreachBatch cannot be redirected" in ended.err
    assert "correct the manifest or the program, and run the file again" in ended.err
    assert len(runs.backfill.status.attempts) == 1


def test_a_driver_outlives_its_controller_and_is_adopted_by_the_next(runs: LocalRuns) -> None:
    first = runs.start("run", str(runs.file), step_seconds=0.1)
    runs.wait_for_steps(3)
    runs.kill(first)
    assert runs.run().status == 0
    runs.assert_every_step_was_committed_once_and_in_order()
    assert [attempt.outcome for attempt in runs.backfill.status.attempts] == ["Succeeded"]


def test_a_driver_without_a_controller_stops_and_the_next_run_goes_on_at_once(
    runs: LocalRuns,
) -> None:
    runs.write(failurePolicy={"maxAttempts": 3, "backoff": "1h"})
    first = runs.start("run", str(runs.file), step_seconds=0.3, grace_seconds=0.5)
    runs.wait_for_steps(2)
    runs.kill(first)
    runs.wait_for(lambda: bool(runs.events("stopped")), "the driver to stop by itself")
    assert runs.run().status == 0
    runs.assert_every_step_was_committed_once_and_in_order()
    assert [attempt.outcome for attempt in runs.backfill.status.attempts] == [
        "Stopped",
        "Succeeded",
    ]


@pytest.mark.parametrize(
    "grace_seconds", [0.2, 30.0], ids=["and drivers that stop then", "and drivers that go on"]
)
def test_a_controller_killed_at_any_moment_loses_and_doubles_nothing(
    runs: LocalRuns, grace_seconds: float
) -> None:
    for _ in range(4):
        process = runs.start(
            "run", str(runs.file), step_seconds=0.15, start_seconds=0.1, grace_seconds=grace_seconds
        )
        # the moment is the test's input, not something it waits for
        time.sleep(random.uniform(0.1, 1.2))
        runs.kill(process)
    ended = runs.run()
    assert ended.status == 0, ended.err
    runs.assert_every_step_was_committed_once_and_in_order()


def test_ctrl_c_stops_after_the_step_under_way_and_running_again_goes_on(runs: LocalRuns) -> None:
    process = runs.start("run", str(runs.file), step_seconds=0.1)
    runs.wait_for_steps(2)
    process.send_signal(signal.SIGINT)
    ended = runs.end(process)
    assert ended.status == 3
    assert "resume with: backfill resume january" in ended.out
    assert runs.events("stopped")
    assert runs.run().status == 0
    runs.assert_every_step_was_committed_once_and_in_order()
    assert [attempt.outcome for attempt in runs.backfill.status.attempts] == [
        "Stopped",
        "Succeeded",
    ]


def test_a_second_ctrl_c_kills_the_driver(runs: LocalRuns) -> None:
    process = runs.start("run", str(runs.file), hang_at=2)
    runs.wait_for(lambda: bool(runs.events("hangs")), "the driver to hang")
    gone = _driver_is_gone(runs)
    process.send_signal(signal.SIGINT)
    runs.wait_for(lambda: runs.stage() == Reason.SUSPENDING, "the first to be heard")
    process.send_signal(signal.SIGINT)
    ended = runs.end(process)
    assert ended.status == 3, ended.err
    assert gone()


def test_suspend_and_resume_from_another_terminal(runs: LocalRuns) -> None:
    process = runs.start("run", str(runs.file), step_seconds=1.0)
    runs.wait_for_steps(1)
    suspended = runs.command("suspend", "january")
    assert (suspended.status, runs.end(process).status) == (0, 3)
    again = runs.run()
    assert again.status == 3, "running the file again does not resume"
    assert "backfill resume january" in again.out
    assert runs.command("resume", "january").status == 0
    runs.assert_every_step_was_committed_once_and_in_order()


def test_cancel_from_another_terminal_ends_the_driver_and_leaves_nothing(runs: LocalRuns) -> None:
    process = runs.start("run", str(runs.file), step_seconds=1.0)
    runs.wait_for_steps(1)
    gone = _driver_is_gone(runs)
    second = runs.run()
    assert second.status == 1, "one process works on it already"
    assert "another process is working on this backfill" in second.err
    cancelled = runs.command("cancel", "january")
    assert cancelled.status == 0, cancelled.err
    assert runs.end(process).status == 0
    assert gone()
    assert not runs.store.directory.exists()


def test_a_finished_backfill_is_not_run_again_and_not_changed(runs: LocalRuns) -> None:
    assert runs.run().status == 0
    before = runs.events()
    again = runs.run("--output", "json")
    assert (again.status, again.document["steps"]) == (0, STEPS)
    runs.write(maxMisalignment="2h")
    changed = runs.run()
    assert changed.status == 2
    assert "spec.maxMisalignment: was" in changed.err
    assert "backfill cancel january" in changed.err
    assert runs.events() == before


def test_a_run_does_not_go_on_with_another_program(runs: LocalRuns) -> None:
    runs.write(arguments=["--gap", "30m"])
    assert runs.run(crash_always_at=2).status == 1
    before = runs.events()
    runs.write(arguments=["--gap", "10m"])
    changed = runs.run()
    assert changed.status == 2
    assert ': SparkApplication/app: spec.arguments[1]: was "30m", is "10m"' in changed.err
    assert (
        "january has already started; its program can no longer change; start over with: backfill"
        " cancel january" in changed.err
    )
    assert runs.events() == before
    runs.write(arguments=["--gap", "30m"])
    assert runs.run().status == 0
    runs.assert_every_step_was_committed_once_and_in_order()


def test_a_program_may_change_until_it_is_run(runs: LocalRuns) -> None:
    runs.write(arguments=["--gap", "30m"], suspend=True)
    assert runs.run().status == 3
    runs.write(arguments=["--gap", "10m"], suspend=True)
    assert runs.run().status == 3
    assert runs.store.application().arguments == ("--gap", "10m")


def test_what_may_change_is_taken_over_while_the_backfill_goes_on(runs: LocalRuns) -> None:
    assert runs.run(crash_always_at=2).status == 1
    runs.write(failurePolicy={"maxAttempts": 1, "backoff": "0s"})
    assert runs.run(crash_always_at=2).status == 1
    assert len(runs.backfill.status.attempts) == 5, "one more, as is allowed now"


def _driver_is_gone(runs: LocalRuns) -> Callable[[], bool]:
    """Asked for while the driver runs, answers after it has been ended."""
    group = json.loads((runs.store.attempts / "1" / "driver.json").read_bytes())["group"]
    assert group_members(group)
    return lambda: group_members(group) == []


def test_a_mistake_that_is_noticed_before_anything_was_read_is_corrected_in_the_file(
    runs: LocalRuns,
) -> None:
    """Or a typo in the topic of a source means to cancel, and to start over."""
    runs.write(sources=[{"name": "clicks", "table": "lake.raw.clicks", "timestampColumn": "at"}])
    refused = runs.run(unsupported=True, about="spec.sources: ")
    assert refused.status == 2
    assert "correct the manifest or the program, and run the file again" in refused.err
    assert runs.backfill.status.plan_id is None
    runs.write(["--corrected"])  # another program, and both sources
    ended = runs.run("--output", "json")
    assert ended.status == 0, ended.err
    assert [source["name"] for source in ended.document["sources"]] == ["clicks", "views"]
    assert [attempt.outcome for attempt in runs.backfill.status.attempts] == [
        "Failed",
        "Succeeded",
    ]
    runs.assert_every_step_was_committed_once_and_in_order()


def test_what_was_read_keeps_the_file_as_it_is(runs: LocalRuns) -> None:
    runs.run(crash_always_at=3)
    runs.write(sources=[{"name": "clicks", "table": "lake.raw.clicks", "timestampColumn": "at"}])
    ended = runs.run()
    assert (ended.status, "is already planned" in ended.err) == (2, True), ended.err
