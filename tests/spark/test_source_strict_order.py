"""Strict order in a real query: rows of one Kafka partition come in offset order, within a step and
across steps.
"""

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from planned_sources import committed, planned, wait
from pyiceberg.catalog import Catalog
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from backfill.api.spec import BackfillSpec
from backfill.runtime.source.source_frame import source_frame

START = datetime(2021, 7, 11)
PARTITIONS = 5
SCHEMA = pa.schema([("at", pa.timestamp("us")), ("partition", pa.int32()), ("offset", pa.int64())])


def test_rows_of_a_kafka_partition_are_read_in_offset_order(
    spark: SparkSession, lake: Catalog, tmp_path: Path
) -> None:
    table = lake.create_table("raw.events", schema=SCHEMA)
    rows = [
        {
            "at": START + timedelta(seconds=10 * offset + partition),
            "partition": partition,
            "offset": offset,
        }
        for offset in range(240)
        for partition in range(PARTITIONS)
    ]
    for file in range(3):  # neighbours lie in different files, and a file is in no order
        table.append(pa.Table.from_pylist(rows[file::3][::-1], SCHEMA))
    columns = {"partitionColumn": "partition", "offsetColumn": "offset"}
    source = {
        "name": "events",
        "table": "lake.raw.events",
        "timestampColumn": "at",
        "kafka": columns,
    }
    spec = BackfillSpec.model_validate(
        {
            "applicationRef": {"name": "app"},
            "window": {
                "start": START.replace(tzinfo=UTC),
                "end": START.replace(tzinfo=UTC, hour=1),
            },
            "sources": [source],
            "ordering": {"policy": "Strict"},
            "maxMisalignment": "20m",
        }
    )
    backfill = planned(spec, tmp_path)
    assert backfill.header.steps > 1
    batches: list[list[Row]] = []
    frame = source_frame(spark, backfill.settings, "events").withColumn(
        "task", F.spark_partition_id()
    )
    query = backfill.start(frame, sink=lambda batch, _number: batches.append(batch.collect()))
    backfill.release(backfill.header.steps)
    wait(lambda: committed(query) > backfill.header.steps, query)
    backfill.stop()
    offsets = defaultdict(list)
    tasks = defaultdict(set)
    for number, batch in enumerate(batches):
        for row in batch:
            offsets[row.partition].append(row.offset)
            tasks[number, row.partition].add(row.task)
    assert offsets == {partition: list(range(240)) for partition in range(PARTITIONS)}
    assert all(len(of_partition) == 1 for of_partition in tasks.values())
    assert {task for of_partition in tasks.values() for task in of_partition} == {0, 1}
