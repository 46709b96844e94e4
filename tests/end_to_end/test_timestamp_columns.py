"""Arrival times in types and units that the other histories do not have, all in one application."""

from pathlib import Path

import pyarrow as pa
import pytest
from production import Production
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import (
    IcebergType,
    LongType,
    MapType,
    NestedField,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
)

from histories import DAY_US, HOUR_US, SECOND_US, UTC_TIME, query, sorted_rows
from iceberg_tables import commit_files, parquet_file

LONG = LongType()
KINDS: dict[str, tuple[IcebergType, str | None, int]] = {
    "seconds": (LONG, "s", 1_000_000_000),
    "milliseconds": (LONG, "ms", 1_000_000),
    "nanoseconds": (LONG, "ns", 1),
    "zoneless": (TimestampType(), None, 1_000),
    "nano": (TimestampNanoType(), None, 1),
    "map": (LongType(), "ms", 1_000_000),
}
"""Type, unit, and nanoseconds of one. ``map`` is for times in a map."""
IN_MAP = MapType(10, StringType(), 11, LONG, value_required=False)
APPLICATION = f"""
from functools import reduce
from pyspark.sql import DataFrame, SparkSession, functions as F
from backfill.runtime import read_source, write_output

spark = SparkSession.builder.getOrCreate()
kinds = {list(KINDS)}
rows = [read_source(spark, kind).select(F.lit(kind).alias("kind"), "id", "wanted") for kind in kinds]
write_output(reduce(DataFrame.union, rows), "copies")
spark.streams.awaitAnyTermination()
"""
START_US, END_US = DAY_US + 2 * HOUR_US, DAY_US + 5 * HOUR_US


def arrivals_ns(unit_ns: int) -> list[int]:
    """Six hours, a row every 400 seconds, and rows just before, at and just after both ends, as
    fine as the unit is.
    """
    edges = [
        1_000 * edge_us + near for edge_us in (START_US, END_US) for near in (-unit_ns, 0, unit_ns)
    ]
    return [1_000 * (DAY_US + 7 * SECOND_US + row * 400 * SECOND_US) for row in range(54)] + edges


@pytest.mark.usefixtures("format_v3")
@pytest.mark.parametrize("execution", ["Streaming", "Batch"])
def test_the_window_is_exact_whatever_type_and_unit_says_when_rows_arrived(
    lake: Catalog, tmp_path: Path, execution: str
) -> None:
    sources, expected = [], []
    for kind, (iceberg_type, unit, unit_ns) in KINDS.items():
        version = 3 if isinstance(iceberg_type, TimestampNanoType) else 2
        in_map = kind == "map"
        stored = IN_MAP if in_map else iceberg_type
        fields = [("id", LONG), ("at", stored), ("wanted", TimestamptzType())]
        schema = Schema(
            *(NestedField(n, name, of, required=False) for n, (name, of) in enumerate(fields, 1))
        )
        table = lake.create_table(
            f"raw.{kind}", schema, properties={"format-version": str(version)}
        )
        ns = arrivals_ns(unit_ns)
        rows = pa.table(
            {
                "id": range(len(ns)),
                "at": [value // unit_ns for value in ns],
                "wanted": [START_US] * len(ns),
            }
        )
        data = rows.set_column(2, "wanted", rows["wanted"].cast(UTC_TIME))
        if in_map:
            maps = [[("sent", 0), ("at", value)] for value in rows["at"].to_pylist()]
            data = data.set_column(1, "at", pa.array(maps, pa.map_(pa.string(), pa.int64())))
            untimed = pa.array([None, [], [("sent", START_US)]], data.schema.field("at").type)
            more = [pa.array(range(-3, 0)), untimed, pa.array([START_US] * 3, UTC_TIME)]
            data = pa.concat_tables([data, pa.table(more, schema=data.schema)])
        elif not isinstance(iceberg_type, LongType):
            data = data.set_column(1, "at", rows["at"].cast(_arrow(iceberg_type)))
        files = [
            parquet_file(table, f"{part}.parquet", data.take(list(range(part, len(data), 3))))
            for part in range(3)
        ]
        commit_files(lake, table, 1, files)
        column = "at['at']" if in_map else "at"
        source = {"name": kind, "table": f"lake.raw.{kind}", "timestampColumn": column}
        sources.append(source | ({"timestampUnit": unit} if unit else {}))
        expected += [
            (kind, row)
            for row, value in enumerate(ns)
            if 1_000 * START_US <= value < 1_000 * END_US
        ]

    copies = pa.schema([("kind", pa.string()), ("id", pa.int64()), ("wanted", UTC_TIME)])
    lake.create_table("raw.copies", copies)
    production = Production(tmp_path, lake)
    production.describe(
        APPLICATION,
        execution=execution,
        window={"start": "2024-03-01T02:00:00Z", "end": "2024-03-01T05:00:00Z"},
        sources=sources,
        ordering={"policy": "Exact"},
        maxMisalignment="3h",
        outputs=[
            {
                "name": "copies",
                "table": "lake.raw.copies",
                "timestampColumn": "wanted",
                "publish": {"mode": "Append"},
            }
        ],
    )
    result = production.succeed()
    assert sorted_rows(
        query("SELECT kind, id FROM copies", copies=production.output("raw.copies"))
    ) == sorted(expected, key=repr)
    if execution == "Streaming":  # batch jobs count by the plan, which does not know parts of files
        assert result["rowsRead"] == len(expected)
        assert result["maxObservedMisalignmentSeconds"] <= 3 * 3600


def _arrow(iceberg_type: IcebergType) -> pa.DataType:
    unit = "ns" if isinstance(iceberg_type, TimestampNanoType) else "us"
    return pa.timestamp(unit, "UTC" if isinstance(iceberg_type, TimestamptzType) else None)
