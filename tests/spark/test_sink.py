"""Streaming queries write into the branch exactly once, through failing tasks, failing batches and
lost commits.
"""

import os
from collections.abc import Callable
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import HourTransform
from pyiceberg.types import NestedField, StringType
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQueryException

from backfill.api.errors import UnsupportedProgram
from backfill.api.output import Output
from backfill.outputs.cleanup import remove_orphans
from backfill.outputs.result_names import Result
from backfill.outputs.staging import Part, Staged, StagedBatch, read_staged, staged_files
from backfill.outputs.window_rows import Stretch
from backfill.runtime import sink
from backfill.runtime.changes.micro_batches import redirect
from backfill.runtime.settings import RuntimeSettings
from backfill.runtime.sink import SinkWriter, settings_for, sink_settings
from backfill.runtime.switching.kafka_records import record_rows
from cases import cases

ROWS, BATCHES = 40, 4
"""Rows of a batch, a minute apart; batch k begins k hours after the start."""
START_US = 1_625_961_600_000_000
COLUMNS = pa.schema(
    [("id", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), ("who", pa.string())]
)
_tables = count()
"""Numbers in the names of tables: Spark's Python workers keep those that they have opened."""
RESULT = Result("streaming", "rmi", "first", "0123456789abcdef", "copies")


class Stream:
    """A directory of files, read one file a batch, and written by the query ``copy`` into an
    output's branch.
    """

    def __init__(self, spark: SparkSession, table: Table, directory: Path):
        self.spark = spark
        self.table = table
        self.output = Output(
            name="copies", table=f"lake.{'.'.join(table.name())}", timestamp_column="at"
        )
        self.checkpoint = directory / "checkpoint"
        self._input = directory / "input"
        self._input.mkdir()
        for batch in range(BATCHES):
            self.add(batch)

    def add(self, batch: int) -> None:
        """The rows of one more batch."""
        offsets = [60_000_000 * (60 * batch + row) for row in range(ROWS)]
        at = pa.array([START_US + offset for offset in offsets]).cast(pa.timestamp("us", tz="UTC"))
        path = self._input / f"{batch}.parquet"
        pq.write_table(
            pa.table(
                {"id": pa.array(range(ROWS * batch, ROWS * (batch + 1)), pa.int32()), "at": at}
            ),
            path,
        )
        os.utime(path, (batch, batch))

    def read(self) -> DataFrame:
        """The rows, with columns in another order and case than the table's."""
        options = {"maxFilesPerTrigger": "1", "path": str(self._input)}
        frame = (
            self.spark.readStream.schema("id int, at timestamp")
            .format("parquet")
            .options(**options)
            .load()
        )
        return frame.select(F.lit("me").alias("WHO"), "at", "id")

    def run(self, change: Callable[[DataFrame], DataFrame] = lambda frame: frame) -> None:
        """Runs the query until it has read all files."""
        writer = change(self.read()).writeStream.option("checkpointLocation", str(self.checkpoint))
        given = sink_settings(writer._df, _settings(self.output), self.output, "copy")
        fake_gate: Any = SimpleNamespace(open=lambda _spark, _batch: nullcontext())
        redirect(writer, given, fake_gate).trigger(availableNow=True).start().awaitTermination()

    def written(self) -> list[int]:
        """The ids in the branch, sorted."""
        self.table.refresh()
        head = self.table.metadata.refs[RESULT.branch].snapshot_id
        return sorted(self.table.scan(snapshot_id=head).to_arrow()["id"].to_pylist())


@pytest.fixture
def lake(lake_of_workers: Catalog) -> Catalog:
    return lake_of_workers


@pytest.fixture
def stream(spark: SparkSession, lake: Catalog, tmp_path: Path) -> Stream:
    table = lake.create_table(f"raw.copies_{next(_tables)}", schema=COLUMNS)
    with table.update_spec() as update:
        update.add_field("at", HourTransform(), "hour")
    return Stream(spark, table, tmp_path)


def _settings(output: Output) -> RuntimeSettings:
    return RuntimeSettings.model_validate(
        {
            "backfill": RESULT.backfill,
            "namespace": RESULT.namespace,
            "attempt": 1,
            "uid": RESULT.uid,
            "planId": RESULT.plan_id,
            "plan": "unused",
            "checkpoints": "unused",
            "channel": "unused",
            "window": {
                "start": "2021-07-11T01:00:00Z",
                "end": "2021-07-11T03:00:00Z",
                "warmUp": "1h",
            },
            "sources": [],
            "outputs": [output.to_manifest()],
            "mainFile": "unused",
        }
    )


def test_a_column_that_a_query_sets_to_null_itself_does_not_end_the_run(
    stream: Stream, tmp_path: Path
) -> None:
    at = pa.array([START_US + 3_600_000_000 + row * 60_000_000 for row in range(60)])
    of_others = {"id": range(60), "at": at.cast(COLUMNS.field("at").type), "who": ["you"] * 60}
    stream.table.append(pa.table(of_others, schema=COLUMNS))
    with pytest.raises(StreamingQueryException, match="is null in all"):
        stream.run(lambda frame: frame.withColumn("WHO", F.expr("nullif(WHO, 'me')")))
    stream.checkpoint = tmp_path / "another"
    none = F.lit(None).cast("string").alias("who")
    stream.run(lambda frame: frame.select("id", "at", none).where("id >= 0"))
    assert stream.written() == list(range(ROWS, 3 * ROWS))


def test_the_window_s_rows_of_every_batch_are_in_the_branch_and_main_is_untouched(
    stream: Stream,
) -> None:
    stream.run()
    assert stream.written() == list(range(ROWS, 3 * ROWS))
    assert read_staged(stream.table.metadata, RESULT) == Staged(
        2 * ROWS, 2 * ROWS, files=2, parts={"copy": Part(BATCHES - 1)}
    )
    assert stream.table.current_snapshot() is None
    assert {len(file.partition) for file in staged_files(stream.table, RESULT)} == {1}
    assert len(staged_files(stream.table, RESULT)) == 2, "one file for each hour"


def test_times_are_the_same_moments_in_whatever_zone_the_session_is(
    stream: Stream, in_zone: Callable[[str], None]
) -> None:
    in_zone("Asia/Kolkata")
    stream.run()
    assert stream.written() == list(range(ROWS, 3 * ROWS))


def test_tasks_that_fail_are_tried_again_without_doubling(stream: Stream) -> None:
    stream.run(lambda frame: frame.repartition(2).withColumn("id", _failing_at_first("id")))
    assert stream.written() == list(range(ROWS, 3 * ROWS))
    remove_orphans(stream.output, RESULT, None)
    assert stream.written() == list(range(ROWS, 3 * ROWS))


def test_a_batch_that_failed_leaves_nothing_and_is_run_again(stream: Stream) -> None:
    with pytest.raises(StreamingQueryException, match="this row cannot be"):
        stream.run(lambda frame: frame.withColumn("id", _failing_for("id", 2 * ROWS)))
    assert stream.written() == list(range(ROWS, 2 * ROWS))
    stream.run()
    assert stream.written() == list(range(ROWS, 3 * ROWS))
    remove_orphans(stream.output, RESULT, None)
    on_disk = {path.name for path in Path(stream.table.location()).rglob("*.parquet")}
    assert on_disk == {Path(file.file_path).name for file in staged_files(stream.table, RESULT)}


def test_a_batch_committed_to_the_branch_but_not_by_spark_is_not_doubled(stream: Stream) -> None:
    stream.run()
    before = read_staged(stream.table.refresh().metadata, RESULT)
    for name in (f"{BATCHES - 1}", f".{BATCHES - 1}.crc"):
        (stream.checkpoint / "commits" / name).unlink()
    stream.add(BATCHES)
    stream.run()
    assert stream.written() == list(range(ROWS, 3 * ROWS))
    after = read_staged(stream.table.metadata, RESULT)
    assert before and after
    assert (after.parts["copy"].batch_id, after.rows, after.rows_outside_window) == (
        BATCHES,
        before.rows,
        before.rows_outside_window + ROWS,
    )


def test_a_column_added_to_the_table_between_attempts_is_null(stream: Stream) -> None:
    stream.run()
    with stream.table.refresh().update_schema() as update:
        update.add_column("more", StringType())
    stream.add(BATCHES)
    stream.run()
    assert stream.written() == list(range(ROWS, 3 * ROWS))


def test_rows_that_do_not_fit_are_refused_before_the_query_starts(stream: Stream) -> None:
    with pytest.raises(UnsupportedProgram) as refusal:
        stream.run(
            lambda frame: frame.withColumn("id", F.col("id").cast("string")).withColumn(
                "extra", F.lit(1)
            )
        )
    assert [problem.message for problem in refusal.value.problems] == [
        f"the rows have a column extra that table {stream.output.table} does not have",
        f"column id of {stream.output.table} is a int64, but the rows have a string",
    ]
    assert not stream.checkpoint.exists()


def test_a_thread_that_read_the_table_earlier_does_not_make_another_ones_result_seem_lost(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queries of one output stage their batches at the same time."""
    writer = SinkWriter(settings_for(stream.table, _settings(stream.output), stream.output, "a"))

    def stage(batch: int) -> bool:
        return writer.stage(StagedBatch("a", batch, (), writer.spec_id, 0))

    assert stage(0)
    before = stream.table.metadata
    answered = sink.answered

    def slower_than_another(request: Callable[[], Any], seconds: float) -> Any:
        table = answered(request, seconds)
        sink._open(stream.output.table).metadata = before
        return table

    monkeypatch.setattr(sink, "answered", slower_than_another)
    assert stage(1)


def test_rows_that_are_left_out_need_not_fit(stream: Stream, lake: Catalog) -> None:
    """A result of which a span has not read all rows may lack a value that the table requires."""
    required = pa.schema([COLUMNS.field("id"), COLUMNS.field("at").with_nullable(False)])
    table = lake.create_table(f"raw.copies_{next(_tables)}", schema=required)
    output = stream.output.model_copy(update={"table": f"lake.{'.'.join(table.name())}"})
    hours = [None, 0, 1, 2, 3]
    at = [None if hour is None else START_US + 3_600_000_000 * hour for hour in hours]
    rows = pa.record_batch(
        {"AT": pa.array(at, pa.timestamp("us", "UTC")), "id": pa.array(hours, pa.int32())}
    )
    settings = settings_for(table, _settings(output), output, "copy")
    hour_1, hour_2, hour_3 = at[2:]
    assert hour_1 and hour_2 and hour_3
    written = SinkWriter(settings, Stretch(hour_1, hour_2, hour_3)).write(iter([rows]))
    assert [file.record_count for file in written.files] == [1]
    assert (written.rows_outside_window, written.rows_open) == (0, 1)
    assert SinkWriter(settings).write(iter([rows])).rows_outside_window == 3


def _counts(frame: DataFrame) -> DataFrame:
    """Records of an aggregation, with columns that Kafka ignores: two of them have one name."""
    late = frame.withWatermark("at", "1 minute")
    hours = late.groupBy(F.window("at", "1 hour"), F.col("WHO").alias("topic")).agg(
        F.min("id").alias("first"), F.count("*").alias("n"), F.max("id").alias("last")
    )
    value = F.to_json(F.struct("n")).alias("value")
    return hours.select("first", F.col("window.start").alias("at"), value, "topic", "last", "last")


def _pairs(frame: DataFrame) -> DataFrame:
    """Records of a join, with a column that Kafka ignores."""
    late = frame.withWatermark("at", "1 minute")
    other = late.select(
        F.col("id").alias("pair"), F.col("at").alias("then"), F.upper("who").alias("n")
    )
    near = F.expr("id = pair and then between at and at + interval 1 minute")
    return late.join(other, near).select("at", F.to_json(F.struct("id")).alias("value"), "n")


@cases(
    ("program", "value", "rows"),
    {"an aggregation": (_counts, '{"n":40}', 1), "a join": (_pairs, '{"id":40}', 2 * ROWS)},
)
def test_columns_that_kafka_ignores_stay_in_a_state_that_is_handed_over(
    spark: SparkSession,
    lake: Catalog,
    tmp_path: Path,
    program: Callable[[DataFrame], DataFrame],
    value: str,
    rows: int,
) -> None:
    columns = pa.schema([COLUMNS.field("at"), ("value", pa.string())])
    table = lake.create_table(f"raw.copies_{next(_tables)}", schema=columns)
    stream, schema = Stream(spark, table, tmp_path), table.schema()
    stream.run(
        lambda frame: record_rows(
            program(frame), "alerts", stream.output, schema, "a query", whole=True
        )
    )
    head = table.refresh().metadata.refs[RESULT.branch].snapshot_id
    written = table.scan(snapshot_id=head).to_arrow()["value"].to_pylist()
    assert (value in written, len(written)) == (True, rows)
    stream.add(BATCHES)
    live = program(stream.read()).writeStream.option("checkpointLocation", str(stream.checkpoint))
    live.format("noop").trigger(availableNow=True).start().awaitTermination()


RECORDS = Schema(
    NestedField(1, "key", StringType()),
    NestedField(2, "value", StringType()),
    NestedField(3, "topic", StringType()),
    NestedField(4, "at", StringType()),
)


def test_a_record_has_what_kafka_would_get(spark: SparkSession) -> None:
    """Spark takes the columns of a record by their exact names, and the first of several."""
    output = Output(name="alerts", table="lake.raw.alerts")

    def sent(*names: str, whole: bool = False) -> dict[str, str]:
        frame = spark.createDataFrame([tuple(map(str, range(len(names))))]).toDF(*names)
        rows = record_rows(frame, "alerts", output, RECORDS, "a query", whole=whole)
        return {name: value for name, value in rows.first().asDict().items() if name[0] != "_"}

    for names, record in {
        ("Key", "value", "AT"): {"value": "1", "AT": "2"},
        ("Value", "at", "value", "more", "More"): {"at": "1", "value": "2"},
        ("value", "value", "Topic"): {"value": "0"},
        ("key", "value", "topic", "n", "n"): {"key": "0", "value": "1"},
    }.items():
        assert sent(*names) == sent(*names, whole=True) == {**record, "topic": "alerts"}
    with pytest.raises(UnsupportedProgram, match="several columns at, but the table lake"):
        sent("value", "at", "AT")


def _failing_at_first(column: str) -> Column:
    """The column; but the first try of a task fails at the last row of a batch."""

    @F.udf(returnType="int")
    def fail(value: int) -> int:
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0 and value % ROWS == ROWS - 1:
            raise RuntimeError("the machine is gone")
        return value

    return fail(column)


def _failing_for(column: str, bad: int) -> Column:
    @F.udf(returnType="int")
    def fail(value: int) -> int:
        if value == bad:
            raise RuntimeError("this row cannot be")
        return value

    return fail(column)
