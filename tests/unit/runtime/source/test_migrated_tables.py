"""Tables as Hive, Spark, Impala and other writers left them, planned and read: nothing in them is
lost, and nothing ends in a stack trace.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from planned_rows import PlannedRow, planned_day, rows_of_plan
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
)
from pyiceberg.transforms import IdentityTransform, MonthTransform, Transform, YearTransform
from pyiceberg.types import (
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from backfill.api.errors import InvalidPlanInput
from backfill.api.spec import BackfillSpec
from backfill.planning.plan import PlanHeader, plan_directory, read_splits
from backfill.planning.planner import make_plan, verify_files
from backfill.planning.rows.pinned_table import load_source_table
from backfill.planning.workspace import Workspace
from backfill.runtime.source.schemas import spark_schema
from backfill.runtime.source.split_reading import read_split
from backfill.runtime.spark_versions import to_arrow_schema
from iceberg_tables import commit_files, data_file, metrics, partition_of

START = 1_772_323_200_000_000
"""2026-03-01T00:00:00Z; the window is the day that begins then."""
HOUR = 3_600_000_000
FAR = 253_402_300_799_000_000
"""The last second of the year 9999."""
TS = NestedField(1, "ts", TimestamptzType())
KAFKA = (NestedField(2, "partition", IntegerType()), NestedField(3, "offset", LongType()))


def table_of(
    lake: Catalog,
    *fields: NestedField,
    by: tuple[int, Transform[Any, Any]] | None = None,
    mapping: list[dict[str, Any]] | None = None,
    version: int = 2,
) -> Table:
    """A table with exactly these fields, partitioned by one of them."""
    properties = {"format-version": str(version)}
    if mapping is not None:
        properties["schema.name-mapping.default"] = json.dumps(mapping)
    table = lake.create_table(
        "raw.events", Schema(NestedField(1, "first", LongType())), properties=properties
    )
    updates: list[Any] = [
        AddSchemaUpdate(schema=Schema(*fields, schema_id=1)),
        SetCurrentSchemaUpdate(schema_id=-1),
    ]
    if by is not None:
        spec = PartitionSpec(PartitionField(by[0], 1000, by[1], "p"), spec_id=1)
        updates += [AddPartitionSpecUpdate(spec=spec), SetDefaultSpecUpdate(spec_id=-1)]
    lake.commit_table(table, (), tuple(updates))
    return lake.load_table("raw.events")


def columns(*fields: tuple[int, str, pa.DataType]) -> pa.Schema:
    """The schema of a file with field ids."""
    return pa.schema(
        [
            pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})
            for number, name, kind in fields
        ]
    )


def file_of(
    table: Table, name: str, rows: pa.Table, *, int96: bool = False, **entry: Any
) -> DataFile:
    """A file exactly as the rows' schema says, and its entry."""
    path = f"{table.location()}/data/{name}"
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path, use_deprecated_int96_timestamps=int96)
    size = Path(path).stat().st_size
    return data_file(
        table.format_version,
        file_path=path,
        record_count=rows.num_rows,
        file_size_in_bytes=size,
        **entry,
    )


def planned(
    directory: Path, policy: str = "WithinLateness", **source: Any
) -> tuple[PlanHeader, list[PlannedRow]]:
    """The plan of a day, and the rows it reads."""
    return planned_day(directory, policy, "15m", **{"timestampColumn": "ts", **source})


def read(directory: Path, column: str, policy: str = "WithinLateness", **source: Any) -> list[Any]:
    """The values of a column in the rows that are read."""
    return [row.values[column] for row in planned(directory, policy, **source)[1]]


@pytest.mark.parametrize("policy", ["WithinLateness", "Exact", "Unordered", "Strict"])
def test_rows_whose_arrival_is_only_in_the_partition_are_read(
    lake: Catalog, tmp_path: Path, policy: str
) -> None:
    table = table_of(lake, TS, *KAFKA, by=(1, IdentityTransform()))
    stored = columns((2, "partition", pa.int32()), (3, "offset", pa.int64()))
    for number, moment in enumerate((START, START + HOUR, START - 1)):
        rows = pa.table(
            [pa.array([0, 0], pa.int32()), pa.array([2 * number, 2 * number + 1], pa.int64())],
            schema=stored,
        )
        table = commit_files(
            lake,
            table,
            number + 1,
            [file_of(table, f"{number}.parquet", rows, partition=partition_of(moment))],
        )
    header, found = planned(
        tmp_path / "w", policy, kafka={"partitionColumn": "partition", "offsetColumn": "offset"}
    )
    assert sorted((row.values["offset"], row.values["ts"]) for row in found) == [
        (0, START),
        (1, START),
        (2, START + HOUR),
        (3, START + HOUR),
    ]
    assert header.rows == 4
    assert not any("not read" in warning for warning in header.warnings)


def test_kafkas_partition_may_be_that_of_the_table_alone(lake: Catalog, tmp_path: Path) -> None:
    table = table_of(lake, TS, *KAFKA, by=(2, IdentityTransform()))
    stored = columns((1, "ts", pa.timestamp("us", "UTC")), (3, "offset", pa.int64()))
    files = [
        file_of(
            table,
            f"{kafka}.parquet",
            pa.table(
                [
                    pa.array([START + HOUR, START + 2 * HOUR], stored.types[0]),
                    pa.array([5, 6], pa.int64()),
                ],
                schema=stored,
            ),
            partition=partition_of(kafka),
        )
        for kafka in (0, 3)
    ]
    commit_files(lake, table, 1, files)
    _, found = planned(
        tmp_path / "w", "Strict", kafka={"partitionColumn": "partition", "offsetColumn": "offset"}
    )
    assert sorted((row.values["partition"], row.values["offset"]) for row in found) == [
        (0, 5),
        (0, 6),
        (3, 5),
        (3, 6),
    ]


def test_a_struct_that_is_null_has_no_arrival_from_a_partition(
    lake: Catalog, tmp_path: Path
) -> None:
    meta = StructType(NestedField(5, "ts", TimestamptzType()), NestedField(6, "host", StringType()))
    table = table_of(
        lake,
        NestedField(4, "meta", meta),
        NestedField(7, "id", LongType()),
        by=(5, IdentityTransform()),
    )
    host = pa.struct([pa.field("host", pa.string(), metadata={"PARQUET:field_id": "6"})])
    stored = columns((4, "meta", host), (7, "id", pa.int64()))
    rows = pa.table(
        [pa.array([{"host": "a"}, None], host), pa.array([1, 2], pa.int64())], schema=stored
    )
    commit_files(lake, table, 1, [file_of(table, "a.parquet", rows, partition=partition_of(START))])
    assert read(tmp_path / "w", "id", timestampColumn="meta.ts") == [1]


@pytest.mark.parametrize(
    "kind", ["int96", "unadjusted", "of another zone", "nanoseconds", "milliseconds"]
)
@pytest.mark.parametrize("column", [TimestamptzType(), TimestampType()], ids=str)
def test_instants_are_in_utc_however_a_file_has_them(
    lake: Catalog, tmp_path: Path, kind: str, column: TimestamptzType
) -> None:
    table = table_of(lake, NestedField(1, "ts", column))
    units = {
        "of another zone": pa.timestamp("us", "Europe/Paris"),
        "nanoseconds": pa.timestamp("ns"),
    }
    stored = units.get(kind, pa.timestamp("ms" if kind == "milliseconds" else "us"))
    moments = [START - 1000, START, START + HOUR]
    rows = pa.table(
        [
            pa.array(moments, pa.timestamp("us"))
            .cast(pa.timestamp(stored.unit))
            .cast(pa.int64())
            .cast(stored)
        ],
        schema=columns((1, "ts", stored)),
    )
    known = metrics(1, moments[0], moments[-1])
    commit_files(
        lake, table, 1, [file_of(table, "a.parquet", rows, int96=kind == "int96", **known)]
    )
    for policy in ("WithinLateness", "Exact", "Unordered"):
        assert read(tmp_path / policy, "ts", policy) == [START, START + HOUR]
    assert read(
        tmp_path / "filtered",
        "ts",
        filter=(
            "ts > '2026-03-01T00:00:00+00:00'"
            if column == TimestamptzType()
            else "ts > '2026-03-01T00:00:00'"
        ),
    ) == [START + HOUR]


def test_a_file_of_another_type_is_refused_by_its_name_before_anything_runs(
    lake: Catalog, tmp_path: Path
) -> None:
    table = table_of(lake, TS, NestedField(2, "n", LongType()))
    stored = columns((1, "ts", pa.int64()), (2, "n", pa.int64()))
    rows = pa.table([[START], [1]], schema=stored)
    table = commit_files(lake, table, 1, [file_of(table, "numbers.parquet", rows)])
    with pytest.raises(
        InvalidPlanInput,
        match=r"numbers\.parquet has int64 in column ts, but the table has timestamptz",
    ):
        planned(tmp_path / "arrival")
    other = columns((1, "ts", pa.timestamp("us", "UTC")), (2, "n", pa.string()))
    texts = pa.table([pa.array([START], other.types[0]), ["x"]], schema=other)
    lake.drop_table("raw.events")
    table = table_of(lake, TS, NestedField(2, "n", LongType()))
    commit_files(
        lake, table, 1, [file_of(table, "texts.parquet", texts, **metrics(1, START, START))]
    )
    with pytest.raises(
        InvalidPlanInput, match=r"texts\.parquet has string in column n, but the table has long"
    ):
        planned(tmp_path / "other")


def test_a_column_that_nothing_uses_is_no_reason_to_refuse_a_file(
    lake: Catalog, tmp_path: Path
) -> None:
    table = table_of(lake, TS, NestedField(2, "n", LongType()), NestedField(3, "id", LongType()))
    stored = columns(
        (1, "ts", pa.timestamp("us", "UTC")), (2, "n", pa.string()), (3, "id", pa.int64())
    )
    rows = pa.table([pa.array([START], stored.types[0]), ["x"], [7]], schema=stored)
    entry = file_of(table, "texts.parquet", rows, **metrics(1, START, START))
    commit_files(lake, table, 1, [entry])
    source = {"name": "events", "table": "lake.raw.events", "timestampColumn": "ts"}
    window = {"start": "2026-03-01T00:00:00Z", "end": "2026-03-02T00:00:00Z"}
    workspace = Workspace(str(tmp_path / "w"))

    def plan_of(**fields: Any) -> PlanHeader:
        given = {"applicationRef": {"name": "app"}, "window": window}
        spec = BackfillSpec.model_validate({**given, "sources": [{**source, **fields}]})
        return make_plan(spec, workspace, parallelism=1)

    header = plan_of()
    (warning,) = verify_files(header, workspace)
    assert warning.startswith("source events: 1 data file of lake.raw.events cannot be read by")
    assert "texts.parquet has string in column n, but the table has long; rewrite" in warning
    loaded = load_source_table(header.inputs.sources[0])
    target = to_arrow_schema(spark_schema(loaded.open().schema, "lake.raw.events"))
    directory = plan_directory(workspace, header.plan_id)
    (split,) = read_splits(directory, 0, "events")
    (batch,) = read_split(loaded, split, target, frozenset({"ts", "id"}))
    assert batch["id"].to_pylist() == [7]
    with pytest.raises(InvalidPlanInput, match="has string in column n"):
        list(read_split(loaded, split, target, frozenset({"n"})))
    with pytest.raises(InvalidPlanInput, match="has string in column n"):
        verify_files(plan_of(filter="n == 1"), workspace)


def test_a_batch_without_any_uuid_in_its_lists_is_read(lake: Catalog, tmp_path: Path) -> None:
    table = table_of(
        lake, TS, NestedField(2, "ids", ListType(3, UUIDType(), element_required=False))
    )
    element = pa.field("element", pa.uuid(), metadata={"PARQUET:field_id": "3"})
    stored = columns((1, "ts", pa.timestamp("us", "UTC")), (2, "ids", pa.list_(element)))
    lists = pa.ListArray.from_arrays(
        [0, 0, 0], pa.array([], pa.uuid()), type=stored.types[1], mask=pa.array([False, True])
    )
    rows = pa.table([pa.array([START, START], stored.types[0]), lists], schema=stored)
    commit_files(lake, table, 1, [file_of(table, "a.parquet", rows)])
    assert read(tmp_path / "w", "ids") == [[], None]


@pytest.mark.parametrize("transform", [MonthTransform(), YearTransform()], ids=str)
def test_rows_of_the_last_year_do_not_keep_others_from_being_read(
    lake: Catalog, tmp_path: Path, transform: Transform[Any, Any]
) -> None:
    table = table_of(lake, TS, by=(1, transform))
    stored = columns((1, "ts", pa.timestamp("us", "UTC")))
    months = {START: 674, FAR: (9999 - 1970) * 12 + 11}
    for number, (moment, month) in enumerate(months.items()):
        value = month if isinstance(transform, MonthTransform) else month // 12
        rows = pa.table([pa.array([moment], stored.types[0])], schema=stored)
        made = file_of(table, f"{number}.parquet", rows, partition=partition_of(value))
        table = commit_files(lake, table, number + 1, [made])
    assert read(tmp_path / "w", "ts") == [START]
    window = {"start": "9999-12-31T00:00:00Z", "end": "9999-12-31T23:59:59.999Z"}
    spec = BackfillSpec.model_validate(
        {
            "applicationRef": {"name": "app"},
            "window": window,
            "sources": [{"name": "events", "table": "lake.raw.events", "timestampColumn": "ts"}],
        }
    )
    workspace = Workspace(str(tmp_path / "far"))
    header = make_plan(spec, workspace, parallelism=1)
    assert [row.values["ts"] for row in rows_of_plan(header, workspace)] == [FAR]


@pytest.mark.usefixtures("format_v3")
@pytest.mark.parametrize(
    ("kind", "ticks"), [(TimestampType(), 1), (TimestampNanoType(), 1000)], ids=str
)
def test_a_partition_of_any_moment_is_read(
    lake: Catalog, tmp_path: Path, kind: Any, ticks: int
) -> None:
    table = table_of(
        lake,
        NestedField(1, "ts", kind),
        NestedField(2, "id", LongType()),
        by=(1, IdentityTransform()),
        version=3,
    )
    stored = columns((2, "id", pa.int64()))
    far = 400_000_000_000_000_000 if ticks == 1 else FAR // 100 * ticks
    files = [
        file_of(
            table,
            f"{moment}.parquet",
            pa.table([[number]], schema=stored),
            partition=partition_of(moment),
        )
        for number, moment in enumerate((START * ticks, START * ticks + max(ticks - 1, 1), far))
    ]
    commit_files(lake, table, 1, files)
    assert sorted(read(tmp_path / "w", "id")) == [0, 1]


@pytest.mark.usefixtures("format_v3")
def test_rows_older_than_the_arrival_column_arrived_at_its_first_default(
    lake: Catalog, tmp_path: Path
) -> None:
    default = datetime(2026, 3, 1, 5, tzinfo=UTC)
    table = table_of(
        lake,
        NestedField(1, "ts", TimestamptzType(), initial_default=default),
        NestedField(2, "id", LongType()),
        version=3,
    )
    rows = pa.table([[1, 2]], schema=columns((2, "id", pa.int64())))
    commit_files(lake, table, 1, [file_of(table, "old.parquet", rows)])
    _, found = planned(tmp_path / "w")
    assert [(row.values["id"], row.values["ts"]) for row in found] == [
        (1, START + 5 * HOUR),
        (2, START + 5 * HOUR),
    ]


@pytest.mark.parametrize("policy", ["WithinLateness", "Strict"])
def test_names_with_dots_are_names(lake: Catalog, tmp_path: Path, policy: str) -> None:
    table = table_of(
        lake,
        NestedField(1, "ingested.at", TimestamptzType()),
        NestedField(2, "kafka.partition", IntegerType()),
        NestedField(3, "kafka.offset", LongType()),
        NestedField(4, "who.is", StringType()),
    )
    stored = columns(
        (1, "old.time", pa.timestamp("us", "UTC")),
        (2, "k.p", pa.int32()),
        (3, "k.o", pa.int64()),
        (4, "who", pa.string()),
    )
    arrays = [
        pa.array([START, START + 1], stored.types[0]),
        pa.array([0, 0], pa.int32()),
        [7, 8],
        ["a", "b"],
    ]
    commit_files(lake, table, 1, [file_of(table, "a.parquet", pa.table(arrays, schema=stored))])
    names = {"partitionColumn": "kafka.partition", "offsetColumn": "kafka.offset"}
    found = read(
        tmp_path / "w",
        "kafka.offset",
        policy,
        timestampColumn="ingested.at",
        kafka=names,
        filter="who.is == 'b'",
    )
    assert found == [8]


def test_a_nested_field_that_the_name_mapping_lacks_is_not_the_tables(
    lake: Catalog, tmp_path: Path
) -> None:
    geo = StructType(NestedField(3, "zone", LongType()), NestedField(4, "label", StringType()))
    mapping = [
        {"field-id": 1, "names": ["ts"]},
        {"field-id": 2, "names": ["geo"], "fields": [{"field-id": 3, "names": ["zone"]}]},
    ]
    table = table_of(lake, TS, NestedField(2, "geo", geo), mapping=mapping)
    rows = pa.table(
        {
            "ts": pa.array([START], pa.timestamp("us", "UTC")),
            "geo": [{"zone": 1, "label": "x", "extra": 2}],
        }
    )
    commit_files(lake, table, 1, [file_of(table, "a.parquet", rows)])
    assert read(tmp_path / "w", "geo") == [{"zone": 1, "label": None}]


@pytest.mark.parametrize("name", ["region-code", "data center", "région", "in", 'quo"ted', "a.b"])
def test_regions_may_be_in_a_column_of_any_name(lake: Catalog, tmp_path: Path, name: str) -> None:
    table = table_of(lake, TS, NestedField(2, name, StringType()))
    stored = columns((1, "ts", pa.timestamp("us", "UTC")), (2, "x", pa.string()))
    rows = pa.table([pa.array([START] * 3, stored.types[0]), ["eu\\", "us", None]], schema=stored)
    commit_files(lake, table, 1, [file_of(table, "a.parquet", rows)])
    assert read(tmp_path / "w", name, regions={"column": name, "in": ["eu\\", "it's"]}) == ["eu\\"]


@pytest.mark.parametrize(
    "text", ["n not in (1, 2)", "n != 1", "not (n == 1)", "not (n in (1, 2))", "n not in (1)"]
)
def test_nulls_are_left_out_by_negated_filters_in_old_and_new_files_alike(
    lake: Catalog, tmp_path: Path, text: str
) -> None:
    table = table_of(lake, TS, NestedField(2, "n", LongType()), NestedField(3, "id", LongType()))
    time = pa.timestamp("us", "UTC")
    old = pa.table(
        [pa.array([START], time), [0]], schema=columns((1, "ts", time), (3, "id", pa.int64()))
    )
    new_columns = columns((1, "ts", time), (2, "n", pa.int64()), (3, "id", pa.int64()))
    new = pa.table(
        [pa.array([START] * 3, time), pa.array([1, None, 3], pa.int64()), [1, 2, 3]],
        schema=new_columns,
    )
    commit_files(
        lake, table, 1, [file_of(table, "old.parquet", old), file_of(table, "new.parquet", new)]
    )
    assert read(tmp_path / "w", "id", filter=text) == [3]
    assert sorted(read(tmp_path / "nulls", "id", filter=f"{text} or n is null")) == [0, 2, 3]


def test_a_filter_on_uuids_finds_their_rows_also_by_partition(
    lake: Catalog, tmp_path: Path
) -> None:
    from uuid import UUID

    table = table_of(lake, TS, NestedField(2, "id", UUIDType()), by=(2, IdentityTransform()))
    stored = columns((1, "ts", pa.timestamp("us", "UTC")), (2, "id", pa.uuid()))
    files = []
    for number in (1, 2):
        value = UUID(int=number)
        rows = pa.table(
            [pa.array([START], stored.types[0]), pa.array([value.bytes], pa.uuid())], schema=stored
        )
        files.append(file_of(table, f"{number}.parquet", rows, partition=partition_of(value)))
    commit_files(lake, table, 1, files)
    for number, text in enumerate(
        ("id == '{}'", "id in ('{}', '00000000-0000-0000-0000-000000000009')")
    ):
        assert read(tmp_path / str(number), "id", filter=text.format(UUID(int=2))) == [
            str(UUID(int=2))
        ]


def test_an_arrival_within_a_list_is_refused(lake: Catalog, tmp_path: Path) -> None:
    item = StructType(NestedField(4, "ts", TimestamptzType()))
    table = table_of(lake, TS, NestedField(2, "items", ListType(3, item, element_required=False)))
    commit_files(lake, table, 1, [])
    with pytest.raises(
        InvalidPlanInput,
        match=r"column items\.element\.ts of lake\.raw\.events is inside a list or map",
    ):
        planned(tmp_path / "w", timestampColumn="items.element.ts")
