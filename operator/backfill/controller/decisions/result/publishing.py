"""From staged results to published ones, one output after another."""

from backfill.api.approval import (
    is_decided,
    is_empty,
    may_delete_unreplaced,
    needed_approval,
    unexplained_nulls,
    waits,
)
from backfill.api.conditions import ConditionType, Reason
from backfill.api.decision import result_id
from backfill.api.errors import PublishConflict, ResultLost
from backfill.api.output import Output, PublishMode
from backfill.api.quantities import count
from backfill.api.status import OutputStatus, Verdict
from backfill.api.validation import falls_short
from backfill.controller.decisions.actions import CancelJob, Next
from backfill.controller.decisions.delivering import deliver, to_be_delivered
from backfill.controller.decisions.handing_over import hand_over
from backfill.controller.decisions.human_decisions import note_decision
from backfill.controller.decisions.job_retries import work
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.open_result_messages import (
    lost_rows,
    nothing,
    null_columns,
    unreplaced,
)
from backfill.controller.decisions.status_draft import Draft
from backfill.controller.decisions.validated_condition import say_validated, validated
from backfill.controller.jobs.kinds.publish import PublishJob, PublishResult
from backfill.controller.jobs.staged_outputs import staged_outputs

_PUBLISHED = ConditionType.PUBLISHED
_LINE = "\n"
_MOST_CAUSES_SAID = 2


def publish(observed: Observed, draft: Draft) -> Next:
    """Publishes the results that need no approval, then waits for approval of the others."""
    _record_result(observed, draft)
    say_validated(observed, draft)
    left, staged = (
        _to_publish(observed, draft),
        {status.name: status for status in draft.status.outputs},
    )
    draft.set(result=result_id(observed.backfill.metadata.uid, draft.status))
    note_decision(observed, draft)
    if left and is_decided(draft.status, Verdict.REJECT):
        return _reject(draft, left)
    approved = is_decided(draft.status, Verdict.APPROVE)
    empty = is_empty(draft.status)
    ready = [
        output for output in left if approved or not (empty or waits(output, staged[output.name]))
    ]
    delivered = [each for each in ready if each.publish.mode is PublishMode.DELIVER]
    if tables := [output for output in ready if output not in delivered]:
        return _publish_one(observed, draft, tables)
    if delivered:  # after what can be undone
        return deliver(observed, draft, delivered)
    if left:
        draft.condition(
            _PUBLISHED, "Unknown", Reason.WAITING_FOR_APPROVAL, _waits(observed, draft, left)
        )
        return Next(at_rest=True)
    end = _say_published(draft)
    waits_for_live = hand_over(observed, draft)
    if waits_for_live is not None:
        return waits_for_live
    _succeed(observed, draft, end)
    return Next(at_rest=True)


def _waits(observed: Observed, draft: Draft, outputs: list[Output]) -> str:
    """What waits for approval, and how to approve it.

    Names the rows that are missing, or that would be deleted without replacement.
    """
    what = f"waiting for approval to publish {', '.join(output.name for output in outputs)}"
    staged, spec = {status.name: status for status in draft.status.outputs}, observed.backfill.spec
    losses = [nothing(draft.status)]
    losses += [
        to_be_delivered(staged[output.name])
        for output in outputs
        if output.publish.mode is PublishMode.DELIVER
    ]
    losses += [
        lost_rows(staged[output.name], output.publish.max_loss)
        for output in outputs
        if output.publish.mode is PublishMode.REPLACE
    ]
    losses += [
        null_columns(staged[output.name], columns)
        for output in outputs
        if (columns := unexplained_nulls(output, staged[output.name]))
    ]
    losses += [
        unreplaced(staged[output.name], spec.window, output.publish.mode)
        for output in outputs
        if may_delete_unreplaced(output, staged[output.name])
    ]
    losses += [
        line
        for output in outputs
        if falls_short(output, staged[output.name])
        for line in _differs(output, staged[output.name])
    ]
    late = draft.status.progress.rows_dropped_late
    if late and any(output.publish.mode.takes_rows_away for output in outputs):
        losses.append(f"{count(late, 'row')} dropped as late and missing from the results")
    how = (
        ""
        if observed.policy.screen
        else f"Check the branches listed in status.outputs, then run: {draft.kubectl('approve')}\n"
        f"To drop the result: {draft.kubectl('reject')} --reason ..."
    )
    return "\n".join(filter(None, (what, *_warned(observed, draft, outputs), *losses, how)))


def _differs(output: Output, status: OutputStatus) -> tuple[str, ...]:
    """How a result compares, and the first of what its report says about that."""
    causes = status.comparison.causes if status.comparison is not None else ()
    return validated(output, status), *causes[:_MOST_CAUSES_SAID]


def _warned(observed: Observed, draft: Draft, outputs: list[Output]) -> list[str]:
    """Warnings of planning about publishing these outputs."""
    planned = draft.find(ConditionType.PLANNED)
    places = (
        index for index, output in enumerate(observed.backfill.spec.outputs) if output in outputs
    )
    prefixes = tuple(f"spec.outputs[{index}].publish: " for index in places)
    return [
        line
        for line in (planned.message.splitlines() if planned else ())
        if line.startswith(prefixes)
    ]


def _to_publish(observed: Observed, draft: Draft) -> list[Output]:
    done = {output.name for output in draft.status.outputs if output.is_published}
    return [
        output
        for output in observed.backfill.spec.outputs
        if output.publish.mode != PublishMode.NONE and output.name not in done
    ]


def _stays(outputs: tuple[OutputStatus, ...]) -> str:
    branches = ", ".join(f"branch {output.branch} of {output.table}" for output in outputs)
    return (
        f"the result stays in {branches}"
        if branches
        else "spec.outputs contains no table, so there is nothing to publish"
    )


def _reject(draft: Draft, left: list[Output]) -> Next:
    """Ends the Backfill: nothing more of its result is published."""
    names = {output.name for output in left}
    stays = _stays(tuple(output for output in draft.status.outputs if output.name in names))
    draft.fail(_PUBLISHED, Reason.REJECTED, f"rejected by {draft.status.decision}; {stays}")
    return Next(actions=(CancelJob(),), at_rest=True)


def _publish_one(observed: Observed, draft: Draft, ready: list[Output]) -> Next:
    """Publishes the first of the outputs that are ready. Before any is published, all of them are
    checked: those that need no approval, and the others once they are approved.
    """
    output, by = ready[0], draft.status.decision
    approved = f", approved by {by}" if by is not None else ""
    draft.condition(
        _PUBLISHED,
        "Unknown",
        Reason.PUBLISHING,
        f"publishing {output.name} to {output.destination}{approved}",
    )
    of_name = {staged.output.name: staged for staged in staged_outputs(observed.backfill)}
    first = not _published_with(output, observed, draft)
    others = tuple(of_name[each.name] for each in ready[1:]) if first else ()
    job = PublishJob(of_name[output.name], observed.backfill.spec.window, others)
    published = work(observed, draft, job, _PUBLISHED)
    if isinstance(published, Next):
        return published
    reason = reason_of(published.error)
    doubled = "" if reason is Reason.PUBLISH_FAILED else _doubled_by_a_new_start(observed, draft)
    draft.fail(_PUBLISHED, reason, f"{output.name}: {published.error}{doubled}")
    return Next(actions=(CancelJob(),), at_rest=True)


def _published_with(output: Output, observed: Observed, draft: Draft) -> bool:
    """Whether an output is published already of those that are published together with this one."""
    staged = {status.name: status for status in draft.status.outputs}
    empty, approved = is_empty(draft.status), needed_approval(output, staged[output.name])
    return any(
        staged[each.name].is_published
        and (empty or needed_approval(each, staged[each.name]) or not approved)
        for each in observed.backfill.spec.outputs
    )


def _doubled_by_a_new_start(observed: Observed, draft: Draft) -> str:
    """What a new Backfill would append a second time, where only a new Backfill helps."""
    published = {output.name for output in draft.status.outputs if output.is_published}
    appends = (
        output
        for output in observed.backfill.spec.outputs
        if output.publish.mode is PublishMode.APPEND
    )
    names = ", ".join(output.name for output in appends if output.name in published)
    return (
        f"\nalready appended; omit it from a new Backfill to avoid duplicates: {names}"
        if names
        else ""
    )


def reason_of(error: Exception | None) -> Reason:
    """Reason why a result was not published."""
    if isinstance(error, PublishConflict):
        return Reason.PUBLISH_CONFLICT
    return Reason.RESULT_LOST if isinstance(error, ResultLost) else Reason.PUBLISH_FAILED


def _record_result(observed: Observed, draft: Draft) -> None:
    state = observed.job
    if state is None or state.phase != "Done" or not isinstance(state.result, PublishResult):
        return
    result = state.result
    # the location is not taken from the process or pod of a job
    to = {output.name: output.destination for output in observed.backfill.spec.outputs}
    exported = result.exported and result.exported.model_copy(
        update={"location": to[result.output]}
    )
    published = {"snapshot_id": result.snapshot_id, "exported": exported}
    draft.set(
        outputs=tuple(
            output.model_copy(update=published) if output.name == result.output else output
            for output in draft.status.outputs
        ),
        retry=None,
    )


def _say_published(draft: Draft) -> str:
    """Says where the results are, and returns it."""
    published = [output for output in draft.status.outputs if output.is_published]
    if published:
        message = ", ".join(
            f"{count(output.rows_published, 'row')} to {output.destination}" for output in published
        )
        by = draft.status.decision
        message = f"{message}, approved by {by}" if by is not None else message
        draft.condition(_PUBLISHED, "True", Reason.PUBLISHED, message)
        return f"published {message}"
    end = _stays(draft.status.outputs)
    draft.condition(_PUBLISHED, "False", Reason.NOT_PUBLISHED, end)
    return end


def _succeed(observed: Observed, draft: Draft, end: str) -> None:
    progress = draft.status.progress
    staged = {status.name: status for status in draft.status.outputs}
    short = "; ".join(
        validated(output, staged[output.name])
        for output in observed.backfill.spec.outputs
        if output.name in staged and falls_short(output, staged[output.name])
    )
    end = f"{end}; {short}" if short else end
    handed = draft.find(ConditionType.HANDED_OVER)
    end = f"{end}; {handed.message.partition(_LINE)[0]}" if handed is not None else end
    read = (
        f"{count(progress.rows_read, 'row')} read in {count(progress.steps, 'step')},"
        f" {progress.late_in_words}"
    )
    draft.condition(ConditionType.SUCCEEDED, "True", Reason.FINISHED, f"{read}; {end}")
    draft.set(finished_at=observed.now)
