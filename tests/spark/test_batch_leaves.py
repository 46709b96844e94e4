"""A run of steps as a batch DataFrame has exactly the rows that streaming reads in these steps."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from batch_runs import BatchRun, staged
from every_type import AT, SCHEMA, START, rows_of_every_type
from planned_sources import Backfill, committed, planned, wait
from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill.api.spec import BackfillSpec
from backfill.planning.plan import Split, read_splits_of_steps
from backfill.runtime.batch.batch_sources import Leaves
from backfill.runtime.batch.split_frames import arrow_frame
from backfill.runtime.catalyst import analyzed, executed, kind_of, nodes_of
from backfill.runtime.source.record_columns import OFFSET, RECORD_COLUMNS
from backfill.runtime.source.source_frame import (
    planned_tables,
    source_frame,
    source_schema,
    task_reader,
)
from backfill.runtime.source.step_tasks import StepTasks
from backfill.runtime.spark_versions import to_arrow
from plain_values import plain_rows

ZONES = ["UTC", "America/New_York", "Asia/Kolkata"]


@pytest.fixture
def lake(lake_of_workers: Catalog) -> Catalog:
    return lake_of_workers


def streamed(backfill: Backfill, steps: range, topic: str | None = None) -> Counter[str]:
    """The rows that streaming reads."""
    plan = backfill.settings.plan_workspace
    table = planned_tables(plan)["events"]
    schema = source_schema(table, with_record=topic is not None)
    read, tasks = task_reader(backfill.header, table, schema, topic), StepTasks(plan, "events")
    rows = []
    for step in steps:
        for number, task in enumerate(tasks.of(step)):
            rows += [row for batch in read(task, step, number, None) for row in plain_rows(batch)]
    return Counter(map(shown, rows))


def collected(frame: DataFrame) -> Counter[str]:
    """The rows of a batch DataFrame."""
    return Counter(
        shown(row) for batch in to_arrow(frame).to_batches() for row in plain_rows(batch)
    )


def shown(row: dict[str, Any]) -> str:
    return repr({name: value for name, value in row.items() if name != OFFSET})


@pytest.fixture
def plan(lake: Catalog, tmp_path: Path) -> Callable[..., Backfill]:
    """Plans the table ``lake.raw.events``; arguments are more fields of the source and the spec."""

    def make(
        window: tuple[datetime, datetime] = (START, START + timedelta(hours=1)),
        spec: dict[str, Any] | None = None,
        **source: Any,
    ) -> Backfill:
        described = {"name": "events", "table": "lake.raw.events", "timestampColumn": "at"}
        return planned(
            BackfillSpec.model_validate(
                {
                    "applicationRef": {"name": "app"},
                    "window": {"start": window[0], "end": window[1]},
                    "sources": [{**described, **source}],
                    **(spec or {}),
                }
            ),
            tmp_path,
        )

    return make


@pytest.fixture
def zoned(in_zone: Callable[[str], None], request: pytest.FixtureRequest) -> None:
    in_zone(request.param)


@pytest.mark.usefixtures("zoned")
@pytest.mark.parametrize("zoned", ZONES, indirect=True)
@pytest.mark.parametrize("topic", [None, "raw"])
def test_every_type_of_column_is_what_streaming_gives(
    spark: SparkSession, lake: Catalog, plan: Callable[..., Backfill], topic: str | None
) -> None:
    lake.create_table("raw.events", schema=SCHEMA).append(rows_of_every_type())
    backfill = plan()
    steps = range(backfill.header.steps)
    frame = Leaves(spark, backfill.settings).frame("events", steps, topic)
    assert frame.schema == source_frame(spark, backfill.settings, "events", topic).schema
    assert collected(frame) == streamed(backfill, steps, topic)
    moments = frame.select(F.unix_micros(F.col("at").cast("timestamp")).alias("us"), "zoned")
    if topic is None:
        assert {row.us for row in moments.collect()} == {
            int(AT.replace(tzinfo=UTC).timestamp()) * 1_000_000 + 123_456
        }


@contextmanager
def event_log(spark: SparkSession, directory: Path) -> Iterator[Callable[[], str]]:
    """What Spark tells its event log meanwhile."""
    jvm, context = spark._jvm, spark.sparkContext._jsc.sc()
    conf = context.getConf().clone().set("spark.eventLog.compress", "false")
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    listener = jvm.org.apache.spark.scheduler.EventLoggingListener(
        "app", jvm.scala.Option.apply(None), jvm.java.net.URI(f"file://{directory}"), conf, hadoop
    )
    listener.start()
    context.addSparkListener(listener)
    yield lambda: "".join(path.read_text() for path in directory.rglob("*app*") if path.is_file())
    context.listenerBus().waitUntilEmpty()
    context.removeSparkListener(listener)
    listener.stop()


def history(lake: Catalog, files: int = 3, rows: int = 400) -> None:
    """Files of an hour each that overlap by half, with row groups in no order of time, and some
    rows without a time.
    """
    schema = pa.schema(
        [("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("user", pa.string())]
    )
    table = lake.create_table(
        "raw.events", schema=schema, properties={"write.parquet.row-group-limit": "50"}
    )
    for file in range(files):
        numbers = [file * rows + number for number in range(rows)]
        moments = [
            None
            if number % 97 == 0
            else START + timedelta(seconds=1800 * file + number * 37 % 3600)
            for number in numbers
        ]
        users = [None if number % 5 == 0 else f"u{number % 7}" for number in numbers]
        table.append(pa.table([numbers, moments, users], schema=schema))


POLICIES = ["WithinLateness", "Exact", "Unordered"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_run_of_steps_has_the_rows_of_its_steps(
    spark: SparkSession, lake: Catalog, plan: Callable[..., Backfill], policy: str
) -> None:
    history(lake)
    backfill = plan(
        (START + timedelta(minutes=10), START + timedelta(minutes=90)),
        {
            "ordering": {"policy": policy, "allowedLateness": "5m"},
            "maxMisalignment": "20m",
            "planning": {"targetStepBytes": 4096},
        },
        filter="user != 'u3'",
    )
    count = backfill.header.steps
    assert count > 3
    leaves = Leaves(spark, backfill.settings)
    for steps in (range(count), range(1, count - 1), range(2, 3), range(0)):
        read = streamed(backfill, steps)
        assert collected(leaves.frame("events", steps)) == read
        assert leaves.count("events", steps) == read.total()


def test_columns_that_do_not_matter_are_null_and_rows_are_counted_without_any(
    spark: SparkSession, lake: Catalog, plan: Callable[..., Backfill]
) -> None:
    history(lake)
    backfill = plan()
    steps = range(backfill.header.steps)
    leaves = Leaves(spark, backfill.settings)
    rows = sum(streamed(backfill, steps).values())
    assert leaves.count("events", steps) == rows
    users = leaves.frame("events", steps, columns=frozenset({"user"}))
    assert users.schema == leaves.frame("events", steps).schema
    (row,) = users.agg(F.count("*"), F.count("id"), F.count("user")).collect()
    assert (row[0], row[1]) == (rows, 0)
    assert 0 < row[2] < rows
    for topic in (None, "raw"):
        assert leaves.frame("events", steps, topic, columns=frozenset()).count() == rows


def test_the_rows_that_batch_jobs_report_are_those_that_they_have_read(
    spark: SparkSession, lake: Catalog, plan: Callable[..., Backfill]
) -> None:
    """Also of files whose rows are in several steps, of which the plan only has an estimate."""
    history(lake)
    backfill = plan(
        (START + timedelta(minutes=10), START + timedelta(minutes=90)),
        {"ordering": {"policy": "Exact"}, "planning": {"targetStepBytes": 4096}},
    )
    lake.create_table("raw.copied", schema=lake.load_table("raw.events").schema())
    one = BatchRun(backfill)
    frame = source_frame(spark, backfill.settings, "events", None)
    assert one.finish(one.prepared(frame, "copied", "at")) is None
    (progress,) = one.run.tracker.queries[0].sources
    (totals,) = backfill.header.sources
    assert progress.rows == staged(lake, "copied").num_rows != sum(totals.step_rows)


def test_offsets_are_unique_in_a_run_and_the_same_each_time(
    spark: SparkSession, lake: Catalog, plan: Callable[..., Backfill]
) -> None:
    history(lake)
    backfill = plan()
    steps = range(backfill.header.steps)
    frame = Leaves(spark, backfill.settings).frame("events", steps, "raw")
    again = Leaves(spark, backfill.settings).frame(
        "events", steps, "raw", columns=frozenset({"id", *RECORD_COLUMNS})
    )
    found, other = ({row.id: row[OFFSET] for row in each.collect()} for each in (frame, again))
    assert len(set(found.values())) == frame.count()
    assert found == other


def test_plans_say_nothing_of_how_files_are_opened(
    spark: SparkSession,
    lake: Catalog,
    plan: Callable[..., Backfill],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    history(lake, files=1)
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__S3__SECRET_ACCESS_KEY", "hush-hush")
    backfill = plan()
    table = planned_tables(backfill.settings.plan_workspace)["events"]
    assert "hush-hush" in str(table.io_properties)
    frame = Leaves(spark, backfill.settings).frame("events", range(backfill.header.steps))
    stream = source_frame(spark, backfill.settings, "events")
    backfill.release(backfill.header.steps)
    logged = tmp_path / "logged"
    logged.mkdir()
    with event_log(spark, logged) as log:
        frame.collect()
        query = backfill.start(stream)
        wait(lambda: committed(query) == backfill.header.steps + 1, query)
    heard = log()
    query.explain(extended=True)
    query.stop()
    for each in (frame, stream):
        each.explain(mode="extended")
        each.explain(mode="formatted")
    plans = [each._jdf.queryExecution().logical().toJSON() for each in (frame, stream)]
    told = f"{heard}{capsys.readouterr().out}{plans}"
    assert "SparkListenerSQLExecutionStart" in heard
    assert "backfill.step.events" in heard, "what the stream's tasks were told"
    assert "hush" not in told


def test_a_task_is_sent_no_more_than_it_reads(
    spark: SparkSession, lake: Catalog, plan: Callable[..., Backfill]
) -> None:
    """What the function closes over goes to each Python process: a history of a million files would
    need hundreds of megabytes there.
    """
    history(lake, files=6)
    backfill = plan((START, START + timedelta(hours=3)))
    steps = range(backfill.header.steps)
    table = planned_tables(backfill.settings.plan_workspace)["events"]
    schema = source_schema(table, with_record=False)
    splits = read_splits_of_steps(backfill.settings.plan_workspace, steps, "events")
    assert len(splits) > 1

    def sent_to_all(tasks: list[tuple[Split, ...]]) -> int:
        frame = arrow_frame(spark, table, tasks, schema)
        assert frame.rdd.getNumPartitions() == len(tasks)
        (node,) = (each for each in nodes_of(analyzed(frame)) if kind_of(each) == "MapInArrow")
        return int(node.functionExpr().func().command().size())

    few, many = sent_to_all([tuple(splits)]), sent_to_all([(each,) for each in splits * 40])
    assert abs(many - few) < 50


def test_spark_knows_how_much_is_read(
    spark: SparkSession, lake: Catalog, plan: Callable[..., Backfill]
) -> None:
    """A join gives the rows of one side to every executor only where they are few."""
    history(lake)
    backfill = plan(
        (START, START + timedelta(hours=2)),
        {"maxMisalignment": "5m", "planning": {"targetStepBytes": 4096}},
    )
    whole, part = range(backfill.header.steps), range(1)
    leaves = Leaves(spark, backfill.settings)
    sizes = lake.load_table("raw.events").inspect.files()["file_size_in_bytes"].to_pylist()
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", sum(sizes) // 2)
    try:
        rows, fewer = leaves.frame("events", whole), leaves.frame("events", part)
        assert "BroadcastHashJoin" not in executed(rows.join(leaves.frame("events", whole), "id"))
        joined = rows.join(fewer, "id")
        assert "BroadcastHashJoin" in executed(joined)
        assert joined.count() == fewer.count() > 0
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")
