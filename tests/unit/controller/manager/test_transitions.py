"""What people are told of a change of a Backfill's status."""

from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest

from backfill.api.conditions import Condition, ConditionType, Reason, set_condition
from backfill.api.status import Attempt, BackfillStatus, DecisionStatus, Progress, Verdict
from backfill.controller.manager.events import Notice, transitions

NOW = datetime(2021, 8, 1, tzinfo=UTC)
Truth = Literal["True", "False", "Unknown"]


def condition(kind: ConditionType, status: Truth, reason: Reason, message: str = "") -> Condition:
    return Condition(
        type=kind, status=status, reason=reason, message=message, last_transition_time=NOW
    )


def status(*conditions: Condition, **fields: Any) -> BackfillStatus:
    return BackfillStatus(conditions=conditions, **fields)


def attempt(number: int, **fields: Any) -> Attempt:
    return Attempt(number=number, started_at=NOW, child=f"july-a{number}", **fields)


def reasons(notices: list[Notice]) -> list[str]:
    return [notice.reason for notice in notices]


@pytest.mark.parametrize(
    ("kind", "truth", "reason", "told"),
    [
        (ConditionType.PLANNED, "True", Reason.PLAN_READY, ("Normal", "Planned")),
        (ConditionType.PLANNED, "False", Reason.INVALID_INPUT, ("Warning", "InvalidInput")),
        (ConditionType.RUNNING, "True", Reason.REPLAYING, ("Normal", "Running")),
        (ConditionType.RUNNING, "False", Reason.SUSPENDED, ("Normal", "Suspended")),
        (ConditionType.RUNNING, "False", Reason.INVALID_INPUT, ("Warning", "InvalidInput")),
        (
            ConditionType.RUNNING,
            "Unknown",
            Reason.DRIVER_START_BLOCKED,
            ("Warning", "DriverStartBlocked"),
        ),
        (
            ConditionType.PUBLISHED,
            "Unknown",
            Reason.WAITING_FOR_APPROVAL,
            ("Normal", "WaitingForApproval"),
        ),
        (ConditionType.PUBLISHED, "True", Reason.PUBLISHED, ("Normal", "Published")),
        (ConditionType.SUCCEEDED, "True", Reason.FINISHED, ("Normal", "Succeeded")),
        (ConditionType.SUCCEEDED, "False", Reason.INVALID_INPUT, ("Warning", "InvalidInput")),
        (
            ConditionType.SUCCEEDED,
            "False",
            Reason.ATTEMPTS_EXHAUSTED,
            ("Warning", "AttemptsExhausted"),
        ),
    ],
)
def test_a_condition_that_comes_to_have_a_reason_is_told(
    kind: ConditionType, truth: Truth, reason: Reason, told: tuple[str, str]
) -> None:
    (notice,) = transitions(status(), status(condition(kind, truth, reason, "in words")))
    assert (notice.kind, notice.reason, notice.message) == (*told, "in words")


@pytest.mark.parametrize(
    ("kind", "truth", "reason"),
    [
        (ConditionType.PLANNED, "Unknown", Reason.PLANNING),
        (ConditionType.RUNNING, "Unknown", Reason.STARTING),
        (ConditionType.RUNNING, "False", Reason.ATTEMPTS_EXHAUSTED),
        (ConditionType.SUCCEEDED, "Unknown", Reason.IN_PROGRESS),
        (ConditionType.READY, "False", Reason.INVALID_INPUT),
        (ConditionType.STALLED, "True", Reason.INVALID_INPUT),
    ],
)
def test_what_another_event_says_is_not_told_twice(
    kind: ConditionType, truth: Truth, reason: Reason
) -> None:
    assert transitions(status(), status(condition(kind, truth, reason))) == []


def test_what_two_conditions_say_is_told_once() -> None:
    both = (ConditionType.SUCCEEDED, ConditionType.PLANNED)
    failed = status(
        *(condition(kind, "False", Reason.INVALID_INPUT, "there is no such table") for kind in both)
    )
    assert reasons(transitions(status(), failed)) == ["InvalidInput"]


def test_progress_alone_is_nothing_to_tell() -> None:
    running = condition(ConditionType.RUNNING, "True", Reason.REPLAYING, "12 of 48 steps")
    later = running.model_copy(update={"message": "13 of 48 steps"})
    old, new = (
        status(running, progress=Progress(committed=12)),
        status(later, progress=Progress(committed=13), watermark=NOW),
    )
    assert transitions(old, new) == []


def test_an_attempt_that_starts_is_told_with_its_child() -> None:
    (notice,) = transitions(
        status(attempts=(attempt(1, outcome="Failed"),)),
        status(attempts=(attempt(1, outcome="Failed"), attempt(2))),
    )
    assert (notice.kind, notice.reason) == ("Normal", "AttemptStarted")
    assert notice.message == "attempt 2 started as SparkApplication july-a2"


def test_an_attempt_that_failed_is_told_once_with_the_reason() -> None:
    failed = attempt(1, outcome="Failed", message="its driver exited with status 1")
    (notice,) = transitions(status(attempts=(attempt(1),)), status(attempts=(failed,)))
    assert (notice.kind, notice.reason) == ("Warning", "AttemptFailed")
    assert notice.message == "attempt 1: its driver exited with status 1"
    assert transitions(status(attempts=(failed,)), status(attempts=(failed,))) == []


def test_an_attempt_that_stopped_as_it_was_told_to_is_no_failure() -> None:
    assert (
        transitions(
            status(attempts=(attempt(1),)), status(attempts=(attempt(1, outcome="Stopped"),))
        )
        == []
    )


def decision(verdict: Verdict, **fields: Any) -> DecisionStatus:
    return DecisionStatus(
        decision=verdict, result="0" * 16, by="jane", at=NOW, reason="as agreed", **fields
    )


def test_decisions_are_told_once_with_who_and_why() -> None:
    approved = status(decision=decision(Verdict.APPROVE))
    assert transitions(status(), approved) == [
        Notice("Normal", "Approved", "approved by jane: as agreed")
    ]
    assert transitions(approved, approved) == []


@pytest.mark.parametrize(
    ("reason", "event", "message"),
    [
        (Reason.REJECTED, "Rejected", "rejected by jane: as agreed; the result stays"),
        (Reason.UNDONE, "Undone", "undone by jane: as agreed; 5 rows taken out"),
    ],
)
def test_what_a_person_has_decided_is_told_once_and_is_no_failure(
    reason: Reason, event: str, message: str
) -> None:
    decided = decision(Verdict.REJECT if reason is Reason.REJECTED else Verdict.UNDO)
    ends = (ConditionType.PUBLISHED, ConditionType.SUCCEEDED)
    after = status(*(condition(kind, "False", reason, message) for kind in ends))
    field = "decision" if reason is Reason.REJECTED else "undo"
    after = after.model_copy(update={field: decided})
    assert transitions(status(), after) == [Notice("Normal", event, message)]


def test_an_undo_that_is_refused_is_told_with_what_is_in_the_way() -> None:
    asked = status(undo=decision(Verdict.UNDO))
    refused = status(undo=decision(Verdict.UNDO, refused="snapshot 9 is in the way"))
    assert transitions(status(), asked) == []
    assert transitions(asked, refused) == [
        Notice("Warning", "UndoRefused", "not undone: snapshot 9 is in the way")
    ]


def test_a_long_story_is_told_by_its_first_line() -> None:
    story = "attempt 3 failed\n" + "  at org.apache.spark\n" * 50
    (notice,) = transitions(
        status(),
        status(condition(ConditionType.SUCCEEDED, "False", Reason.ATTEMPTS_EXHAUSTED, story)),
    )
    assert notice.message == "attempt 3 failed (and 50 more lines in the status)"


def test_no_message_is_longer_than_an_event_may_be() -> None:
    (notice,) = transitions(
        status(),
        status(
            condition(
                ConditionType.SUCCEEDED, "False", Reason.PUBLISH_FAILED, "long " * 1000 + "\nmore"
            )
        ),
    )
    assert len(notice.message) <= 1024


def test_logins_in_addresses_are_left_out() -> None:
    message = "cannot connect to postgresql://backfill:hunter2@db/catalog"
    (notice,) = transitions(
        status(),
        status(condition(ConditionType.SUCCEEDED, "False", Reason.PLANNING_FAILED, message)),
    )
    assert notice.message == "cannot connect to postgresql://***@db/catalog"


def test_a_backfill_that_fails_once_and_is_suspended_once_has_fewer_than_fifteen_events() -> None:
    recorded, seen = status(), set()
    for kind, truth, reason, attempts in _LIFE:
        conditions = set_condition(
            recorded.conditions, kind, truth, reason, "in words", NOW + timedelta(1), 1
        )
        new = recorded.model_copy(update={"conditions": conditions, "attempts": attempts})
        seen |= {(notice.kind, notice.reason) for notice in transitions(recorded, new)}
        recorded = new
    assert ("Normal", "Succeeded") in seen
    assert len(seen) < 15


_FIRST = (attempt(1, outcome="Failed"),)
_SECOND = (*_FIRST, attempt(2, outcome="Stopped"))
_LIFE: list[tuple[ConditionType, Truth, Reason, tuple[Attempt, ...]]] = [
    (ConditionType.SUCCEEDED, "Unknown", Reason.IN_PROGRESS, ()),
    (ConditionType.PLANNED, "Unknown", Reason.PLANNING, ()),
    (ConditionType.PLANNED, "True", Reason.PLAN_READY, ()),
    (ConditionType.RUNNING, "Unknown", Reason.STARTING, (attempt(1),)),
    (ConditionType.RUNNING, "Unknown", Reason.DRIVER_PENDING, (attempt(1),)),
    (ConditionType.RUNNING, "True", Reason.REPLAYING, (attempt(1),)),
    (ConditionType.RUNNING, "Unknown", Reason.BACKING_OFF, _FIRST),
    (ConditionType.RUNNING, "Unknown", Reason.STARTING, (*_FIRST, attempt(2))),
    (ConditionType.RUNNING, "True", Reason.REPLAYING, (*_FIRST, attempt(2))),
    (ConditionType.RUNNING, "Unknown", Reason.SUSPENDING, (*_FIRST, attempt(2))),
    (ConditionType.RUNNING, "False", Reason.SUSPENDED, _SECOND),
    (ConditionType.RUNNING, "Unknown", Reason.STARTING, (*_SECOND, attempt(3))),
    (ConditionType.RUNNING, "True", Reason.REPLAYING, (*_SECOND, attempt(3))),
    (
        ConditionType.RUNNING,
        "False",
        Reason.ALL_STEPS_COMMITTED,
        (*_SECOND, attempt(3, outcome="Succeeded")),
    ),
    (
        ConditionType.PUBLISHED,
        "Unknown",
        Reason.WAITING_FOR_APPROVAL,
        (*_SECOND, attempt(3, outcome="Succeeded")),
    ),
    (
        ConditionType.PUBLISHED,
        "True",
        Reason.PUBLISHED,
        (*_SECOND, attempt(3, outcome="Succeeded")),
    ),
    (ConditionType.SUCCEEDED, "True", Reason.FINISHED, (*_SECOND, attempt(3, outcome="Succeeded"))),
]


def test_what_a_person_should_know_of_a_plan_is_a_warning_of_its_own() -> None:
    planned = condition(
        ConditionType.PLANNED,
        "True",
        Reason.PLAN_READY,
        "3 steps\nanother one writes there\n5 without time",
    )
    warning, told = transitions(status(), status(planned))
    assert warning == Notice(
        "Warning", "PlanWarning", "another one writes there (and 1 more line in the status)"
    )
    assert (told.kind, told.reason) == ("Normal", "Planned")
