"""What a person decides about a result: publish it, drop it, or undo its publication."""

from datetime import timedelta
from typing import Any

import pytest

from backfill.api.approval import already, undecidable
from backfill.api.backfill import Backfill
from backfill.api.conditions import ConditionType, Reason, find_condition
from backfill.api.decision import result_id
from backfill.api.errors import BackfillError, PublishConflict
from backfill.api.status import BackfillStatus, ExportStatus, OutputStatus, Verdict
from backfill.controller.decisions.actions import CancelJob, Decision, StartJob
from backfill.controller.decisions.decide import decide
from backfill.controller.decisions.policy import CLUSTER, LOCAL, Policy
from backfill.controller.jobs.any_job import Job
from backfill.controller.jobs.kinds.discard import DiscardJob
from backfill.controller.jobs.kinds.publish import PublishJob, PublishResult
from backfill.controller.jobs.kinds.undo import UndoJob, UndoResult
from situations import (
    NOW,
    STEPS,
    attempt,
    backfill,
    decided,
    job_state,
    observed,
    planned,
    with_condition,
)


def outputs(*names: str, **publish: str) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "table": f"lake.ops.{name}",
            "publish": {"mode": "Append", "approval": "Manual", **publish},
        }
        for name in names
    ]


def staged(*names: str) -> BackfillStatus:
    status = planned(attempts=(attempt(outcome="Succeeded"),), committed=STEPS)
    found = tuple(
        OutputStatus(
            name=name,
            table=f"lake.ops.{name}",
            branch="backfill/january",
            rows=5,
            staged_snapshot_id=number,
        )
        for number, name in enumerate(names)
    )
    status = status.model_copy(update={"outputs": found})
    return with_condition(status, ConditionType.RUNNING, "False", Reason.ALL_STEPS_COMMITTED)


def after(resource: Backfill, **seen: Any) -> Backfill:
    return resource.model_copy(update={"status": decide(observed(resource, **seen)).status})


def waiting(*names: str, **publish: str) -> Backfill:
    return after(backfill(staged(*names), outputs=outputs(*names, **publish)))


def finished(*names: str) -> Backfill:
    """One that was approved, and has published all outputs."""
    resource = waiting(*names)
    resource = after(resource, decisions=(decided(resource.status, Verdict.APPROVE),))
    for number, name in enumerate(names):
        job = PublishJob(job_of(resource).staged, resource.spec.window)
        done = job_state(job, "Done", result=PublishResult(name, 80 + number))
        resource = after(resource, job=done)
    return resource


def job_of(resource: Backfill, **seen: Any) -> Any:
    (job,) = jobs(decide(observed(resource, **seen)))
    return job


def jobs(decision: Decision) -> list[Job]:
    return [action.job for action in decision.next.actions if isinstance(action, StartJob)]


def stage(status: BackfillStatus, kind: ConditionType) -> tuple[str, Reason, str]:
    condition = find_condition(status.conditions, kind)
    assert condition is not None
    return condition.status, condition.reason, condition.message


def test_an_approval_publishes_and_is_recorded() -> None:
    resource = waiting("counts")
    assert resource.status.decision is None
    approval = decided(resource.status, Verdict.APPROVE)
    decision = decide(observed(resource, decisions=(approval,)))
    assert [type(job) for job in jobs(decision)] == [PublishJob]
    assert decision.status.decision == approval
    published = finished("counts").status
    assert stage(published, ConditionType.PUBLISHED) == (
        "True",
        Reason.PUBLISHED,
        "5 rows to lake.ops.counts, approved by jane: as agreed",
    )


def test_an_approval_of_another_result_has_no_effect() -> None:
    resource = waiting("counts")
    other = decided(resource.status, Verdict.APPROVE, result="0123456789abcdef")
    decision = decide(observed(resource, decisions=(other,)))
    assert jobs(decision) == []
    assert decision.status.decision is None


def test_a_result_that_is_staged_anew_is_approved_anew() -> None:
    resource = waiting("counts")
    approved = after(resource, decisions=(decided(resource.status, Verdict.APPROVE),)).status
    other = approved.outputs[0].model_copy(update={"staged_snapshot_id": 99})
    again = backfill(approved.model_copy(update={"outputs": (other,)}), outputs=outputs("counts"))
    decision = decide(observed(again))
    assert jobs(decision) == []
    assert decision.status.decision is None
    assert stage(decision.status, ConditionType.PUBLISHED)[1] == Reason.WAITING_FOR_APPROVAL


def test_another_backfill_with_the_same_plan_has_another_result() -> None:
    status = staged("counts")
    assert result_id("first", status) != result_id("second", status)


def test_the_first_decision_stays() -> None:
    resource = waiting("counts")
    approval = decided(resource.status, Verdict.APPROVE)
    approved = after(resource, decisions=(approval,))
    rejection = decided(resource.status, Verdict.REJECT, by="joe")
    assert after(approved, decisions=(rejection,)).status.decision == approval
    assert "already approved by jane" in undecidable(approved, Verdict.REJECT)
    assert "already approved by jane" in already(approved, Verdict.APPROVE)


def test_nothing_is_decided_while_it_is_suspended() -> None:
    resource = waiting("counts")
    suspended = backfill(resource.status, outputs=outputs("counts"), suspend=True)
    decision = decide(observed(suspended, decisions=(decided(resource.status, Verdict.APPROVE),)))
    assert jobs(decision) == []
    assert decision.status.decision is None
    for verdict in (Verdict.APPROVE, Verdict.REJECT):
        assert "is suspended" in undecidable(suspended, verdict)
        assert undecidable(resource, verdict) == ""


def test_a_rejection_ends_the_backfill_and_publishes_nothing() -> None:
    resource = waiting("counts")
    decision = decide(
        observed(resource, decisions=(decided(resource.status, Verdict.REJECT, reason="a gap"),))
    )
    assert jobs(decision) == []
    assert decision.next.at_rest
    told = "rejected by jane: a gap; the result stays in branch backfill/january of lake.ops.counts"
    for kind in (ConditionType.PUBLISHED, ConditionType.SUCCEEDED):
        assert stage(decision.status, kind) == ("False", Reason.REJECTED, told)
    assert decision.status.finished_at is not None


def test_a_rejected_backfill_is_not_tried_again() -> None:
    resource = waiting("counts")
    status = after(resource, decisions=(decided(resource.status, Verdict.REJECT),)).status
    again = backfill(status, generation=2, outputs=outputs("counts", approval="Automatic"))
    assert decide(observed(again)).next.actions == ()
    assert "already rejected" in already(again, Verdict.REJECT)


def test_a_rejection_waits_for_a_commit_that_is_under_way() -> None:
    resource = waiting("counts", approval="Automatic")
    job = job_of(resource)
    rejection = decided(resource.status, Verdict.REJECT)
    decision = decide(observed(resource, decisions=(rejection,), job=job_state(job, "Running")))
    assert decision.next.actions == ()
    assert job_of(resource, decisions=(rejection,)) == job, "also by an operator that begins there"
    late = after(
        resource.model_copy(update={"status": decision.status}),
        decisions=(rejection,),
        job=job_state(job, "Done", result=PublishResult("counts", 8)),
    )
    assert stage(late.status, ConditionType.PUBLISHED)[:2] == ("True", Reason.PUBLISHED)


def test_a_rejection_does_not_count_when_a_commit_may_have_been_made_before_a_suspension() -> None:
    chosen = outputs("counts", approval="Automatic")
    publishing = waiting("counts", approval="Automatic")
    suspended = after(backfill(publishing.status, suspend=True, outputs=chosen), policy=CLUSTER)
    assert stage(suspended.status, ConditionType.PUBLISHED)[1] == Reason.SUSPENDED
    resumed, rejection = (
        backfill(suspended.status, outputs=chosen),
        decided(suspended.status, Verdict.REJECT),
    )
    assert job_of(resumed, decisions=(rejection,)) == job_of(publishing)
    assert after(resumed, decisions=(rejection,)).status.decision is None


def test_a_rejection_does_not_count_when_a_commit_may_have_been_made_before_a_failure() -> None:
    chosen = outputs("counts", approval="Automatic")
    publishing = waiting("counts", approval="Automatic")
    lost = job_state(job_of(publishing), "Failed", error=PublishConflict("rows have changed"))
    failed = after(publishing, job=lost)
    again = backfill(failed.status, generation=2, retryNonce="1", outputs=chosen)
    rejection = decided(failed.status, Verdict.REJECT)
    assert job_of(again, decisions=(rejection,)) == job_of(publishing)


def test_a_rejection_counts_for_the_outputs_that_wait_once_the_others_are_published() -> None:
    chosen = [*outputs("a", approval="Automatic"), *outputs("b")]
    resource = after(backfill(staged("a", "b"), outputs=chosen))
    job, rejection = job_of(resource), decided(resource.status, Verdict.REJECT)
    done = job_state(job, "Done", result=PublishResult("a", 8))
    resource = after(resource, decisions=(rejection,), job=done)
    assert stage(resource.status, ConditionType.SUCCEEDED)[1] == Reason.REJECTED
    assert [output.snapshot_id for output in resource.status.outputs] == [8, None]


def test_all_outputs_are_checked_before_the_first_is_published() -> None:
    resource = waiting("a", "b", "c")
    approval = decided(resource.status, Verdict.APPROVE)
    first = job_of(resource, decisions=(approval,))
    assert first.staged.output.name == "a"
    assert [other.output.name for other in first.others] == ["b", "c"]
    approved = after(resource, decisions=(approval,))
    done = job_state(first, "Done", result=PublishResult("a", 8))
    second = job_of(approved, job=done)
    assert (second.staged.output.name, second.others) == ("b", ())


def test_outputs_that_are_approved_later_are_checked_together_as_well() -> None:
    wanted = [*outputs("a", "b", approval="Automatic"), *outputs("c", "d", "e")]
    resource = backfill(staged("a", "b", "c", "d", "e"), outputs=wanted)
    found = []
    for name in "abcde":
        if name == "c":
            resource = after(resource)
            approval = decided(resource.status, Verdict.APPROVE)
            resource = after(resource, decisions=(approval,))
        job = job_of(resource)
        found.append((job.staged.output.name, [other.output.name for other in job.others]))
        done = job_state(job, "Done", result=PublishResult(name, 8))
        resource = after(resource, job=done)
    assert found == [("a", ["b"]), ("b", []), ("c", ["d", "e"]), ("d", []), ("e", [])]


def test_an_undo_takes_out_what_was_published_last_first() -> None:
    resource = finished("a", "b")
    assert stage(resource.status, ConditionType.SUCCEEDED)[0] == "True"
    request = decided(resource.status, Verdict.UNDO)
    job = job_of(resource, decisions=(request,))
    assert isinstance(job, UndoJob)
    assert [staged.output.name for staged in job.staged] == ["b", "a"]
    assert job.snapshots == (81, 80)
    undoing = after(resource, decisions=(request,))
    assert stage(undoing.status, ConditionType.PUBLISHED)[1] == Reason.UNDOING
    assert job_of(undoing) == job, "what was begun goes on"
    done = job_state(job, "Done", result=UndoResult({"a": 90, "b": 91}, gained={"a": 2, "b": -5}))
    decision = decide(observed(undoing, job=done))
    assert decision.next.actions == (CancelJob(),)
    for kind in (ConditionType.PUBLISHED, ConditionType.SUCCEEDED):
        state, reason, message = stage(decision.status, kind)
        assert (state, reason) == ("False", Reason.UNDONE)
        assert message == (
            "undone by jane: as agreed; 5 rows removed from lake.ops.a and 7 rows restored by"
            " snapshot 90, 5 rows removed from lake.ops.b by snapshot 91"
        )
    undone = undoing.model_copy(update={"status": decision.status})
    assert [output.undo_snapshot_id for output in undone.status.outputs] == [90, 91]
    assert decide(observed(undone, decisions=(request,))).next.actions == ()
    assert "already undone by jane" in already(undone, Verdict.UNDO)
    again = backfill(undone.status, generation=5, outputs=outputs("a", "b"))
    assert decide(observed(again)).next.actions == (), "what was undone is not published again"


def test_files_are_published_and_undone_like_rows_of_a_table() -> None:
    location = "s3a://lake/out/plays"
    wanted = [
        *outputs("a", mode="Export", location=location, approval="Automatic"),
        *outputs("b", approval="Automatic"),
    ]
    resource = backfill(staged("a", "b"), outputs=wanted)
    first = job_of(resource)
    assert first.staged.output.publish.location == location
    written = ExportStatus(location="\x1b[2J", files=2, rows=5, bytes=700)
    resource = after(
        resource, job=job_state(first, "Done", result=PublishResult("a", exported=written))
    )
    second = job_of(resource)
    assert second.staged.output.name == "b"
    resource = after(resource, job=job_state(second, "Done", result=PublishResult("b", 81)))
    exported = resource.status.outputs[0].exported
    assert exported == written.model_copy(update={"location": location}), "as the spec says"
    for kind in (ConditionType.PUBLISHED, ConditionType.SUCCEEDED):
        state, _, message = stage(resource.status, kind)
        assert state == "True"
        assert f"5 rows to {location}, 5 rows to lake.ops.b" in message

    assert DiscardJob.of(resource).exported == ("a",), "its files stay"

    request = decided(resource.status, Verdict.UNDO)
    job = job_of(resource, decisions=(request,))
    assert isinstance(job, UndoJob)
    assert job.snapshots == (81, None)
    resource = after(resource, decisions=(request,))
    assert DiscardJob.of(resource).exported == (), "what is half undone is removed"
    in_the_way = UndoResult({"b": 91}, "a: files were changed")
    refused = after(resource, job=job_state(job, "Done", result=in_the_way))
    assert DiscardJob.of(refused).exported == ("a",)
    assert stage(refused.status, ConditionType.PUBLISHED)[2] == (
        "5 rows removed from lake.ops.b by snapshot 91; not undone: a: files were changed"
    )
    done = after(resource, job=job_state(job, "Done", result=UndoResult({"b": 91}, "", ("a",))))
    assert stage(done.status, ConditionType.PUBLISHED)[2] == (
        f"undone by jane: as agreed; 5 rows removed from {location}, 5 rows removed from lake.ops.b"
        " by snapshot 91"
    )
    assert "already undone by jane" in already(done, Verdict.UNDO)


@pytest.mark.parametrize("raised", [True, False])
def test_what_is_in_the_way_of_an_undo_is_recorded_and_it_may_be_asked_for_again(
    raised: bool,
) -> None:
    resource = finished("counts")
    request = decided(resource.status, Verdict.UNDO)
    job = job_of(resource, decisions=(request,))
    ended = (
        job_state(job, "Failed", error=BackfillError("snapshot 9 is in the way"))
        if raised
        else job_state(job, "Done", result=UndoResult({}, "snapshot 9 is in the way"))
    )
    refused = after(resource, decisions=(request,), job=ended)
    assert refused.status.undo is not None
    assert refused.status.undo.refused == "snapshot 9 is in the way"
    assert stage(refused.status, ConditionType.PUBLISHED) == (
        "True",
        Reason.PUBLISHED,
        "not undone: snapshot 9 is in the way",
    )
    assert stage(refused.status, ConditionType.SUCCEEDED)[0] == "True"
    assert jobs(decide(observed(refused, decisions=(request,)))) == []
    second = decided(resource.status, Verdict.UNDO, number=2)
    assert isinstance(job_of(refused, decisions=(second,)), UndoJob)


def test_what_one_output_published_is_undone_after_another_one_failed() -> None:
    resource = waiting("a", "b")
    resource = after(resource, decisions=(decided(resource.status, Verdict.APPROVE),))
    job = PublishJob(job_of(resource).staged, resource.spec.window)
    resource = after(resource, job=job_state(job, "Done", result=PublishResult("a", 8)))
    conflict = job_state(job_of(resource), "Failed", error=PublishConflict("snapshot 9"))
    failed = after(resource, job=conflict)
    assert stage(failed.status, ConditionType.SUCCEEDED)[1] == Reason.PUBLISH_CONFLICT
    request = decided(failed.status, Verdict.UNDO)
    undo = job_of(failed, decisions=(request,))
    assert undo.snapshots == (8,)
    refused = after(
        failed, decisions=(request,), job=job_state(undo, "Done", result=UndoResult({}, "no"))
    )
    state, reason, message = stage(refused.status, ConditionType.PUBLISHED)
    assert (state, reason) == ("False", Reason.PUBLISH_CONFLICT)
    assert message.splitlines()[-1] == "not undone: no"


def test_what_was_undone_is_said_where_the_rest_was_not() -> None:
    resource = finished("a", "b")
    request = decided(resource.status, Verdict.UNDO)
    job = job_of(resource, decisions=(request,))
    part = job_state(job, "Done", result=UndoResult({"b": 91}, "a: snapshot 9 is in the way"))
    status = after(resource, decisions=(request,), job=part).status
    assert stage(status, ConditionType.PUBLISHED)[2] == (
        "5 rows removed from lake.ops.b by snapshot 91; not undone: a: snapshot 9 is in the way"
    )
    assert [output.undo_snapshot_id for output in status.outputs] == [None, 91]


def test_a_retry_waits_for_an_undo_that_is_under_way() -> None:
    resource = waiting("a", "b")
    resource = after(resource, decisions=(decided(resource.status, Verdict.APPROVE),))
    job = PublishJob(job_of(resource).staged, resource.spec.window)
    resource = after(resource, job=job_state(job, "Done", result=PublishResult("a", 8)))
    conflict = job_state(job_of(resource), "Failed", error=PublishConflict("snapshot 9"))
    resource = after(resource, job=conflict)
    request = decided(resource.status, Verdict.UNDO)
    undo = job_of(resource, decisions=(request,))
    status = after(resource, decisions=(request,)).status
    again = backfill(status, generation=2, outputs=outputs("a", "b"), retryNonce="again")
    assert decide(observed(again, job=job_state(undo, "Running"))).next.actions == ()
    assert job_of(again) == undo
    refused = after(again, job=job_state(undo, "Done", result=UndoResult({}, "no")))
    assert job_of(refused).staged.output.name == "b", "what is left is published after all"


def test_an_undo_that_fails_for_a_moment_is_tried_again_on_a_cluster() -> None:
    resource = finished("counts")
    request = decided(resource.status, Verdict.UNDO)
    job = job_of(resource, decisions=(request,))
    failed = job_state(job, "Failed", error=BackfillError("the catalog does not answer"))
    decision = decide(observed(resource, decisions=(request,), job=failed, policy=CLUSTER))
    assert decision.next.requeue_seconds == 10
    assert decision.status.retry is not None
    assert stage(decision.status, ConditionType.PUBLISHED)[1] == Reason.TRYING_AGAIN


@pytest.mark.parametrize("policy", [CLUSTER, LOCAL])
def test_what_was_undone_before_the_catalog_failed_is_recorded_and_the_rest_is_tried_again(
    policy: Policy,
) -> None:
    resource = finished("a", "b")
    request = decided(resource.status, Verdict.UNDO)
    job = job_of(resource, decisions=(request,))
    part = job_state(job, "Done", result=UndoResult({"b": 91}, failed="a: no answer"))
    decision = decide(observed(resource, decisions=(request,), job=part, policy=policy))
    assert [output.undo_snapshot_id for output in decision.status.outputs] == [None, 91]
    assert decision.next.actions == (CancelJob(),)
    again = resource.model_copy(update={"status": decision.status})
    if policy is LOCAL:
        assert stage(again.status, ConditionType.PUBLISHED)[2] == (
            "5 rows removed from lake.ops.b by snapshot 91; not undone: a: no answer"
        )
        return
    assert stage(again.status, ConditionType.PUBLISHED)[1] == Reason.TRYING_AGAIN
    assert decision.next.requeue_seconds == 10
    later = NOW + timedelta(seconds=10)
    assert job_of(again, decisions=(request,), policy=policy, now=later) == job
    second = decide(observed(again, decisions=(request,), job=part, policy=policy, now=later))
    assert second.status.retry is not None and second.status.retry.failures == 2
    done = job_state(job, "Done", result=UndoResult({"a": 90, "b": 91}))
    undone = decide(observed(again, decisions=(request,), job=done, policy=policy, now=later))
    assert stage(undone.status, ConditionType.SUCCEEDED)[1] == Reason.UNDONE
    tired = later + timedelta(minutes=30)
    last = decide(observed(again, decisions=(request,), job=part, policy=policy, now=tired))
    assert last.status.undo is not None and last.status.undo.refused == "a: no answer"


def test_nothing_that_is_in_progress_or_unpublished_is_undone() -> None:
    resource = waiting("counts")
    assert "published nothing" in undecidable(resource, Verdict.UNDO)
    request = decided(resource.status, Verdict.UNDO)
    assert jobs(decide(observed(resource, decisions=(request,)))) == []


def test_deletion_waits_for_an_undo_that_is_under_way() -> None:
    resource = finished("counts")
    request = decided(resource.status, Verdict.UNDO)
    undoing = after(resource, decisions=(request,))
    job = job_state(job_of(undoing), "Running")
    deleted = backfill(undoing.status, deleted=True, outputs=outputs("counts"))
    assert decide(observed(deleted, job=job)).next.actions == ()
    assert isinstance(job_of(deleted), DiscardJob)


_REFERENCE = {"against": "Reference", "reference": {"table": "lake.audit.counts"}}


@pytest.mark.parametrize(
    ("publish", "validate", "waits"),
    [
        ({"mode": "Replace"}, None, True),
        ({"mode": "Replace"}, {"keys": ["id"]}, False),
        ({"mode": "Replace"}, _REFERENCE, True),
        ({"mode": "Upsert"}, _REFERENCE, True),
        ({"mode": "Append"}, _REFERENCE, False),
        ({"mode": "Replace", "approval": "Automatic"}, _REFERENCE, False),
        ({"mode": "Replace", "approval": "Automatic"}, None, False),
        ({"mode": "Replace", "approval": "Manual"}, {"keys": ["id"]}, True),
        ({"mode": "Append"}, None, False),
    ],
)
def test_a_replacement_of_rows_that_were_not_compared_needs_approval(
    publish: dict[str, str], validate: dict[str, Any] | None, waits: bool
) -> None:
    output = {"name": "counts", "table": "lake.ops.counts", "publish": publish}
    if validate is not None:
        output |= {"validate": validate}
    (read,) = backfill(outputs=[{**output, "timestampColumn": "at", "keys": ["id"]}]).spec.outputs
    assert read.needs_approval == waits
