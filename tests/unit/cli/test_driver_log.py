"""The log of a driver on this machine, and another try."""

import pytest

from local_runs import LocalRuns


def test_the_log_of_an_attempt_is_printed_whole_or_from_its_end_on(runs: LocalRuns) -> None:
    assert runs.run(crash_at=3).status == 0
    for attempt in ("1", "2"):
        log = (runs.store.attempts / attempt / "driver.log").read_text()
        assert runs.command("logs", "january", "--attempt", attempt).out == log
    assert runs.command("logs", "january").out == log, "the last one, if none is named"
    log_file = runs.store.attempts / "2" / "driver.log"
    log_file.write_text("one\ntwo\nthree")
    assert runs.command("logs", "january", "--tail", "2").out == "two\nthree"
    assert runs.command("logs", str(runs.file), "--tail", "9").out == "one\ntwo\nthree"
    log_file.unlink()
    gone = runs.command("logs", "january")
    assert (gone.status, "has been removed" in gone.err) == (1, True)


def test_a_log_is_followed_until_the_driver_has_ended(runs: LocalRuns) -> None:
    process = runs.start("run", str(runs.file), step_seconds=0.1)
    runs.wait_for_steps(1)
    followed = runs.command("logs", "january", "--follow")
    assert runs.events("step")[-1]["step"] >= 12, "all steps were committed by then"
    assert followed.out == (runs.store.attempts / "1" / "driver.log").read_text()
    assert runs.end(process).status == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("logs", "january"),
            "no attempt of january has started yet; see: backfill status january",
        ),
        (("retry", "january"), "january has not failed; see: backfill status january"),
    ],
)
def test_where_there_is_nothing_to_show_or_to_try_it_is_said(
    runs: LocalRuns, words: tuple[str, ...], said: str
) -> None:
    runs.write(suspend=True)
    assert runs.run().status == 3
    ended = runs.command(*words)
    assert (ended.status, ended.err) == (2, f"error: {said} --state-dir {runs.state}\n")


def test_an_attempt_that_was_not_made_is_bad_input(runs: LocalRuns) -> None:
    assert runs.run().status == 0
    ended = runs.command("logs", "january", "--attempt", "7")
    assert (ended.status, ended.err) == (
        2,
        "error: --attempt: january has no attempt 7; choose one of: 1\n",
    )


def test_what_has_failed_is_tried_again(runs: LocalRuns) -> None:
    assert runs.run(crash_always_at=5).status == 1
    assert runs.command("retry", "january").status == 0
    runs.assert_every_step_was_committed_once_and_in_order()
