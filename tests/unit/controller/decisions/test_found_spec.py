"""A spec without sources is completed before it is planned, and by nothing but what was found for
it.
"""

from dataclasses import replace
from typing import Any

from backfill.api.backfill import Backfill
from backfill.api.conditions import ConditionType, Reason, find_condition
from backfill.api.errors import BackfillError, BadInput, Problem
from backfill.api.resolved import Resolved, search_digest
from backfill.api.spark_application import Application
from backfill.api.status import BackfillStatus
from backfill.controller.decisions.actions import CancelJob, StartJob
from backfill.controller.decisions.decide import decide, digest, finished
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.policy import CLUSTER
from backfill.controller.jobs.kinds.make_plan import PlanJob
from backfill.controller.jobs.kinds.resolve import ResolveJob
from situations import backfill, job_state, observed

APPLICATION = Application(name="app", main_application_file="/app/main.py")
FULL = backfill().spec
OUTPUTS = [{"name": "counts", "table": "lake.ops.counts", "timestampColumn": "at"}]


def short(status: BackfillStatus | None = None, **spec: Any) -> Backfill:
    return backfill(status, **{"sources": [], "outputs": [], "publish": "Append", **spec})


def seen(resource: Backfill, **fields: Any) -> Observed:
    return replace(observed(resource), application=APPLICATION, policy=CLUSTER, **fields)


def found(resource: Backfill) -> Resolved:
    sources = [each.to_manifest() for each in FULL.sources]
    return Resolved.model_validate(
        {"foundFor": search_digest(resource.spec), "sources": sources, "outputs": OUTPUTS}
    )


def test_what_the_application_reads_is_found_and_recorded_before_it_is_planned() -> None:
    search = ResolveJob.of(short(), APPLICATION)
    asked = decide(seen(short()))
    assert asked.next.actions == (StartJob(search),)
    planned = find_condition(asked.status.conditions, ConditionType.PLANNED)
    assert planned is not None and "by running its main program" in planned.message

    done = job_state(search, "Done", result=found(short()))
    recorded = decide(seen(short(asked.status), job=done))
    assert recorded.status.resolved == found(short())
    assert recorded.next.actions == (CancelJob(),)

    complete = short(recorded.status)
    (action,) = decide(seen(complete)).next.actions
    assert isinstance(action, StartJob) and isinstance(action.job, PlanJob)
    assert action.job.spec.sources == FULL.sources
    assert [each.name for each in action.job.spec.outputs] == ["counts"]


def test_another_window_is_searched_again_before_there_is_a_plan() -> None:
    window = {"start": "2024-01-01T00:00:00Z", "end": "2024-01-02T00:00:00Z"}
    edited = short(BackfillStatus(resolved=found(short())), window=window, generation=2)
    assert decide(seen(edited)).next.actions == (StartJob(ResolveJob.of(edited, APPLICATION)),)


def test_what_a_person_has_to_decide_is_said_and_waits_for_a_change_of_the_spec() -> None:
    question = Problem("spec.sources[0].timestampColumn", "Candidates: at, seen", "say it")
    failed = job_state(ResolveJob.of(short(), APPLICATION), "Failed", error=BadInput(question))
    refused = decide(seen(short(), job=failed))
    assert refused.next.at_rest
    outcome = find_condition(refused.status.conditions, ConditionType.SUCCEEDED)
    assert outcome is not None and outcome.reason == Reason.INVALID_INPUT
    assert "Candidates: at, seen" in outcome.message
    assert finished(short(refused.status))
    assert not finished(short(refused.status, window={**WINDOW, "warmUp": "1h"}, generation=2))


WINDOW = {"start": "2024-01-01T00:00:00Z", "end": "2024-01-01T10:00:00Z"}


def test_a_search_that_a_server_prevents_is_tried_again() -> None:
    search = ResolveJob.of(short(), APPLICATION)
    failed = job_state(search, "Failed", error=BackfillError("the catalog is away"))
    decision = decide(seen(short(), job=failed))
    assert decision.status.retry is not None and decision.status.retry.job == "resolve"
    assert not decision.next.at_rest


def test_a_complete_spec_that_failed_is_not_tried_again_by_an_edit_of_no_consequence() -> None:
    complete = short(BackfillStatus(resolved=found(short())))
    begun = decide(seen(complete)).status
    assert begun.spec_digest == digest(complete.spec)


def test_what_cannot_be_run_here_is_to_be_listed() -> None:
    refused = decide(replace(seen(short()), application=None))
    outcome = find_condition(refused.status.conditions, ConditionType.SUCCEEDED)
    assert outcome is not None and "list its sources and outputs" in outcome.message


def test_what_cannot_complete_the_spec_is_refused_and_not_looked_for_again() -> None:
    search = ResolveJob.of(short(), APPLICATION)
    twice = {**OUTPUTS[0], "name": "again"}
    of_another_version = found(short()).model_copy(update={"found_for": "other"})
    with_wrong_outputs = Resolved.model_validate(
        found(short()).to_manifest() | {"outputs": [*OUTPUTS, twice]}
    )
    for wrong, words in (
        (of_another_version, "the same version of backfill-operator"),
        (with_wrong_outputs, "already the table of another output"),
    ):
        done = job_state(search, "Done", result=wrong)
        refused = decide(seen(short(), job=done))
        outcome = find_condition(refused.status.conditions, ConditionType.SUCCEEDED)
        assert outcome is not None and words in outcome.message
        assert refused.status.resolved is None and refused.next.at_rest


def test_a_corrected_program_is_searched_again_where_nothing_was_planned() -> None:
    """What was found of the one before would be refused, or missed, for ever."""
    planning = short(BackfillStatus(resolved=found(short())))
    (action,) = decide(seen(planning)).next.actions
    assert isinstance(action, StartJob)
    wrong = BadInput(Problem("spec.outputs[0].table", "does not exist"))
    failed = decide(seen(planning, job=job_state(action.job, "Failed", error=wrong))).status
    assert finished(short(failed))
    again = short(failed, retryNonce="1", generation=2)
    forgotten = decide(seen(again))
    assert (forgotten.status.resolved, forgotten.next.requeue_seconds) == (None, 0)
    (action,) = decide(seen(short(forgotten.status, retryNonce="1", generation=2))).next.actions
    assert isinstance(action, StartJob) and isinstance(action.job, ResolveJob)
