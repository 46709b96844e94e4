"""What follows from how a turn ends, with reconcilers that do as they are told."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, cast

import pytest
from prometheus_client import generate_latest

from backfill.api.conditions import ConditionType, Reason
from backfill.api.errors import BadInput, ConflictError, Problem
from backfill.api.hand_off import HandOffStatus
from backfill.api.status import BackfillStatus
from backfill.controller.decisions.actions import Decision, Next
from backfill.controller.jobs.any_job import JobState, JobUsage
from backfill.controller.manager.metrics import Metrics, ended, state_of
from backfill.controller.manager.reconciles import (
    STUCK_SECONDS,
    Case,
    Reconciles,
    changed_conditions,
)
from backfill.controller.manager.workqueue import WorkQueue
from backfill.controller.reconcile import Reconciled
from backfill.kube.request_errors import Faltering, Forbidden, Refused, Unreachable
from cases import cases
from situations import START, attempt, backfill, observed, planned, with_condition

KEY = ("streaming", "january")
WORKING = planned(attempts=(attempt(),))
SUCCEEDED = with_condition(planned(), ConditionType.SUCCEEDED, "True", Reason.FINISHED)


WAITING = Next()


def turn(status: BackfillStatus = WORKING, following: Next = WAITING) -> Reconciled:
    return Reconciled(observed(backfill(status)), Decision(status, following))


@dataclass
class FakeReconciler:
    """Takes the turns it is given, one after the other."""

    turns: list[Reconciled | Exception | None]
    during: Callable[[], None] = lambda: None
    withheld_seconds: float | None = None

    def reconcile(self) -> Reconciled | None:
        self.during()
        result = self.turns.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


@dataclass
class FakeJobs:
    state: JobState | None = None
    closed: bool = False

    def close(self) -> None:
        self.closed = True


@dataclass
class FakeStore:
    refused: list[BadInput] = field(default_factory=list)

    def refuse(self, error: BadInput) -> None:
        self.refused.append(error)


class FakeClock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Desk:
    """Reconciles of one Backfill, and everything around them."""

    def __init__(self, *turns: Reconciled | Exception | None, job: JobState | None = None) -> None:
        self.clock = FakeClock()
        self.queue: WorkQueue[tuple[str, str]] = WorkQueue(monotonic=self.clock)
        self.metrics = Metrics(list)
        self.there: dict[str, Any] | None = {"metadata": {"uid": "one"}, "status": {}}
        self.reconciler = FakeReconciler(list(turns))
        self.store = FakeStore()
        self.opened: list[FakeJobs] = []
        self.leads = True
        self.job = job
        self.troubles: list[str] = []
        self.turns = Reconciles(
            self.queue,
            lambda key: self.there,
            self._open,
            self.metrics,
            leads=lambda: self.leads,
            on_trouble=lambda backfill, why: self.troubles.append(why),
            monotonic=self.clock,
        )

    def take(self) -> None:
        """Marks the Backfill and takes its turn."""
        self.queue.mark(KEY)
        key = self.queue.take(timeout_seconds=0)
        assert key is not None
        self.turns.take(key)

    def due_after(self) -> float | None:
        """When the next turn is due; None when it waits for a change."""
        for seconds in (0, 0.1, 0.2, 1, 5, 30, 60, 600):
            self.clock.now = seconds
            if self.queue.depth:
                return seconds
        return None

    def _open(self, key: tuple[str, str], manifest: dict[str, Any]) -> Case:
        jobs = FakeJobs(self.job)
        self.opened.append(jobs)
        return Case(
            manifest["metadata"]["uid"],
            cast(Any, self.store),
            cast(Any, jobs),
            cast(Any, self.reconciler),
        )


@cases(
    ("result", "due"),
    {
        "waits": (turn(), None),
        "at once": (turn(following=Next(requeue_seconds=0)), 0),
        "later": (turn(following=Next(requeue_seconds=30)), 30),
        "at rest": (turn(following=Next(at_rest=True)), None),
        "finished with a time to live": (
            turn(SUCCEEDED, Next(at_rest=True, requeue_seconds=600)),
            600,
        ),
        "conflict": (ConflictError("it has changed"), 0.1),
        "error": (ConnectionError("refused"), 0.1),
        "bad input": (BadInput(Problem("spec.window", "is wrong")), None),
        "gone": (None, None),
    },
)
def test_the_next_turn_is_taken_when_the_last_one_says(
    result: Reconciled | Exception | None, due: float | None
) -> None:
    desk = Desk(result)
    desk.take()
    assert desk.due_after() == due


def test_progress_that_was_kept_back_is_recorded_when_it_is_due() -> None:
    desk = Desk(turn(following=Next(requeue_seconds=60)))
    desk.reconciler.withheld_seconds = 5
    desk.take()
    assert desk.due_after() == 5


def test_what_a_backfill_needs_is_kept_from_turn_to_turn() -> None:
    desk = Desk(turn(), turn())
    desk.take()
    desk.take()
    assert len(desk.opened) == 1


def test_a_backfill_made_again_under_its_name_gets_everything_anew() -> None:
    desk = Desk(turn(), turn())
    desk.take()
    desk.there = {"metadata": {"uid": "two"}}
    desk.take()
    assert [jobs.closed for jobs in desk.opened] == [True, False]


def change_to_gone(desk: Desk) -> None:
    desk.there = None


def change_nothing(desk: Desk) -> None:
    """It ends by its turn."""


@pytest.mark.parametrize(
    ("last", "change"),
    [
        (turn(), change_to_gone),
        (None, change_nothing),
        (turn(SUCCEEDED, Next(at_rest=True)), change_nothing),
    ],
    ids=["deleted", "let go of", "finished"],
)
def test_nothing_is_kept_of_a_backfill_that_is_over(
    last: Reconciled | None, change: Callable[[Desk], None]
) -> None:
    desk = Desk(turn(), last, job=JobState(cast(Any, None), "Done"))
    desk.take()
    change(desk)
    desk.take()
    assert [jobs.closed for jobs in desk.opened] == [True]


def test_the_result_of_a_job_outlives_a_rest_that_may_end() -> None:
    desk = Desk(turn(following=Next(at_rest=True)), job=JobState(cast(Any, None), "Failed"))
    desk.take()
    assert [jobs.closed for jobs in desk.opened] == [False]


def test_bad_input_is_said_on_the_resource() -> None:
    error = BadInput(Problem("spec.window", "is wrong"))
    desk = Desk(error)
    desk.take()
    assert desk.store.refused == [error]


def test_what_keeps_turns_from_succeeding_is_told_once_for_each_cause() -> None:
    causes = Refused("never goes back"), Forbidden("may not create")
    desk = Desk(causes[0], causes[0], causes[1], turn(), causes[1], ValueError("a mistake"))
    for _ in range(6):
        desk.take()
        desk.clock.now += 60
    told = [
        *(str(cause) for cause in causes),
        str(causes[1]),
        "ValueError (details in the operator's log)",
    ]
    assert desk.troubles == told


def test_an_api_server_that_is_away_is_not_told_of() -> None:
    desk = Desk(Unreachable("no answer"))
    desk.take()
    assert desk.troubles == []
    assert desk.due_after() == 0.1


def test_an_api_server_that_answers_with_a_failure_of_its_own_is_told_of() -> None:
    desk = Desk(Faltering("failed calling webhook", 500))
    desk.take()
    assert desk.troubles == ["failed calling webhook"]
    assert desk.due_after() == 0.1


def test_a_turn_that_takes_longer_than_any_should_is_named_until_it_ends() -> None:
    desk, seen = Desk(turn()), []

    def take_long() -> None:
        for seconds in (STUCK_SECONDS, 1):
            desk.clock.now += seconds
            seen.append(desk.turns.stuck)

    desk.reconciler.during = take_long
    desk.take()
    assert seen == [None, "the reconcile of streaming/january has been under way for 901 s"]
    assert desk.turns.stuck is None


def test_who_does_not_lead_takes_no_turn() -> None:
    desk = Desk()
    desk.leads = False
    desk.take()
    assert desk.opened == []
    assert desk.due_after() is None


def test_closing_ends_what_works_for_backfills() -> None:
    desk = Desk(turn())
    desk.take()
    desk.turns.close()
    assert [jobs.closed for jobs in desk.opened] == [True]


def test_only_backfills_at_work_have_series_of_their_own() -> None:
    desk = Desk(turn(), turn(SUCCEEDED, Next(at_rest=True)))
    desk.take()
    assert (
        'backfill_steps{name="january",namespace="streaming"} 10.0'
        in generate_latest(desk.metrics.registry).decode()
    )
    desk.take()
    assert "january" not in generate_latest(desk.metrics.registry).decode()


@pytest.mark.parametrize(
    ("watermark", "lag"),
    [(START + timedelta(hours=4), "21600.0"), (START + timedelta(hours=11), "0.0"), (None, None)],
)
def test_the_lag_is_what_of_the_window_is_not_behind_the_watermark(
    watermark: datetime | None, lag: str | None
) -> None:
    desk = Desk(turn(planned(attempts=(attempt(),), watermark=watermark)))
    desk.take()
    series = 'backfill_lag_seconds{name="january",namespace="streaming"} '
    told = [
        line.removeprefix(series)
        for line in generate_latest(desk.metrics.registry).decode().splitlines()
        if line.startswith(series)
    ]
    assert told == ([lag] if lag else [])


def test_how_far_a_live_application_is_behind_is_measured_until_it_has_caught_up() -> None:
    handed = HandOffStatus(history_end=START + timedelta(hours=6), lag_seconds=42)
    status = planned(attempts=(attempt(),), watermark=START + timedelta(hours=4), hand_off=handed)
    window = {"start": "2024-01-01T00:00:00Z", "end": "Live"}
    going_on = turn(status)
    resource = backfill(status, window=window, handOff={"to": "Live"})
    seen = replace(going_on.observed, backfill=resource)
    desk = Desk(replace(going_on, observed=seen))
    desk.take()
    text = generate_latest(desk.metrics.registry).decode()
    assert 'backfill_live_lag_seconds{name="january",namespace="streaming"} 42.0' in text
    assert 'backfill_lag_seconds{name="january",namespace="streaming"} 7200.0' in text


def test_it_is_told_who_leads() -> None:
    metrics = Metrics(list)
    metrics.leading(True)
    assert "backfill_leader 1.0" in generate_latest(metrics.registry).decode()
    metrics.leading(False)
    assert "backfill_leader 0.0" in generate_latest(metrics.registry).decode()


def test_turns_are_counted_by_how_they_end() -> None:
    desk = Desk(turn(), ConflictError("changed"), ConnectionError("refused"))
    for _ in range(3):
        desk.take()
    text = generate_latest(desk.metrics.registry).decode()
    for result in ("done", "conflict", "failed"):
        assert f'backfill_reconciles_total{{result="{result}"}} 1.0' in text


def test_an_attempt_counts_once_when_it_ends() -> None:
    running, failed, again = attempt(1), attempt(1, "Failed"), attempt(2)
    assert list(ended((running,), (failed,))) == ["Failed"]
    assert list(ended((failed,), (failed, again))) == []
    assert list(ended((failed, again), (failed, attempt(2, "Succeeded")))) == ["Succeeded"]


def test_only_conditions_with_another_status_or_reason_are_news() -> None:
    one = with_condition(planned(), ConditionType.RUNNING, "Unknown", Reason.STARTING)
    two = with_condition(one, ConditionType.RUNNING, "True", Reason.REPLAYING)
    assert [condition.reason for condition in changed_conditions(one, two)] == [Reason.REPLAYING]
    assert list(changed_conditions(two, two)) == []


@pytest.mark.parametrize(
    ("conditions", "deleted", "word"),
    [
        ([], False, "New"),
        (
            [("Succeeded", "Unknown", "InProgress"), ("Planned", "Unknown", "Planning")],
            False,
            "Planning",
        ),
        (
            [("Succeeded", "Unknown", "InProgress"), ("Planned", "True", "PlanReady")],
            False,
            "Planned",
        ),
        ([("Planned", "True", "PlanReady"), ("Running", "True", "Replaying")], False, "Replaying"),
        (
            [
                ("Running", "False", "AllStepsCommitted"),
                ("Published", "Unknown", "WaitingForApproval"),
            ],
            False,
            "WaitingForApproval",
        ),
        (
            [("Succeeded", "True", "Finished"), ("Running", "False", "AllStepsCommitted")],
            False,
            "Succeeded",
        ),
        ([("Succeeded", "False", "InvalidInput")], False, "Failed"),
        ([("Succeeded", "False", "Rejected")], False, "Rejected"),
        ([("Succeeded", "False", "Undone")], False, "Undone"),
        ([("Running", "True", "Replaying")], True, "Deleting"),
    ],
)
def test_where_a_backfill_stands_is_one_word(
    conditions: list[tuple[str, str, str]], deleted: bool, word: str
) -> None:
    metadata = {"deletionTimestamp": "2024-01-01T00:00:00Z"} if deleted else {}
    status = {
        "conditions": [
            {"type": kind, "status": value, "reason": reason} for kind, value, reason in conditions
        ]
    }
    assert state_of({"metadata": metadata, "status": status}) == word


def test_what_a_job_took_is_measured_by_its_kind() -> None:
    metrics = Metrics(list)
    metrics.used(
        JobUsage(KEY, "plan", "Done", waited_seconds=0.5, seconds=42.0, peak_bytes=300_000_000)
    )
    metrics.used(JobUsage(KEY, "plan", "Failed", waited_seconds=0.5, seconds=1.0, peak_bytes=None))
    text = generate_latest(metrics.registry).decode()
    assert 'backfill_jobs_total{kind="plan",outcome="Done"} 1.0' in text
    assert 'backfill_job_duration_seconds_sum{kind="plan"} 43.0' in text
    assert 'backfill_job_peak_bytes{kind="plan"} 3e+08' in text
