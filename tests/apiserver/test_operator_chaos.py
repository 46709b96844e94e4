"""The operator is killed at every write, before and after it reaches the API server: nothing is
lost, nothing is doubled.

Nor where the write was held up on its way and arrives when the next operator has written, too.
The operators are in the test's process (see ``mortal_operator``), so that every single write can be
cut in turn. ``test_operator_chaos_publishing`` goes on to the output tables, and
``test_operator_chaos_process`` does the same to real processes at every kind of write.
"""

from collections.abc import Callable

import pytest
from mortal_run import MortalRun, MortalRuns, essence
from rest import Manifest

from backfill.kube.object_names import child_name

_LEAST_WRITES = {"fail_once_and_succeed": 28, "suspend_and_resume": 18}


def fail_once_and_succeed(mortal: MortalRun) -> Manifest:
    """The first attempt fails after a step, the second one finishes. The status before the
    deletion.
    """
    run = mortal.run
    run.create(failurePolicy={"maxAttempts": 3, "backoff": "10ms"})
    mortal.start(1)
    first = mortal.released(1)
    mortal.commit(1, 1)
    mortal.work_until(
        lambda: mortal.released(1) > first,
        "more is released than the next attempt may read at first",
    )
    run.end(1, exit_code=1)
    mortal.start(2)
    run.report(2, committed=1)
    for step in range(2, run.assignment()["steps"] + 1):
        mortal.commit(2, step)
    mortal.finish(2)
    return mortal.succeed()


def suspend_and_resume(mortal: MortalRun) -> Manifest:
    """It is suspended after a step and resumed; the second attempt is at work when the Backfill is
    deleted.
    """
    run = mortal.run
    with mortal.spared():
        run.create()
        mortal.start(1)
        mortal.commit(1, 1)
    mortal.change({"suspend": True})
    mortal.work_until(lambda: run.assignment().get("stop"), "the driver is told to stop")
    run.report(1, 2, "Stopped")
    run.end(1)
    mortal.work_until(lambda: run.condition("Running") == ("False", "Suspended"), "it is suspended")
    mortal.change({"suspend": False})
    mortal.start(2)
    run.report(2, committed=2)
    mortal.commit(2, 3)
    mortal.work_until(lambda: run.status["progress"]["committed"] == 3, "three steps are committed")
    mortal.work_until(lambda: run.assignment()["released"] > 3, "the next step is released")
    return run.status


@pytest.mark.parametrize(
    ("life", "moment"),
    [
        (fail_once_and_succeed, "before"),
        (fail_once_and_succeed, "after"),
        (fail_once_and_succeed, "late"),
        (suspend_and_resume, "before"),
        (suspend_and_resume, "after"),
    ],
)
def test_an_operator_killed_at_any_write_is_followed_by_one_that_ends_in_the_same_state(
    life: Callable[[MortalRun], Manifest], moment: str, mortal_runs: MortalRuns
) -> None:
    known, least = mortal_runs.life(life.__name__), _LEAST_WRITES[life.__name__]
    for cut, mortal in mortal_runs.each_cut(known, moment, least):
        known.assert_ends(essence(life(mortal)), cut)
        mortal.delete()
        name = mortal.run.name
        assert mortal.written.children(name) == [child_name(name, 1), child_name(name, 2)]
