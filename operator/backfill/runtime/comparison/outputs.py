"""Compares the outputs of a run with production, once all steps are committed."""

import logging
from datetime import UTC, datetime

from pyiceberg.table import Table
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill.api.conditions import Reason
from backfill.api.errors import BadInput
from backfill.api.output import Output, Validate
from backfill.api.quantities import to_us
from backfill.api.spec import Window
from backfill.api.validation import settings_digest
from backfill.iceberg.tables import Catalogs
from backfill.outputs.comparable import check_comparison
from backfill.outputs.result import Result
from backfill.outputs.staging import branch_head, lost
from backfill.outputs.window import WindowRows, window_rows
from backfill.protocol.split_assignment import OutputComparison
from backfill.runtime.batch.own_jobs import cancelled_by, own_session
from backfill.runtime.comparison.compare import Wish, compare
from backfill.runtime.comparison.report import Clues, Report
from backfill.runtime.comparison.sides import Side, rows_of, side_of, time_of
from backfill.runtime.queries.causes import cause_of, lasting_cause
from backfill.runtime.queries.run import Run
from backfill.runtime.settings import RuntimeSettings
from backfill.runtime.source.data_source import source_schema

_HOUR_US = 3_600_000_000
_MOST_STRETCHES = 240
"""Stretches of time that figures are given for: ten days by the hour, longer windows more coarsely.
"""
_TAG = "backfill-comparison"

_log = logging.getLogger(__name__)


def compare_outputs(run: Run) -> bool:
    """Compares each output that asks for it, and records the result in the run.

    Returns False if the run was asked to stop before all were compared.

    Raises:
        ResultLost: there is no staged result any more.
        Exception: Spark or a catalog failed, or the run was asked to stop meanwhile. Another
            attempt compares anew.
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
            run.compared(_compare(spark, run.settings, output, _clues(run, output)))
    return True


def _clues(run: Run, output: Output) -> Clues:
    sources, queries = run.tracker.header.sources, run.tracker.queries
    writing = {each.name for each in queries if each.output == output.name}
    return Clues(
        tuple(f"{each.name}: {words}" for each in sources for words in each.input.missing),
        tuple(f"{each.name}: {words}" for each in sources for words in each.input.notes),
        sum(each.arrived_late for each in queries if each.name in writing),
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
    return OutputComparison(output=output.name, settings=settings_digest(output), problem=problem)


def compare_output(
    spark: SparkSession, settings: RuntimeSettings, output: Output, clues: Clues
) -> OutputComparison:
    """Compares the staged result of an output with the present rows of its table, and writes the
    report.

    Raises:
        BadInput: the rows cannot be compared as the Backfill asks.
        ResultLost: there is no staged result any more.
    """
    table = Catalogs().load_table(output.table, "spec.outputs")
    rows = _checked(table, output, settings)
    result = Result(
        settings.namespace, settings.backfill, settings.uid, settings.plan_id, output.name
    )
    head = branch_head(table.metadata, result)
    if head is None:
        raise lost(output.table, result)
    current = table.metadata.current_snapshot_id
    sides = (
        side_of(table, output, rows, head.snapshot_id),
        side_of(table, output, rows, current),
    )
    wish = wish_of(sides[0], output)
    width_us = stretch_us(settings.window)
    start_us, tasks = to_us(settings.window.start), spark.sparkContext.defaultParallelism
    frames = [rows_of(spark, side, rows, tasks) for side in sides]
    staged, production = ((frame, _stretch(frame, output, start_us, width_us)) for frame in frames)
    found = compare(spark, staged, production, wish, rows=sum(side.rows for side in sides))
    now = datetime.now(UTC)
    report = Report(settings, output, found, width_us, head.snapshot_id, current, now, clues)
    counts = found.counts
    return OutputComparison(
        output=output.name,
        settings=settings_digest(output),
        matching=counts.matching,
        different=counts.different,
        missing=counts.missing,
        extra=counts.extra,
        duplicate_keys=found.duplicate_keys_in_production if wish.keys else 0,
        snapshot_id=current,
        report=report.write(settings.plan_workspace),
    )


def wish_of(side: Side, output: Output) -> Wish:
    """What is compared of an output."""
    wanted, schema = output.validate_ or Validate(), source_schema(side.table, with_record=False)
    keys = output.compared_keys
    apart = {*keys, *wanted.ignore}
    compared = tuple(name for name in schema.names if name not in apart)
    return Wish(schema, keys, compared, wanted.tolerance)


def stretch_us(window: Window) -> int:
    """Length of the stretches of time that figures are given for: whole hours."""
    hours = -(-(to_us(window.end) - to_us(window.start)) // _HOUR_US)
    return _HOUR_US * -(-hours // _MOST_STRETCHES)


def _stretch(frame: DataFrame, output: Output, start_us: int, width_us: int) -> Column:
    since = time_of(frame, output) - start_us
    return F.floor(since.cast("decimal(20, 0)") / width_us).cast("int")


def _checked(table: Table, output: Output, settings: RuntimeSettings) -> WindowRows:
    """The window's rows of an output that can be compared."""
    field = f"spec.outputs[{settings.outputs.index(output)}]"
    problems = list(check_comparison(table.schema(), output, field))
    rows = window_rows(table.schema(), output, settings.window, field)
    if rows is None:
        raise AssertionError("validate needs timestampColumn")
    if problems:
        raise BadInput(problems)
    return rows
