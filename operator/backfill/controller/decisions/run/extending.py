"""Extends history with newer rows of the tables, before its last step is read."""

from datetime import datetime, timedelta

from backfill.api.base import shortened
from backfill.api.conditions import ConditionType, Reason
from backfill.api.hand_off import MOST_EXTENSIONS, HandOffStatus, HistoryExtension
from backfill.api.quantities import format_duration, format_time, from_us
from backfill.controller.decisions.actions import CancelJob, Next
from backfill.controller.decisions.job_retries import work
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.run.assignment import steps_in_words
from backfill.controller.decisions.run.received_plans import mistake
from backfill.controller.decisions.status_draft import Draft
from backfill.controller.jobs.kinds.extend import ExtendJob, Extension
from backfill.planning.plan import PlanHeader
from backfill.planning.workspace import Workspace

_RUNNING = ConditionType.RUNNING
GOES_ON = "all steps but the last are committed; extending history with rows appended since then"


def held_back(observed: Observed, draft: Draft) -> bool:
    """Whether all steps are committed but the last one, which is held back until it is decided
    whether history is extended.
    """
    handed = draft.status.hand_off
    growing = handed is not None and handed.growing
    return bool(growing) and draft.status.progress.committed >= observed.plan.steps - 1


def complete(observed: Observed, draft: Draft) -> bool:
    """Whether history ends with the plan as it is. If so, this is recorded, for good: the last step
    is read from then on.
    """
    handed = draft.status.hand_off or HandOffStatus()
    why = _close_enough(observed, draft, handed)
    if why:
        _end(draft, handed, why)
    return bool(why)


def extend(observed: Observed, draft: Draft) -> Next:
    """Extends the plan while no driver runs, or records that history ends with it as it is."""
    handed = draft.status.hand_off or HandOffStatus()
    draft.condition(
        _RUNNING,
        "Unknown",
        Reason.EXTENDING,
        f"{GOES_ON}: reading the metadata of the tables",
    )
    place = Workspace.of(observed.backfill, observed.workspace)
    made = work(observed, draft, ExtendJob.of(observed.backfill, place, observed.plan), _RUNNING)
    if isinstance(made, Next):
        return made
    found = made.result if isinstance(made.result, Extension) else Extension(reason=str(made.error))
    if found.header is None:
        _end(draft, handed, found.reason)
    elif wrong := mistake(found.header, observed.backfill):
        _end(draft, handed, f"the extended plan does not belong to this Backfill: {wrong}")
    elif _extends(observed.plan, found.header):
        _record(observed, draft, handed, found.header)
    else:
        _end(draft, handed, "the extended plan does not begin with the steps of the current plan")
    return Next(actions=(CancelJob(),), requeue_seconds=0)


def _distance(observed: Observed, handed: HandOffStatus) -> timedelta:
    """How long ago history ends, in whole seconds."""
    passed = observed.now - (handed.history_end or observed.now)
    return timedelta(seconds=max(int(passed.total_seconds()), 0))


def _idle(observed: Observed, draft: Draft, since: datetime) -> timedelta:
    """How long no attempt has run since then, as while the Backfill was suspended."""
    attempts = [each for each in draft.status.attempts if each.started_at >= since]
    spans = ((each.finished_at or observed.now) - each.started_at for each in attempts)
    return max(observed.now - since - sum(spans, timedelta()), timedelta())


def _close_enough(observed: Observed, draft: Draft, handed: HandOffStatus) -> str:
    """Why history need not be extended; empty if it should be."""
    wanted, distance = observed.backfill.spec.hand_off, _distance(observed, handed)
    limit = wanted.max_distance if wanted is not None else None
    ended = f"its last step was due {format_duration(distance)} later"
    if limit is None or distance <= limit:
        return f"{ended}, which is within maxDistance"
    made = handed.extensions or ()
    if not made:
        return ""
    before = made[-1].at - made[-1].after
    read_for = distance - _idle(observed, draft, made[-1].at)
    if len(made) == MOST_EXTENSIONS or read_for > before / 2:
        seconds = timedelta(seconds=int(before.total_seconds()))
        return (
            f"{ended}, compared with {format_duration(seconds)} at the previous extension; rows"
            " arrive too fast to extend history again"
        )
    return ""


def _extends(plan: PlanHeader, header: PlanHeader) -> bool:
    """Whether the steps of a plan are the first ones of another one, which has more."""
    bounds = zip(header.step_starts_us, header.step_ends_us, strict=True)
    first = tuple(bounds)[: plan.steps]
    return (
        header.inputs.extends == plan.inputs
        and header.plan_id == plan.plan_id
        and first == tuple(zip(plan.step_starts_us, plan.step_ends_us, strict=True))
        and header.steps > plan.steps
    )


def _end(draft: Draft, handed: HandOffStatus, why: str) -> None:
    changes = {"growing": None, "complete_because": shortened(why)}
    draft.set(hand_off=handed.model_copy(update=changes))


def _record(observed: Observed, draft: Draft, handed: HandOffStatus, header: PlanHeader) -> None:
    end = from_us(header.inputs.end_us)
    extension = HistoryExtension(
        plan_id=header.inputs.own_id(),
        at=observed.now,
        after=handed.history_end or end,
        history_end=end,
    )
    status = draft.status
    planned = {each.name: each for each in header.sources}
    committed = status.progress.committed
    draft.set(
        plan_digest=header.digest,
        hand_off=handed.model_copy(
            update={"history_end": end, "extensions": (*(handed.extensions or ()), extension)}
        ),
        progress=status.progress.model_copy(
            update={
                "steps": header.steps,
                "summary": steps_in_words(committed, header.steps),
            }
        ),
        sources=tuple(
            each.model_copy(
                update={"files": planned[each.name].files, "bytes": planned[each.name].bytes}
            )
            for each in status.sources
        ),
    )
    draft.condition(
        _RUNNING,
        "Unknown",
        Reason.EXTENDING,
        f"history extended to {format_time(end)}",
    )
