"""A table with a past: compacted files of a day, renamed and widened columns, other partitions,
deleted rows.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from production import Production
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import (
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from histories import DAY_US, HOUR_US, MINUTE_US, UTC_TIME, query, sorted_rows, times
from iceberg_tables import commit_files, data_file, parquet_file, partition_of

KAFKA = StructType(
    NestedField(10, "kafka_ingestion_ts", TimestamptzType(), required=False),
    NestedField(11, "kafka_offset", LongType(), required=False),
)
SCHEMA = Schema(
    NestedField(1, "viewer", LongType(), required=False),
    NestedField(2, "kind", StringType(), required=False),
    NestedField(3, "region", StringType(), required=False),
    NestedField(4, "seconds", IntegerType(), required=False),
    NestedField(5, "viewed", TimestamptzType(), required=False),
    NestedField(6, "__metadata__", KAFKA, required=False),
)
APPLICATION = """
from pyspark.sql import SparkSession, functions as F
from backfill.runtime import read_source, write_output

spark = SparkSession.builder.getOrCreate()
views = read_source(spark, "views").withWatermark("viewed", "10 minutes")
sessions = views.groupBy(F.session_window("viewed", "30 minutes"), "viewer").agg(
    F.count("*").alias("views"), F.sum("seconds").alias("seconds"), F.max("action").alias("action"),
    F.count("device").alias("devices"), F.max("__metadata__.kafka_offset").alias("last_offset"),
)
result = sessions.select(F.col("session_window.start").alias("began"), *[c for c in sessions.columns if c != "session_window"])
write_output(result, "sessions").awaitTermination()
"""
SESSIONS = """
    WITH marked AS (
        SELECT *, coalesce(viewed > lag(viewed) OVER by_viewer + INTERVAL 30 MINUTE, true) AS first
        FROM views WINDOW by_viewer AS (PARTITION BY viewer ORDER BY viewed)
    ), numbered AS (SELECT *, sum(first::INT) OVER (PARTITION BY viewer ORDER BY viewed) AS session FROM marked)
    SELECT min(viewed) AS began, viewer, count(*) AS views, sum(seconds)::BIGINT AS seconds, max(kind) AS action,
        count(device) AS devices, max(kafka_offset) AS last_offset
    FROM numbered GROUP BY viewer, session
"""
WINDOW = "began >= TIMESTAMPTZ '2024-03-01 20:00Z' AND began < TIMESTAMPTZ '2024-03-02 06:00Z'"


def views() -> pa.Table:
    """Two days of views in two regions, half an hour apart on average, arriving within three
    minutes.
    """
    random = np.random.default_rng(7)
    at = np.sort(random.integers(DAY_US, DAY_US + 48 * HOUR_US, 6_000))
    device = [None if n < 3_000 else f"d{n % 3}" for n in range(len(at))]
    return pa.table(
        {
            "viewer": random.integers(0, 60, len(at)),
            "kind": [f"kind-{n % 11}" for n in range(len(at))],
            "region": np.where(random.random(len(at)) < 0.8, "eu", "us"),
            "seconds": pa.array(random.integers(0, 500, len(at))),
            "viewed": times(at),
            "ingested": times(at + random.integers(0, 3 * MINUTE_US, len(at))),
            "kafka_offset": np.arange(len(at)),
            "device": pa.array(device, pa.string()),
        }
    )


def as_stored(table: Table, rows: pa.Table) -> pa.Table:
    """The rows under the names of the table's present schema."""
    nested = pa.StructArray.from_arrays(
        [rows["ingested"].combine_chunks(), rows["kafka_offset"].combine_chunks()],
        names=["kafka_ingestion_ts", "kafka_offset"],
    )
    there = {
        **{name: rows[name] for name in rows.column_names},
        "action": rows["kind"],
        "__metadata__": nested,
    }
    return pa.table({field.name: there[field.name] for field in table.schema().fields})


def day_file(
    table: Table, name: str, rows: pa.Table, row_group_size: int, **entry: object
) -> DataFile:
    return parquet_file(table, name, as_stored(table, rows), row_group_size=row_group_size, **entry)


def delete_file(table: Table, data: DataFile, positions: list[int], **entry: object) -> DataFile:
    """Positional deletes of one data file."""
    path = f"{table.location()}/data/deletes-{data.record_count}.parquet"
    rows = {"file_path": [data.file_path] * len(positions), "pos": positions}
    pq.write_table(
        pa.table(rows, pa.schema([("file_path", pa.string()), ("pos", pa.int64())])), path
    )
    content = DataFileContent.POSITION_DELETES
    size = Path(path).stat().st_size
    return data_file(
        2,
        content=content,
        file_path=path,
        record_count=len(positions),
        file_size_in_bytes=size,
        **entry,
    )


def land_history(lake: Catalog, rows: pa.Table) -> list[int]:
    """Lands the rows as files of days and half days under changing schemas and partitions. Gives
    the rows that were deleted.
    """
    table = lake.create_table("raw.views", SCHEMA)
    ingested = rows["ingested"].cast(pa.int64()).to_numpy() - DAY_US
    numbers = np.arange(len(rows))
    shuffled = np.random.default_rng(8).permutation(numbers[ingested < 18 * HOUR_US])
    first = day_file(table, "first.parquet", rows.take(pa.array(shuffled)), row_group_size=400)
    table = commit_files(lake, table, 1, [first], [delete_file(table, first, [3, 500, 501])])
    deleted = [int(shuffled[position]) for position in (3, 500, 501)]

    with table.update_schema() as change:
        change.add_column("device", StringType())
        change.rename_column("kind", "action")
        change.update_column("seconds", LongType())
    second = numbers[(ingested >= 18 * HOUR_US) & (ingested < 30 * HOUR_US)]
    table = lake.load_table("raw.views")
    table = commit_files(
        lake,
        table,
        2,
        [day_file(table, "second.parquet", rows.take(pa.array(second)), row_group_size=100_000)],
    )

    with table.update_spec() as change:
        change.add_field("viewed", DayTransform(), "day")
        change.add_field("region", IdentityTransform(), "region")
    table, files = lake.load_table("raw.views"), []
    rest = numbers[ingested >= 30 * HOUR_US]
    for region in ("eu", "us"):
        for day in (1, 2):
            mine = rest[
                (np.array(rows["region"].to_pylist())[rest] == region)
                & (
                    (rows["viewed"].cast(pa.int64()).to_numpy()[rest] - DAY_US) // (24 * HOUR_US)
                    + 1
                    == day
                )
            ]
            if len(mine):
                partition = partition_of(DAY_US // (24 * HOUR_US) + day - 1, region)
                files.append(
                    day_file(
                        table,
                        f"{region}-{day}.parquet",
                        rows.take(pa.array(mine)),
                        250,
                        partition=partition,
                    )
                )
    commit_files(lake, table, 3, files)
    return deleted


def test_sessions_fill_a_gap_from_a_table_whose_layout_changed(
    lake: Catalog, tmp_path: Path
) -> None:
    rows = views()
    deleted = land_history(lake, rows)
    alive = rows.take(pa.array([n for n in range(len(rows)) if n not in deleted]))
    european = query("SELECT * FROM alive WHERE region = 'eu' AND viewer <> 13", alive=alive)
    truth = query(SESSIONS, views=european)
    schema = pa.schema(
        [
            field.with_type(UTC_TIME) if pa.types.is_timestamp(field.type) else field
            for field in truth.schema
        ]
    )
    lake.create_table("raw.sessions", schema).append(
        query(f"SELECT * FROM truth WHERE NOT ({WINDOW})", truth=truth).cast(schema)
    )

    production = Production(tmp_path, lake)
    production.describe(
        APPLICATION,
        execution="Streaming",
        window={
            "start": "2024-03-01T20:00:00Z",
            "end": "2024-03-02T06:00:00Z",
            "warmUp": "4h",
            "drain": "6h",
        },
        sources=[
            {
                "name": "views",
                "table": "lake.raw.views",
                "timestampColumn": "__metadata__.kafka_ingestion_ts",
                "filter": "viewer != 13",
                "regions": {"column": "region", "in": ["eu"]},
            }
        ],
        ordering={"policy": "WithinLateness", "allowedLateness": "5m"},
        maxMisalignment="6h",
        outputs=[
            {
                "name": "sessions",
                "table": "lake.raw.sessions",
                "timestampColumn": "began",
                "publish": {"mode": "Append"},
            }
        ],
    )
    result = production.succeed()
    assert sorted_rows(production.output("raw.sessions")) == sorted_rows(truth)
    read = query(
        "SELECT 1 FROM rows WHERE ingested >= TIMESTAMPTZ '2024-03-01 16:00Z' AND ingested <"
        " TIMESTAMPTZ '2024-03-02 12:00Z'",
        rows=european,
    )
    assert result["rowsRead"] == len(read)
    assert (result["rowsDroppedLate"], result["openAtEnd"]) == (0, 0)
    assert result["outputs"][0]["rows"] > 100
