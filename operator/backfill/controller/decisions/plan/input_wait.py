"""Waiting for rows that are missing from the tables, before the plan is made. Pure."""

from datetime import datetime, timedelta
from typing import Final

from backfill.api.conditions import ConditionType, Reason
from backfill.api.errors import Problem
from backfill.api.quantities import format_time
from backfill.api.status import InputWait
from backfill.controller.decisions.actions import CancelJob, Next
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.status_draft import Draft, in_lines

_CHECKS: Final = 60
"""Number of times that tables are looked at, unless the limits of the interval change that."""
_SHORTEST: Final = timedelta(seconds=10)
_LONGEST: Final = timedelta(minutes=5)


def awaits(observed: Observed, draft: Draft) -> bool:
    """Whether to wait, or to keep waiting, if rows are missing."""
    wait = draft.status.input_wait
    return bool(observed.backfill.spec.wait_for_input) and (
        wait is None or observed.now < _until(observed, wait)
    )


def seconds_until_check(observed: Observed, draft: Draft) -> float:
    """Seconds until the tables are looked at again; zero or less if that is now."""
    wait, state = draft.status.input_wait, observed.job
    if wait is None or state is not None:
        return 0.0
    return (wait.next_check_at - observed.now).total_seconds()


def wait_for_input(observed: Observed, draft: Draft, missing: tuple[Problem, ...]) -> Next:
    """Says what is missing and until when it is waited for, and looks again later: not sooner than
    the last look took, so that the metadata of a big table is not read all the time.
    """
    before, now = draft.status.input_wait, observed.now
    since = before.since if before else now
    patience: timedelta = observed.backfill.spec.wait_for_input
    took = now - before.next_check_at if before else timedelta()
    every = min(max(patience / _CHECKS, _SHORTEST, took), _LONGEST)
    wait = InputWait(since=since, next_check_at=now + every)
    until = _until(observed, wait)
    wait = wait.model_copy(update={"next_check_at": min(wait.next_check_at, max(until, now))})
    draft.set(input_wait=wait)
    lines = in_lines(missing)
    draft.condition(ConditionType.INPUT_COMPLETE, "False", Reason.WAITING_FOR_INPUT, lines)
    draft.condition(
        ConditionType.PLANNED,
        "Unknown",
        Reason.WAITING_FOR_INPUT,
        f"waiting until {format_time(until.replace(microsecond=0))} for missing rows\n{lines}",
    )
    seconds = (wait.next_check_at - now).total_seconds()
    return Next(actions=(CancelJob(),), requeue_seconds=seconds)


def _until(observed: Observed, wait: InputWait) -> datetime:
    until: datetime = wait.since + observed.backfill.spec.wait_for_input
    return until
