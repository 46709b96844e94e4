"""From a driver's report to its next assignment, and to the progress in the status. Pure."""

from collections.abc import Iterable
from datetime import datetime

from backfill.api.quantities import from_us, to_us
from backfill.api.status import OutputStatus, Progress
from backfill.controller.decisions.delivering import with_deliveries
from backfill.controller.decisions.handing_over import with_report
from backfill.controller.decisions.observed import Observed
from backfill.controller.decisions.run.run_cost import spent
from backfill.controller.decisions.status_draft import Draft
from backfill.controller.decisions.validated_condition import with_comparison
from backfill.coordination.eta import eta
from backfill.coordination.executor_target import ExecutorTarget, Load, executor_target
from backfill.coordination.released_steps import release, release_ahead
from backfill.coordination.work_progress import committed_steps
from backfill.protocol.split_assignment import (
    QueryProgress,
    SplitAssignmentSpec,
    SplitAssignmentStatus,
    of_output,
)


def assignment(observed: Observed, attempt: int) -> SplitAssignmentSpec:
    """How far an attempt may read now.

    A driver that was asked to stop is never asked to continue.
    """
    header, last, report = observed.plan, _last_word(observed, attempt), observed.report
    if last is not None and last.stop:
        return last
    watermark_us = observed.watermarks.global_us
    wanted = _executors(observed)
    return SplitAssignmentSpec(
        backfill=observed.backfill.metadata.name,
        plan_id=header.plan_id,
        attempt=attempt,
        steps=header.steps,
        released=min(
            release(observed.timeline, watermark_us, last.released if last else 0),
            most_read(observed),
        ),
        released_ahead=min(
            release_ahead(
                observed.timeline,
                watermark_us,
                last.released_ahead if last else 0,
                report.reads_ahead_steps if report else 0,
            ),
            most_read(observed),
        ),
        watermark=from_us(watermark_us),
        executor_target=wanted.count if wanted else None,
    )


def most_read(observed: Observed) -> int:
    """How many steps may be read at most. The flush follows the last one, which is therefore held
    back while history may still be extended.
    """
    handed = observed.backfill.status.hand_off
    growing = handed is not None and handed.growing
    return observed.plan.steps - 1 if growing else observed.plan.steps


def stop_assignment(observed: Observed, attempt: int) -> SplitAssignmentSpec:
    """The last assignment, with a request to stop."""
    last = _last_word(observed, attempt) or assignment(observed, attempt)
    return last.model_copy(update={"stop": True})


def _last_word(observed: Observed, attempt: int) -> SplitAssignmentSpec | None:
    last = observed.assignment
    return (
        last
        if last is not None and last.attempt == attempt and last.plan_id == observed.plan.plan_id
        else None
    )


def record_progress(observed: Observed, draft: Draft, ended_at: datetime | None = None) -> None:
    """Copies the report of the current attempt into the status.

    Nothing changes before its first report. ``ended_at`` is when the attempt ended, if it has: the
    time since then costs nothing.
    """
    report = observed.report
    if report is None or not report.queries or report.phase == "Starting":
        return
    marks = observed.watermarks
    rows = rows_by_source(report.queries)
    sources = tuple(
        source.model_copy(
            update={
                "rows": rows.get(source.name, 0),
                "watermark": from_us(marks.sources[source.name]),
            }
        )
        for source in draft.status.sources
    )
    before, progress = draft.status.progress, _progress(observed, report)
    if progress != before and observed.attempt is not None:
        until = observed.now if ended_at is None else ended_at
        cost = spent(draft.status.cost, observed.attempt, before.executors, until)
        read = sum(sum(each.step_bytes[: progress.committed]) for each in observed.plan.sources)
        draft.set(cost=cost.model_copy(update={"bytes_read": read}))
    draft.set(progress=progress, sources=sources, watermark=from_us(marks.global_us))
    outputs = tuple(
        _with_traits(output, of_output(report.queries, output.name))
        for output in draft.status.outputs
    )
    if outputs != draft.status.outputs:
        draft.set(outputs=outputs)
    if report.deliveries:
        draft.set(outputs=with_deliveries(draft.status.outputs, report, observed.now))
    if report.hand_off is not None:
        draft.set(hand_off=with_report(draft.status.hand_off, report.hand_off))
    if report.phase == "Finished":
        draft.set(
            outputs=tuple(
                with_comparison(_with_open_results(output, report.queries), report.comparisons)
                for output in draft.status.outputs
            )
        )


def _with_traits(output: OutputStatus, query: QueryProgress | None) -> OutputStatus:
    """An output with what was found in the logical plan of its query."""
    if query is None:
        return output
    fields = (
        "by_clock",
        "warnings",
        "execution",
        "execution_reason",
        "output_mode",
        "look_back_seconds",
        "look_ahead_seconds",
    )
    return output.model_copy(update={field: getattr(query, field) for field in fields})


def _with_open_results(output: OutputStatus, queries: tuple[QueryProgress, ...]) -> OutputStatus:
    """An output with the number of open results of its queries.

    Without a report of one the number is unknown, unless no query at all left results open.
    """
    unknown = QueryProgress(name=output.name, open_unknown="no query has reported it")
    nothing = QueryProgress(name=output.name, open_at_end=0, needed_drain_seconds=0.0)
    otherwise = nothing if all(query.open_at_end == 0 for query in queries) else unknown
    found = of_output(queries, output.name) or otherwise
    fields = ("open_at_end", "open_from", "needed_drain_seconds", "open_unknown")
    return output.model_copy(update={field: getattr(found, field) for field in fields})


def rows_by_source(queries: Iterable[QueryProgress]) -> dict[str, int]:
    """Rows read of each source, counted once even if several queries read them."""
    rows: dict[str, int] = {}
    for query in queries:
        for source in query.sources:
            rows[source.name] = max(source.rows, rows.get(source.name, 0))
    return rows


def _progress(observed: Observed, report: SplitAssignmentStatus) -> Progress:
    """The new progress, or the recorded one if the difference is not worth a write.

    A change only of figures that depend on the clock is not.
    """
    old = observed.backfill.status.progress
    new = _progress_now(observed, report)
    return old if _facts(old) == _facts(new) else new


def _progress_now(observed: Observed, report: SplitAssignmentStatus) -> Progress:
    old, timeline = observed.backfill.status.progress, observed.timeline
    left = observed.work.rows_left
    done_at_us = eta(to_us(observed.now), left, observed.rate) if left else None
    misalignments = (
        old.max_observed_misalignment_seconds,
        report.max_observed_misalignment_seconds,
    )
    open_results = [query.open_at_end for query in report.each_query]
    known = [number for number in open_results if number is not None]
    all_known = report.phase == "Finished" and len(known) == len(open_results)
    committed = min(timeline.steps, *committed_steps(timeline, report).values())
    wanted = _executors(observed)
    same_target = wanted is not None and wanted.count == old.executor_target
    return Progress(
        steps=timeline.steps,
        committed=committed,
        summary=steps_in_words(committed, timeline.steps),
        rows_read=sum(rows_by_source(report.queries).values()),
        rows_dropped_late=sum(query.late_rows for query in report.queries),
        rows_arrived_late=sum(query.arrived_late for query in report.queries),
        open_at_end=sum(known) if all_known else None,
        batch_steps=report.reads_ahead_steps if report.phase == "Running" else 0,
        batch_tasks_percent=report.tasks_percent if report.phase == "Running" else None,
        rows_per_second=observed.rate.per_second,
        rate=_rate_in_words(observed.rate.per_second),
        eta=None if done_at_us is None else from_us(done_at_us),
        executors=report.executors,
        executor_target=wanted.count if wanted else None,
        executor_reason=wanted.reason if wanted else "",
        executor_target_since=(
            old.executor_target_since if same_target else observed.now if wanted else None
        ),
        max_observed_misalignment_seconds=max(
            (value for value in misalignments if value is not None), default=None
        ),
    )


def _facts(progress: Progress) -> Progress:
    """Progress without the fields that are derived from others or from the time of day."""
    derived = {
        "rows_per_second": None,
        "rate": "",
        "eta": None,
        "executor_reason": "",
        "executor_target_since": None,
    }
    return progress.model_copy(update=derived)


def _executors(observed: Observed) -> ExecutorTarget | None:
    """The desired number of executors; None if the run has only one process."""
    if observed.policy.one_process:
        return None
    scaling, status = observed.backfill.spec.scaling, observed.backfill.status
    old, left, report = status.progress, observed.work, observed.report
    rate = observed.executor_rate.per_second
    began = status.started_at or observed.now
    load = Load(
        rows_left=left.rows_left,
        steps_left=left.steps_left,
        rows_per_executor_second=rate,
        elapsed_seconds=(observed.now - began).total_seconds(),
        seconds_since_change=(observed.now - (old.executor_target_since or began)).total_seconds(),
        rows_per_second_limit=_rows_per_second_limit(observed),
        first_spans=report is not None and report.has_spans and left.rows_done == 0,
    )
    wanted, current = executor_target(scaling, load, old.executor_target), old.executor_target
    if rate is None and current is not None and wanted.count < current <= scaling.max_executors:
        return ExecutorTarget(
            current, f"stays at {current} until the rate per executor is measured again"
        )
    return wanted


def _rows_per_second_limit(observed: Observed) -> float | None:
    """Most rows that all queries together may read; each of them has the limit of the spec."""
    limit, report = observed.backfill.spec.max_rows_per_second, observed.report
    return limit * len(report.each_query) if limit is not None and report is not None else None


def steps_in_words(committed: int, steps: int) -> str:
    """Committed steps out of total, as ``12/48 (25%)``."""
    return f"{committed}/{steps} ({100 * committed // steps}%)" if steps else f"{committed}/{steps}"


def _rate_in_words(per_second: float | None) -> str:
    """Rows per second with three digits, as ``12.5k/s``."""
    if per_second is None:
        return ""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if per_second >= 0.9995 * size:
            return f"{per_second / size:.3g}{unit}/s"
    return f"{per_second:.3g}/s"
