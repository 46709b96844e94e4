"""What is recorded of a Backfill that nothing can be decided for."""

from datetime import UTC, datetime, timedelta

from backfill.api.backfill import ObjectMeta
from backfill.api.conditions import ConditionType, Reason, find_condition
from backfill.api.errors import Problem
from backfill.api.status import BackfillStatus
from backfill.controller.decisions.invalid_spec import refused

NOW = datetime(2021, 8, 1, tzinfo=UTC)
PROBLEMS = (
    Problem("spec.window", "is empty", "give an end"),
    Problem("spec.workspace", "is missing"),
)


def metadata(generation: int) -> ObjectMeta:
    return ObjectMeta(name="july", generation=generation)


def test_every_problem_is_said_for_people_and_for_tools() -> None:
    status = refused(metadata(3), BackfillStatus(), PROBLEMS, NOW)
    outcome = find_condition(status.conditions, ConditionType.SUCCEEDED)
    stalled = find_condition(status.conditions, ConditionType.STALLED)
    assert outcome is not None
    assert stalled is not None
    assert (outcome.status, outcome.reason, outcome.observed_generation) == (
        "False",
        Reason.INVALID_INPUT,
        3,
    )
    assert outcome.message == "spec.window: is empty; give an end\nspec.workspace: is missing"
    assert stalled.status == "True"
    assert (status.observed_generation, status.finished_at) == (3, NOW)


def test_the_same_is_recorded_once_for_a_generation() -> None:
    first = refused(metadata(3), BackfillStatus(), PROBLEMS, NOW)
    later = NOW + timedelta(hours=1)
    assert refused(metadata(3), first, PROBLEMS, later) is first
    assert refused(metadata(4), first, PROBLEMS, later).observed_generation == 4
    assert refused(metadata(3), first, PROBLEMS[:1], later) != first


def test_what_was_made_stays_recorded() -> None:
    recorded = BackfillStatus(
        plan_id="0123456789abcdef", workspace="s3://lake/x", spec_digest="abc"
    )
    status = refused(metadata(3), recorded, PROBLEMS, NOW)
    assert (status.plan_id, status.workspace) == ("0123456789abcdef", "s3://lake/x")
    assert not status.spec_digest, "the spec before may be tried again"
