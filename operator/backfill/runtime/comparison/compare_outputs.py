"""Compares the outputs of a run with production or with their references, once all steps are
committed.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

from pyiceberg.schema import Schema
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from backfill.api.base import printable
from backfill.api.conditions import Reason
from backfill.api.errors import BackfillError, BadInput, Problem
from backfill.api.output import Output, PublishMode, Validate
from backfill.api.quantities import to_us
from backfill.api.spec import Window
from backfill.api.status import MOST_CAUSES, MOST_WARNING_CHARACTERS
from backfill.api.validation import settings_digest
from backfill.iceberg.library_errors import is_refusal
from backfill.iceberg.open_tables import Catalogs
from backfill.outputs.comparable_outputs import check_comparison, compared_schema
from backfill.outputs.compared_tables import ComparedTable, other_table, own_table
from backfill.outputs.lost_rows import count_losses
from backfill.outputs.staging import branch_head, lost
from backfill.protocol.split_assignment import OutputComparison, of_output
from backfill.runtime.batch.own_spark_jobs import cancelled_by, own_session
from backfill.runtime.comparison.compared_sides import (
    ComparedSide,
    in_window,
    rows_of,
    side_of,
    time_of,
)
from backfill.runtime.comparison.count_matches import Rows, Wish, compare
from backfill.runtime.comparison.report import Clues, Report
from backfill.runtime.queries.failure_causes import cause_of, lasting_cause
from backfill.runtime.queries.run_state import Run
from backfill.runtime.queries.tracker import Tracker
from backfill.runtime.settings import RuntimeSettings
from backfill.runtime.source.schemas import spark_schema, with_moments

_HOUR_US = 3_600_000_000
_PARTS_OF_AN_HOUR_US = (900_000_000, 300_000_000, 60_000_000)
_FEWEST_STRETCHES = 12
_MOST_STRETCHES = 240
"""Stretches of time that figures are given for: ten days by the hour, longer windows more coarsely.
"""
_TAG = "backfill-comparison"
_RAISED = f"{BackfillError.__module__}.{BackfillError.__name__}: "

_log = logging.getLogger(__name__)


def compare_outputs(run: Run) -> bool:
    """Compares each output that asks for it, and records the result in the run.

    Returns False if the run was asked to stop before all were compared.

    Raises:
        ResultLost: there is no staged result any more.
        Exception: Spark or a catalog failed, or the run was asked to stop meanwhile. Another
            attempt compares again.
    """
    wanted = [output for output in run.settings.outputs if output.validate_ is not None]
    if not wanted:
        return True
    spark = own_session(run)
    with cancelled_by(run.stopping, spark, _TAG):
        for output in wanted:
            if run.stopping.is_set():
                return False
            run.compares(output.name)
            run.compared(_compare(spark, run.settings, output, clues_of(run.tracker, output)))
    return True


def clues_of(tracker: Tracker, output: Output) -> Clues:
    """What a run knows of its input, and of the query that writes an output."""
    sources, queries = tracker.header.sources, tracker.queries
    found = of_output(queries, output.name)
    # of a query that writes several outputs, one has its late rows
    names = {each.name for each in queries if each.output == output.name}
    of_query = [each for each in queries if each.name in names]
    clues = Clues(
        tuple(f"{each.name}: {words}" for each in sources for words in each.input.missing),
        tuple(f"{each.name}: {words}" for each in sources for words in each.input.notes),
        dropped_late=sum(each.late_rows for each in of_query),
        arrived_late=sum(each.arrived_late for each in of_query),
    )
    if found is None:
        return clues
    return replace(
        clues,
        by_clock=found.by_clock,
        open_at_end=found.open_at_end or 0,
        open_from=found.open_from,
        needed_drain_seconds=found.needed_drain_seconds,
        not_final=found.output_mode is not None,
    )


def _compare(
    spark: SparkSession, settings: RuntimeSettings, output: Output, clues: Clues
) -> OutputComparison:
    try:
        return compare_output(spark, settings, output, clues)
    except BadInput as error:
        if error.may_pass:
            raise
        problem = str(error)
    except Exception as error:
        lasting = lasting_cause(cause_of(error))
        if lasting is None or lasting[0] is not Reason.INVALID_INPUT:
            raise
        problem = lasting[1].removeprefix("spec.sources: ")  # what tasks read is a source for them
    _log.error("the output %s cannot be compared: %s", output.name, problem)
    return OutputComparison(
        output=output.name,
        settings=settings_digest(output),
        reference=output.reference_table,
        problem=problem,
    )


def compare_output(
    spark: SparkSession, settings: RuntimeSettings, output: Output, clues: Clues
) -> OutputComparison:
    """Compares the staged result of an output with the present rows of its table, or of its
    reference, and writes the report.

    Raises:
        BadInput: the rows cannot be compared as the Backfill asks.
        ResultLost: there is no staged result any more.
    """
    field = f"spec.outputs[{settings.outputs.index(output)}]"
    catalogs = Catalogs()
    table = catalogs.load_table(output.table, "spec.outputs")
    if problems := list(check_comparison(table.schema(), output, field)):
        raise BadInput(problems)
    ours = own_table(table, output, settings.window, field)
    reference, where = output.reference_table, f"{field}.validate.reference.table"
    with lasting_refusals(reference, where):
        theirs = other_table(catalogs, table, output, settings.window, field)
    result = settings.result(output.name)
    head = branch_head(table.metadata, result)
    if head is None:
        raise lost(output.table, result)
    current = theirs.table.metadata.current_snapshot_id
    common = compared_schema(table.schema(), theirs.table.schema())
    names = {each.name for each in common.fields}
    staged_files = side_of(ours.table, ours.output, ours.rows, head.snapshot_id, names)
    with lasting_refusals(reference, where):
        other_files = side_of(theirs.table, theirs.output, theirs.rows, current, names)
    sides = ((ours, staged_files), (theirs, other_files))
    width_us = stretch_us(settings.window)
    start_us = to_us(settings.window.start)
    staged, other = (_rows(spark, side, of, start_us, width_us) for of, side in sides)
    wish, most = wish_of(common, output), sum(side.rows for _, side in sides)
    with lasting_refusals(reference, where, in_tasks=True):
        found = compare(spark, staged, other, wish, rows=most)
    report = Report(
        settings,
        output,
        found,
        width_us,
        head.snapshot_id,
        current,
        datetime.now(UTC),
        clues,
        _only_in(theirs.table.schema(), table.schema()),
        count_losses(output, result, settings.window)
        if output.publish.mode is PublishMode.REPLACE
        else None,
    )
    counts, causes = found.counts, report.document()["causes"][:MOST_CAUSES]
    return OutputComparison(
        output=output.name,
        settings=settings_digest(output),
        matching=counts.matching,
        different=counts.different,
        missing=counts.missing,
        extra=counts.extra,
        duplicate_keys=found.duplicate_keys_in_other if wish.keys else 0,
        reference=reference,
        snapshot_id=current,
        report=report.write(settings.plan_workspace),
        causes=tuple(printable(each)[:MOST_WARNING_CHARACTERS] for each in causes),
    )


@contextmanager
def lasting_refusals(
    reference: str | None, field: str, *, in_tasks: bool = False
) -> Iterator[None]:
    """Raises a refusal of access to the reference as an error that no other attempt would fix. Only
    the comparison needs this permission, so nobody notices earlier that it is missing.

    Args:
        reference: the name of the table; without one nothing is changed.
        field: its path in the spec.
        in_tasks: whether Spark reads, also other tables: only errors that name the table count.

    Raises:
        BadInput: access was refused.
    """
    try:
        yield
    except Exception as error:
        if reference is None or not is_refusal(error):
            raise
        if isinstance(error, BadInput):
            lasting = [replace(problem, may_pass=False) for problem in error.problems]
            raise BadInput(lasting) from error
        cause = cause_of(error).partition("\n")[0].removeprefix(_RAISED)
        if in_tasks and f" of {reference} cannot be read: " not in cause:
            raise
        message = cause if in_tasks else f"{reference} cannot be read: {cause}"
        fix = "grant the application's identity read access to it, then retry"
        raise BadInput(Problem(field, message, fix)) from error


def _only_in(one: Schema, other: Schema) -> tuple[str, ...]:
    known = {each.name for each in other.fields}
    return tuple(each.name for each in one.fields if each.name not in known)


def wish_of(schema: Schema, output: Output) -> Wish:
    """What is compared of an output, of these columns that both sides have."""
    wanted, keys = output.validate_ or Validate(), output.compared_keys
    both = with_moments(spark_schema(schema, output.table))
    apart = {*keys, *wanted.ignore}
    compared = tuple(name for name in both.names if name not in apart)
    return Wish(both, keys, compared, wanted.tolerance)


def stretch_us(window: Window) -> int:
    """Length of the stretches of time that figures are given for: whole hours, or for a window of
    less than half a day, a part of an hour.
    """
    length_us = to_us(window.end) - to_us(window.start)
    if length_us < _FEWEST_STRETCHES * _HOUR_US:
        fitting = (us for us in _PARTS_OF_AN_HOUR_US if us * _FEWEST_STRETCHES <= length_us)
        return next(fitting, _PARTS_OF_AN_HOUR_US[-1])
    return _HOUR_US * -(-length_us // (_HOUR_US * _MOST_STRETCHES))


def _rows(
    spark: SparkSession, side: ComparedSide, of: ComparedTable, start_us: int, width_us: int
) -> Rows:
    rows = rows_of(spark, side, spark.sparkContext.defaultParallelism)
    frame = in_window(rows.all(), side, of.rows)
    since = time_of(frame, of.output) - start_us
    whole = since - F.pmod(since, F.lit(width_us))  # also before the start: a day may begin there
    stretch = F.call_function("div", whole, F.lit(width_us)).cast("int")
    return Rows(frame, stretch, rows.chosen)
