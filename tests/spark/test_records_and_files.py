"""Programs that write records to Kafka, or files, with tables as the outputs of their Backfill."""

from datetime import timedelta
from pathlib import Path

from applications import PREAMBLE
from drivers import ROWS_PER_STEP, START, STEP, Lake, assign, run_applications
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    IntegerType,
    ListType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

STEPS = 2
_HEADER = StructType(
    NestedField(10, "key", StringType(), required=False),
    NestedField(11, "value", BinaryType(), required=False),
)
ALERTS = Schema(
    NestedField(1, "key", BinaryType(), required=False),
    NestedField(2, "value", BinaryType(), required=False),
    NestedField(3, "topic", StringType(), required=False),
    NestedField(4, "partition", IntegerType(), required=False),
    NestedField(5, "headers", ListType(12, _HEADER, element_required=False), required=False),
    NestedField(6, "at", TimestamptzType(), required=False),
)
TEXTS = Schema(
    NestedField(1, "value", StringType(), required=False),
    NestedField(2, "at", TimestamptzType(), required=False),
)
_RECORDS = (
    PREAMBLE
    + """
events = kafka(SparkSession.builder.getOrCreate())
late = events.withColumn("at", F.col("at") + F.expr("interval 10 minutes"))
records = late.select(
    F.col("user").cast("string").alias("key"),
    F.to_json(F.struct("id")).alias("value"),
    F.array(F.struct(F.lit("from").alias("key"), F.col("id").cast("string").cast("binary").alias("value"))).alias("headers"),
    "at", "user", F.lit(7).alias("partition"),
)
"""
)
"""Of the records that it makes, the second step's have a time after the window."""

WRITTEN = {
    "as a stream": (
        "Streaming",
        'records.writeStream.format("kafka").option("topic", "prod.alerts").start()',
    ),
    "by spans": (
        "Batch",
        'records.writeStream.format("kafka").option("topic", "prod.alerts").start()',
    ),
    "with a column for the topic": (
        "Auto",
        'records.withColumn("topic", F.lit("prod.alerts"))'
        '.writeStream.format("kafka").queryName("alerts").start()',
    ),
    "by a function": (
        "Auto",
        "def send(batch, number):\n"
        '    batch.write.format("kafka").option("topic", "prod.alerts").save()\n'
        "records.writeStream.foreachBatch(send).start()",
    ),
    "by a function, with a column for the topic": (
        "Auto",
        "def alerts(batch, number):\n"
        '    batch.withColumn("topic", F.lit("prod.alerts")).write.format("kafka").save()\n'
        "records.writeStream.foreachBatch(alerts).start()",
    ),
}
REFUSED = {
    "records without a value": (
        ("alerts", "at"),
        'records.drop("value").writeStream.format("kafka").option("topic", "alerts").start()',
        "produces records for Kafka without a column value",
    ),
    "records without the time of the output": (
        ("alerts", "at"),
        'records.drop("at").writeStream.format("kafka").option("topic", "alerts").start()',
        "do not have column at, the timestampColumn of output alerts",
    ),
    "a key that would be lost": (
        ("texts", "at"),
        'records.drop("headers").writeStream.format("kafka").option("topic", "texts").start()',
        "the rows have a column key that table lake.default.texts does not have",
    ),
    "a topic that would be lost": (
        ("texts", "at"),
        'records.select("value", "at", F.lit("a").alias("topic")).writeStream.format("kafka").start()',
        "for the topics in its column topic, which the table lake.default.texts",
    ),
    "a table of other rows": (
        ("copies", "at"),
        "def copies(batch, number):\n"
        '    batch.write.format("kafka").option("topic", "copies").save()\n'
        "records.writeStream.foreachBatch(copies).start()",
        "the table lake.default.copies of output copies has no column value",
    ),
    "rows without a time": (
        ("copies", "at"),
        'events.drop("at").writeStream.format("parquet").start("s3://production/copies")',
        "so no row would be in the window",
    ),
}
FILES = (
    'events.writeStream.format("parquet").option("path", "s3://production/copies/")'
    '.partitionBy("user").option("checkpointLocation", "s3://production/state").start()\n'
    'records.writeStream.queryName("alerts").format("kafka").start()\n'
)


def test_records_and_files_become_rows_of_the_outputs_that_their_topics_and_paths_name(
    tmp_path: Path, lake: Catalog
) -> None:
    history = Lake(tmp_path, lake, STEPS)
    lake.create_table("default.alerts", schema=ALERTS)
    lake.create_table("default.texts", schema=TEXTS)
    programs = {
        name: (("alerts", "at"), execution, program)
        for name, (execution, program) in WRITTEN.items()
    }
    programs |= {name: (output, "Auto", program) for name, (output, program, _) in REFUSED.items()}
    settings = []
    for number, ((output, _), execution, program) in enumerate(programs.values()):
        main_file = tmp_path / f"application_{number}.py"
        main_file.write_text(_RECORDS + program + "\n")
        one = history.settings(f"case-{number}", main_file, 1, (output,))
        settings.append(one.model_copy(update={"execution": execution}))
    main_file = tmp_path / "files.py"
    main_file.write_text(_RECORDS + FILES)
    settings.append(history.settings("files", main_file, 1, ("alerts", "copies")))
    for one in settings:
        assign(one, history.header, STEPS)
    outcomes = run_applications(tmp_path, settings)

    by_name = dict(zip(programs, outcomes, strict=False))
    for name, (_, _, words) in REFUSED.items():
        assert by_name[name][:2] == ["Failed", "UnsupportedProgram"], (name, by_name[name])
        assert words in by_name[name][2], (name, by_name[name])
    sent = [_record(row, "prod.alerts") for row in range(ROWS_PER_STEP)]
    for number, name in enumerate(WRITTEN):
        assert by_name[name][0] == "Finished", (name, by_name[name])
        rows = history.result(f"case-{number}", "alerts")
        assert sorted(rows, key=lambda row: row["at"]) == sent, name
    assert outcomes[-1][0] == "Finished", outcomes[-1]
    ids = [row["id"] for row in history.result("files", "copies")]
    assert sorted(ids) == list(range(STEPS * ROWS_PER_STEP))
    assert len(history.result("files", "alerts")) == ROWS_PER_STEP


def _record(row: int, topic: str) -> dict[str, object]:
    return {
        "key": str(row % 3).encode(),
        "value": b'{"id":%d}' % row,
        "topic": topic,
        "partition": 7,
        "headers": [{"key": "from", "value": str(row).encode()}],
        "at": START + STEP + row * timedelta(seconds=10),
    }
