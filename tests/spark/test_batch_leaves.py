"""A run of steps as a batch DataFrame has exactly the rows that streaming reads in these steps."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from every_type import SCHEMA, START, rows_of_every_type
from planned_sources import Backfill, planned
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate
from pyiceberg.types import (
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from backfill.api.errors import InvalidPlanInput
from backfill.api.spec import BackfillSpec
from backfill.planning.plan import read_splits
from backfill.runtime.agent.causes import cause_of, lasting_cause
from backfill.runtime.batch.leaves import Leaves
from backfill.runtime.source.data_source import (
    StepPartition,
    StepReader,
    planned_tables,
    source_frame,
    source_schema,
)
from backfill.runtime.source.record_columns import (
    KEY,
    OFFSET,
    PARTITION,
    RECORD_COLUMNS,
    TOPIC,
)
from iceberg_tables import commit_files, data_file
from plain_values import plain_rows
from random_filters import random_filter
from random_tables import START_S, make_table

ZONES = ["UTC", "America/New_York", "Asia/Kolkata"]


def streamed(
    backfill: Backfill,
    steps: range,
    topic: str | None = None,
    columns: frozenset[str] | None = None,
) -> Counter[str]:
    """The rows that streaming reads."""
    plan = backfill.settings.plan_workspace
    table = planned_tables(plan)["events"]
    schema = source_schema(table, with_record=topic is not None)
    reader = StepReader(table, plan, backfill.settings.scratch, schema, topic)
    rows = []
    for step in steps:
        start, end = ({"source": "events", "step": number} for number in (step, step + 1))
        for partition in reader.partitions(start, end):
            assert isinstance(partition, StepPartition)
            task = replace(partition, columns=columns)
            rows += [row for batch in reader.read(task) for row in plain_rows(batch)]
    return Counter(map(shown, rows))


def collected(frame: DataFrame) -> Counter[str]:
    """The rows of a batch DataFrame."""
    return Counter(
        shown(row) for batch in frame.toArrow().to_batches() for row in plain_rows(batch)
    )


def is_native(frame: DataFrame) -> bool:
    """Whether Spark's own reader gives all rows."""
    plan = frame._jdf.queryExecution().executedPlan().toString()
    return "FileScan parquet" in plan and "MapInArrow" not in plan


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
def in_zone(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield
    spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.usefixtures("in_zone")
@pytest.mark.parametrize("in_zone", ZONES, indirect=True)
@pytest.mark.parametrize("topic", [None, "raw"])
def test_every_type_of_column_is_what_streaming_gives(
    spark: SparkSession, lake: Catalog, plan: Callable[..., Backfill], topic: str | None
) -> None:
    lake.create_table("raw.events", schema=SCHEMA).append(rows_of_every_type())
    backfill = plan()
    steps = range(backfill.header.steps)
    leaves = Leaves(spark, backfill.settings)
    frame = leaves.frame("events", steps, topic)
    assert frame.schema == source_frame(spark, backfill.settings, "events", topic).schema
    assert collected(frame) == streamed(backfill, steps, topic)
    native = frozenset(SCHEMA.names) - {"clock", "uuid", "code"}
    some = leaves.frame("events", steps, topic, columns=native | {TOPIC, PARTITION, KEY})
    assert is_native(some)
    assert not is_native(frame)
    assert some.schema.simpleString() == frame.schema.simpleString()
    assert collected(some) == streamed(backfill, steps, topic, native)


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
        assert collected(leaves.frame("events", steps)) == streamed(backfill, steps)
    assert is_native(leaves.frame("events", range(count)))


def test_columns_that_do_not_matter_are_null_and_rows_are_counted_without_any(
    spark: SparkSession, lake: Catalog, plan: Callable[..., Backfill]
) -> None:
    history(lake)
    backfill = plan()
    steps = range(backfill.header.steps)
    leaves = Leaves(spark, backfill.settings)
    rows = sum(streamed(backfill, steps).values())
    users = leaves.frame("events", steps, columns=frozenset({"user"}))
    assert users.schema == leaves.frame("events", steps).schema
    (row,) = users.agg(F.count("*"), F.count("id"), F.count("user")).collect()
    assert (row[0], row[1]) == (rows, 0)
    assert 0 < row[2] < rows
    for topic in (None, "raw"):
        assert leaves.frame("events", steps, topic, columns=frozenset()).count() == rows


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


def test_plans_and_errors_say_nothing_of_how_files_are_opened(
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
    frame = Leaves(spark, backfill.settings).frame("events", range(backfill.header.steps), "raw")
    assert not is_native(frame)
    with event_log(spark, tmp_path) as log:
        frame.collect()
    heard = log()
    frame.explain(mode="extended")
    frame.explain(mode="formatted")
    told = f"{heard}{capsys.readouterr().out}{frame._jdf.queryExecution().logical().toJSON()}"
    assert "SparkListenerSQLExecutionStart" in heard
    assert "hush" not in told
    for split in read_splits(backfill.settings.plan_workspace, 0, "events"):
        Path(split.path.removeprefix("file://")).unlink()
    with pytest.raises(PythonException, match="restore the file, then try again") as failure:
        frame.collect()
    assert lasting_cause(cause_of(failure.value))
    assert "hush" not in str(failure.value)


@pytest.mark.usefixtures("format_v3")
@pytest.mark.parametrize("seed", range(12))
def test_any_table_is_read_as_streaming_reads_it(
    spark: SparkSession, lake: Catalog, plan: Callable[..., Backfill], seed: int
) -> None:
    rng = Random(seed)
    table = make_table(lake, "events", rng)
    source: dict[str, Any] = {"timestampColumn": table.arrival_name}
    if table.unit is not None:
        source["timestampUnit"] = table.unit
    others = table.columns[1:]
    if len(others) > 1 and rng.random() < 0.5:
        source["filter"] = random_filter(rng, others)[0]
    start = datetime.fromtimestamp(START_S, UTC) + timedelta(minutes=rng.randrange(300))
    try:
        backfill = plan(
            (start, start + timedelta(hours=rng.choice([2, 6]))),
            {
                "ordering": {"policy": rng.choice(POLICIES), "allowedLateness": "5m"},
                "maxMisalignment": rng.choice(["20m", "2h"]),
            },
            **source,
        )
    except InvalidPlanInput as error:
        pytest.skip(str(error))
    steps = range(rng.randrange(2), backfill.header.steps)
    leaves = Leaves(spark, backfill.settings)
    names = [column.name for column in table.columns]
    for columns in (None, frozenset(rng.sample(names, min(len(names), 2)))):
        frame = leaves.frame("events", steps, columns=columns)
        assert collected(frame) == streamed(backfill, steps, columns=columns)


def evolved(lake: Catalog, *fields: NestedField, name: str = "old.parquet") -> None:
    """A table whose one file was written under other names and types, in two row groups."""
    table = lake.create_table("raw.events", Schema(NestedField(1, "first", LongType())))
    columns = (
        NestedField(1, "id", LongType()),
        NestedField(2, "at", TimestamptzType()),
        *fields,
    )
    updates = (
        AddSchemaUpdate(schema=Schema(*columns, schema_id=1)),
        SetCurrentSchemaUpdate(schema_id=-1),
    )
    lake.commit_table(table, (), updates)
    table = lake.load_table("raw.events")
    rows = [
        {"id": n, "at": START, "a": n, "b": 10 * n, "s": None if n == 3 else {"p": n, "q": "x"}}
        for n in range(4)
    ]
    path = Path(f"{table.location()}/data/{name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, OLD), path, row_group_size=2)
    entry = data_file(
        2, file_path=str(path), record_count=len(rows), file_size_in_bytes=path.stat().st_size
    )
    commit_files(lake, table, 1, [entry])


def _field(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


OLD = pa.schema(
    [
        _field("id", pa.int32(), 1),
        _field("at", pa.timestamp("us", "UTC"), 2),
        _field("a", pa.int64(), 3),
        _field("b", pa.int64(), 4),
        _field("s", pa.struct([_field("p", pa.int32(), 6), _field("q", pa.string(), 7)]), 5),
    ]
)
RENAMED = NestedField(3, "x", LongType())
SWAPPED = (NestedField(3, "b", LongType()), NestedField(4, "a", LongType()))
INNER = StructType(
    NestedField(8, "new", LongType()),
    NestedField(7, "text", StringType()),
    NestedField(6, "p", LongType()),
)


@pytest.mark.parametrize(
    ("fields", "native"),
    [
        ((RENAMED, NestedField(9, "new", StringType())), True),
        ((NestedField(5, "s", INNER),), True),
        (SWAPPED, False),
        ((RENAMED, NestedField(9, "a", LongType())), False),
        ((NestedField(5, "s", StructType(NestedField(9, "p", LongType()))),), False),
    ],
    ids=["renamed and added", "nested", "names swapped", "a name again", "a nested name again"],
)
def test_a_file_of_an_older_schema_is_read_natively_where_no_name_misleads(
    spark: SparkSession,
    lake: Catalog,
    plan: Callable[..., Backfill],
    fields: tuple[NestedField, ...],
    native: bool,
) -> None:
    evolved(lake, *fields)
    backfill = plan()
    steps = range(backfill.header.steps)
    frame = Leaves(spark, backfill.settings).frame("events", steps)
    rows = streamed(backfill, steps)
    assert is_native(frame) is native
    assert collected(frame) == rows
    if frame.columns[-1] == "a":
        name = frame.columns[-1]
        values = {row[name] for row in frame.collect()}
        for value in values:
            found = frame.where(F.col(name).eqNullSafe(F.lit(value))).count()
            assert found == len([row for row in frame.collect() if row[name] == value])


@pytest.mark.parametrize("name", ["_hidden.parquet", ".hidden.parquet", "12:00.parquet"])
def test_a_file_with_a_name_that_spark_leaves_out_is_read(
    spark: SparkSession, lake: Catalog, plan: Callable[..., Backfill], name: str
) -> None:
    evolved(lake, RENAMED, name=name)
    backfill = plan()
    assert (
        Leaves(spark, backfill.settings).frame("events", range(backfill.header.steps)).count() == 4
    )


def test_a_filter_finds_what_statistics_do_not_know(
    spark: SparkSession, lake: Catalog, plan: Callable[..., Backfill]
) -> None:
    place = pa.struct([("x", pa.float64())])
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("x", pa.float64()), ("place", place)])
    numbers = [0.1, math.nan, -0.0, None]
    rows = [{"at": START, "x": number, "place": {"x": number}} for number in numbers]
    lake.create_table("raw.events", schema=schema).append(pa.Table.from_pylist(rows, schema))
    backfill = plan()
    frame = Leaves(spark, backfill.settings).frame(
        "events", range(backfill.header.steps), columns=frozenset({"at", "x"})
    )
    assert is_native(frame)
    whole = Leaves(spark, backfill.settings).frame("events", range(backfill.header.steps))
    for name, from_ in (("x", frame), ("place.x", whole)):
        assert from_.where(F.col(name) > 0.5).count() == 1
        assert from_.where(F.col(name) == 0.0).count() == 1


def test_two_runs_are_two_relations(
    spark: SparkSession, lake: Catalog, plan: Callable[..., Backfill]
) -> None:
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("id", pa.int64())])
    table = lake.create_table("raw.events", schema=schema)
    for hour in range(2):
        table.append(pa.table([[START + timedelta(hours=hour)], [hour]], schema=schema))
    backfill = plan((START, START + timedelta(hours=2)))
    assert backfill.header.steps == 2
    leaves = Leaves(spark, backfill.settings)
    first, second = (
        leaves.frame("events", steps).groupBy("id").count() for steps in (range(1), range(1, 2))
    )
    both = first.join(second, "id", "full_outer")
    assert sorted(row.id for row in both.collect()) == [0, 1]
