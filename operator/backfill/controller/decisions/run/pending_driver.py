"""A driver that was requested and does not run yet:
what it waits for, for how long at most, and what to do.
"""

from dataclasses import dataclass
from datetime import timedelta

from backfill.api.conditions import ConditionType, Reason, find_condition
from backfill.api.status import Attempt
from backfill.controller.decisions.actions import KillDriver, Next, StartDriver, WriteAssignment
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.run.assignment import assignment
from backfill.controller.decisions.run.attempts import driver_of
from backfill.controller.decisions.status_draft import Draft

CREATION_LIMIT = timedelta(minutes=5)
"""How long an attempt that was recorded but has no child is started again: the controller that
recorded it may have been killed.
"""
UNTAKEN_LIMIT = timedelta(minutes=30)
"""How long a child may wait for a Spark operator."""
SUBMITTED_LIMIT = timedelta(minutes=10)
"""How long a submitted child may be without a driver pod."""
BROKEN_LIMIT = timedelta(minutes=10)
"""How long a driver pod may wait that cannot start unless a person does something."""
STARTING_LIMIT = timedelta(minutes=15)
"""How long a driver pod on a node may pull images and mount volumes."""
UNSCHEDULED_LIMIT = timedelta(hours=1)
"""How long a driver pod may wait for a node with enough room."""

NOTICE_AFTER = timedelta(seconds=20)
"""How long a wait that ends by itself goes unreported."""
UNTAKEN_NOTICE = timedelta(seconds=90)
"""The same for a child that no Spark operator has picked up: one that is busy takes a minute."""
_LOOK_SECONDS = 15.0
_RUNNING = ConditionType.RUNNING


@dataclass(frozen=True, slots=True)
class Wait:
    """What a driver waits for."""

    what: str
    """The wait in words, which do not change while it lasts."""
    limit: timedelta | None
    """Time after which the attempt fails; None for no limit."""
    advice: str
    """What to do."""
    needs_person: bool = False
    """Whether it only ends if a person does something."""
    notice_after: timedelta = NOTICE_AFTER
    """How long it goes unreported, if it may end by itself."""


IMAGE_WAIT = Wait(
    "the image cannot be pulled",
    BROKEN_LIMIT,
    "Correct the image of the SparkApplication or of spec.overrides, or its pull Secret; the next"
    " attempt then starts automatically.",
    needs_person=True,
)
_CONFIG = Wait(
    "a Secret or ConfigMap that the pod refers to is missing",
    BROKEN_LIMIT,
    "Create it; the pod then starts automatically.",
    needs_person=True,
)
_CONTAINER = Wait(
    "the container cannot be created",
    BROKEN_LIMIT,
    "Check the pod's Events with kubectl describe pod.",
    needs_person=True,
)
_QUEUED = Wait(
    "the SparkApplication or its driver pod is held back, for example by a queue that has not"
    " admitted it yet",
    None,
    "Check the queue.",
)
_WAITS = {
    "ErrImagePull": IMAGE_WAIT,
    "ImagePullBackOff": IMAGE_WAIT,
    "InvalidImageName": IMAGE_WAIT,
    "ErrImageNeverPull": IMAGE_WAIT,
    "ImageInspectError": IMAGE_WAIT,
    "RegistryUnavailable": IMAGE_WAIT,
    "CreateContainerConfigError": _CONFIG,
    "CreateContainerError": _CONTAINER,
    "RunContainerError": _CONTAINER,
    "Suspended": _QUEUED,
    "SchedulingGated": _QUEUED,
    "NotSubmitted": Wait(
        "no Spark operator has picked up the SparkApplication",
        UNTAKEN_LIMIT,
        "Check that the Spark operator is running and watches this namespace.",
        notice_after=UNTAKEN_NOTICE,
    ),
    "Submitted": Wait(
        "the SparkApplication was submitted but has no driver pod",
        SUBMITTED_LIMIT,
        "Check the log of the Spark operator.",
    ),
    "Unschedulable": Wait(
        "no node has room for the pod",
        UNSCHEDULED_LIMIT,
        "Add nodes, or lower cores and memory in spec.overrides.driver; tolerations and node"
        " selectors come from the SparkApplication.",
    ),
}
STARTING_WAIT = Wait(
    "the pod is starting",
    STARTING_LIMIT,
    "Check the pod's Events with kubectl describe pod.",
)


def wait_of(reason: str) -> Wait:
    """The wait behind the reason that a backend gives for a pending driver."""
    return _WAITS.get(reason, STARTING_WAIT)


def watch_pending(observed: Observed, draft: Draft, attempt: Attempt) -> Next:
    """Waits for a driver to start, and reports what it waits for.

    After the time limit of that wait, the attempt fails.
    """
    driver, wait = observed.driver, wait_of(observed.driver.reason)
    if wait.needs_person and not _has_read(observed) and _made_from_something_else(observed):
        return _make_again(observed, draft, attempt)
    waited = observed.now - (driver.since or attempt.started_at)
    if wait.limit is not None and waited >= wait.limit:
        message = _in_words(wait, driver.reason, driver.message)
        draft.change_attempt(
            message=attempt.message or f"{message} for {_minutes(wait.limit)}. {wait.advice}"
        )
        return Next(actions=(KillDriver(attempt.number),), requeue_seconds=_LOOK_SECONDS)
    if wait.needs_person or waited >= wait.notice_after:
        _say(draft, attempt, wait, driver.reason, driver.message)
    else:
        draft.condition(
            _RUNNING, "Unknown", Reason.STARTING, f"{driver_of(attempt.number)} is starting"
        )
    limits = [
        limit - waited
        for limit in (wait.notice_after, wait.limit)
        if limit is not None and limit > waited
    ]
    if wait.needs_person:
        limits.append(timedelta(seconds=_LOOK_SECONDS))  # no event announces a change of production
    return Next(requeue_seconds=max(min(limits).total_seconds(), 0.1) if limits else None)


def _made_from_something_else(observed: Observed) -> bool:
    """Whether the attempt would be another one if it were made now."""
    attempt = observed.attempt
    changed = attempt is not None and attempt.generation != observed.backfill.metadata.generation
    return changed or observed.driver.outdated


def _make_again(observed: Observed, draft: Draft, attempt: Attempt) -> Next:
    """Ends an attempt that is blocked and has read nothing. The next one follows at once, and this
    one does not count as a failure.
    """
    if attempt.stopping_since is None:
        why = "ended before it read anything, because what it was made from has changed"
        draft.change_attempt(stopping_since=observed.now, message=why)
        draft.condition(_RUNNING, "Unknown", Reason.STARTING, f"attempt {attempt.number} {why}")
    return Next(actions=(KillDriver(attempt.number),), requeue_seconds=_LOOK_SECONDS)


def begin_again(observed: Observed, attempt: Attempt) -> Next | None:
    """Starts a recorded attempt again that has no child; None if it is too late.

    A controller that was killed between the two leaves one. The fixed name of the child keeps it
    from being created twice, and nothing has been read yet.
    """
    waited = observed.now - attempt.started_at
    if attempt.child is None or attempt.message or _has_read(observed) or waited >= CREATION_LIMIT:
        return None
    first = assignment(observed, attempt.number)
    return Next(
        actions=(WriteAssignment(first), StartDriver(attempt.number)), requeue_seconds=_LOOK_SECONDS
    )


def _has_read(observed: Observed) -> bool:
    """Whether a driver of the attempt may have read anything, even if its reports are lost.

    No second driver may then join it.
    """
    running = find_condition(observed.backfill.status.conditions, _RUNNING)
    return observed.report is not None or (
        running is not None and running.reason == Reason.REPLAYING
    )


def _say(draft: Draft, attempt: Attempt, wait: Wait, reason: str, message: str) -> None:
    """Reports a wait once.

    Its details change with every observation, and each change would be a write.
    """
    value = Reason.DRIVER_START_BLOCKED if wait.needs_person else Reason.DRIVER_PENDING
    opening = f"attempt {attempt.number} is waiting for its driver: {wait.what}"
    said = draft.find(_RUNNING)
    if said is None or said.reason != value or not said.message.startswith(opening):
        limit = f" The attempt ends after {_minutes(wait.limit)}." if wait.limit else ""
        draft.condition(
            _RUNNING,
            "Unknown",
            value,
            f"{opening}{_details(reason, message)}. {wait.advice}{limit}",
        )


def _in_words(wait: Wait, reason: str, message: str) -> str:
    return f"its driver did not start: {wait.what}{_details(reason, message)}"


def _details(reason: str, message: str) -> str:
    details = ": ".join(part.rstrip(". ") for part in (reason, message) if part)
    return f" ({details})" if details else ""


def _minutes(length: timedelta) -> str:
    return f"{length.total_seconds() / 60:.0f} minutes"
