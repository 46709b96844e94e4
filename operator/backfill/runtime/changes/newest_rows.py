"""Keeps the newest row of each key in a result's branch, once all micro-batches are committed.

Batch jobs write final rows. If a query changes rows, each key must be unique among them: a table
that takes such rows by key keeps only the last one, and only a stream knows which one that is.
"""

import logging

from pyiceberg.table import Table
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from backfill.api.errors import Problem, UnsupportedProgram
from backfill.api.output import Output
from backfill.iceberg.open_tables import Catalogs
from backfill.iceberg.table_scan import scan_files
from backfill.outputs.result_names import Result
from backfill.outputs.staging import branch_head, keep_newest, lost, staged_in
from backfill.outputs.window_rows import window_rows
from backfill.planning.plan import Split
from backfill.planning.rows.pinned_table import SourceTable
from backfill.runtime.batch.own_spark_jobs import cancelled_by, own_session
from backfill.runtime.batch.span_writing import write
from backfill.runtime.batch.split_frames import arrow_frame
from backfill.runtime.batch.table_files import source_table, splits_of
from backfill.runtime.queries.run_state import Run
from backfill.runtime.settings import RuntimeSettings
from backfill.runtime.sink import SinkWriter, settings_for
from backfill.runtime.source.source_frame import source_schema
from backfill.runtime.source.task_packing import pack_by_bytes

_BATCH, _RANK, _PLACE, _ROWS = (f"backfill.{each}" for each in ("batch", "rank", "place", "rows"))
_TIES = "backfill.ties"
_BEFORE = -1
"""In place of a batch, for rows of which the newest were kept before."""
_TAG = "backfill-newest-rows"
_TASK_BYTES = 32 * 2**20

_log = logging.getLogger(__name__)


def keep_newest_rows(run: Run) -> bool:
    """Keeps the newest row of each key of every output whose branch holds changes, and checks the
    keys that batch jobs have written.

    May be repeated: a branch without changes is left alone.

    Returns False if the run was asked to stop before all were done.

    Raises:
        UnsupportedProgram: the keys do not identify the program's rows.
        ResultLost: there is no staged result any more.
        RunFailed: another driver has added to the branch.
        Exception: Spark or a catalog failed, or the run was asked to stop meanwhile. Another
            attempt starts over.
    """
    keyed = [output for output in run.settings.outputs if output.keys]
    if not keyed:
        return True
    spark = own_session(run)
    to_check = {query.output for query in run.queries if query.batch and query.changes}
    with cancelled_by(run.stopping, spark, _TAG):
        for output in keyed:
            if run.stopping.is_set():
                return False
            keep_newest_of(spark, run.settings, output, check=output.name in to_check)
    return True


def keep_newest_of(
    spark: SparkSession, settings: RuntimeSettings, output: Output, *, check: bool = False
) -> bool:
    """The same for one output. Returns whether this call has changed its branch. With ``check``,
    the keys of a result without changes are checked.
    """
    table = Catalogs().load_table(output.table, "spec.outputs")
    result = settings.result(output.name)
    head = branch_head(table.metadata, result)
    staged = staged_in(head).get(output.name) if head else None
    if head is None or staged is None:
        raise lost(output.table, result)
    if not staged.changes and not check:
        return False
    _log.info("the output %s: looking for the newest row of each key", output.name)
    spark.sparkContext.setJobDescription(f"{output.name}: newest row of each key")
    rows = window_rows(table.schema(), output, settings.window)
    found = source_table(table, output, rows, head.snapshot_id)
    splits = _splits(table, result, head.snapshot_id)
    if not staged.changes:
        _check_keys(_staged_rows(spark, found, splits, frozenset(output.keys)), settings, output)
        return False
    sink = SinkWriter(settings_for(table, settings, output, output.name))
    written, seen = write(_newest(_staged_rows(spark, found, splits), output), sink)
    if ties := seen[_TIES]["rows"]:
        what = "micro-batches have several rows with the same"
        raise _not_unique(settings, output, what, ties, seen[_TIES]["example"])
    return keep_newest(
        table,
        result,
        seen=head.snapshot_id,
        files=[file for each in written for file in each.files],
        spec_id=sink.spec_id,
        outside=sum(each.rows_outside_window for each in written),
    )


def _splits(table: Table, result: Result, snapshot_id: int) -> list[Split]:
    """The staged files, with batches for steps."""
    return [
        split
        for task in scan_files(table, snapshot_id)
        if result.data_directory_of(task.file.file_path) is not None
        for split in splits_of(
            table, result.output, task, step=_number(result.batch_of(task.file.file_path))
        )
    ]


def _number(batch: int | None) -> int:
    return _BEFORE if batch is None else batch


def _staged_rows(
    spark: SparkSession,
    table: SourceTable,
    splits: list[Split],
    columns: frozenset[str] | None = None,
) -> DataFrame:
    """All staged rows, each with the number of its batch; with None for ``columns`` all of them."""
    size = sum(split.bytes for split in splits)
    tasks = max(spark.sparkContext.defaultParallelism, size // _TASK_BYTES)
    # those of a stream, one for each core, are too few for what all its micro-batches have changed
    spark.conf.set("spark.sql.shuffle.partitions", tasks)
    schema = source_schema(table, with_record=False)
    packed = pack_by_bytes(splits, tasks)
    return arrow_frame(spark, table, packed, schema, columns=columns, step=_BATCH)


def _check_keys(rows: DataFrame, settings: RuntimeSettings, output: Output) -> None:
    keys = [_named(name) for name in output.keys]
    counted = rows.groupBy(*keys).agg(F.count("*").alias(_ROWS)).where(_named(_ROWS) > 1)
    found = counted.agg(F.sum(_named(_ROWS) - 1), F.max(F.to_json(F.struct(*keys))))
    ((ties, example),) = found.collect()
    if ties:
        what = "batch jobs have written several rows with the same"
        raise _not_unique(settings, output, what, ties, example)


def _newest(changes: DataFrame, output: Output) -> DataFrame:
    """The newest row of each key. It observes the rows that share their key and their batch with
    another one.
    """
    columns = [name for name in changes.columns if name != _BATCH]
    keys = [_named(name) for name in output.keys]
    order = Window.partitionBy(*keys).orderBy(_named(_BATCH).desc())
    ranked = changes.select(
        "*", F.rank().over(order).alias(_RANK), F.row_number().over(order).alias(_PLACE)
    ).where(_named(_RANK) == 1)
    tie = _named(_PLACE) > 1
    observed = ranked.observe(
        _TIES,
        F.count(F.when(tie, 1)).alias("rows"),
        F.max(F.when(tie, F.to_json(F.struct(*keys)))).alias("example"),
    )
    return observed.select(*map(_named, columns))


def _not_unique(
    settings: RuntimeSettings, output: Output, what: str, rows: int, example: str
) -> UnsupportedProgram:
    place = settings.outputs.index(output)
    return UnsupportedProgram(
        Problem(
            f"spec.outputs[{place}].keys",
            f"{what} {', '.join(output.keys)}, such as {example} ({rows:,} too many), so it is"
            " unknown which of them is the newest",
            "create a new Backfill in which these keys include all columns that identify a row",
        )
    )


def _named(name: str) -> Column:
    return F.col(f"`{name.replace('`', '``')}`")
