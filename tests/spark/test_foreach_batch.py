"""A program that writes several outputs with ``foreachBatch``: whatever ends its driver, each output
has every batch once.
"""

import signal
from pathlib import Path

import duckdb
import pytest
from drivers import (
    DEADLINE_SECONDS,
    ROWS_PER_STEP,
    Lake,
    assign,
    committed,
    driver,
    status,
    wait_until,
)
from pyiceberg.catalog import Catalog

STEPS = 6
KILLED_IN = 2
"""Batch in which the first attempt is killed after the commit of its first output."""
APPLICATION = f"""
import os, signal
from pathlib import Path
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.getOrCreate()
records = spark.readStream.format("kafka").option("subscribe", "raw-events").load()
events = records.select(F.from_json(F.col("value").cast("string"), "id long, user long, at timestamp").alias("e")).select("e.*")

def write_both(batch, number):
    batch.persist()
    print("batch", number, flush=True)
    batch.where("user = 0").write.format("iceberg").mode("append").save("lake.default.copies")
    if batch.count() > 0 and number != 1:
        counts = batch.groupBy(F.window("at", "10 minutes").start.alias("start"), "user").agg(F.count("*").alias("n"))
        counts.writeTo("default.counts").using("iceberg").append()
    batch.where("user = 1").write.mode("append").saveAsTable("default.copies")
    batch.unpersist()

from backfill.runtime.switching import batch_function
commit = batch_function._Branch.commit

def commit_then_die(self, number, *args, **kwargs):
    commit(self, number, *args, **kwargs)
    mark = Path("killed")
    if number == {KILLED_IN} and not mark.exists():
        mark.write_text(self.output.name)
        os.kill(os.getpid(), signal.SIGKILL)

batch_function._Branch.commit = commit_then_die
events.writeStream.foreachBatch(write_both).option("checkpointLocation", "/production/x").start().awaitTermination()
"""


@pytest.mark.slow
def test_a_driver_that_is_killed_between_the_commits_of_two_outputs_leaves_each_batch_once_in_both(
    tmp_path: Path, lake: Catalog
) -> None:
    history = Lake(tmp_path, lake, STEPS)
    program = tmp_path / "app.py"
    program.write_text(APPLICATION)
    outputs = ("copies", "counts", "spare")
    lake.create_table("default.spare", schema=lake.load_table("default.copies").schema())

    first = history.settings("both", program, 1, outputs)
    assign(first, history.header, STEPS)
    with driver(first) as process:
        assert process.wait(DEADLINE_SECONDS) == -signal.SIGKILL
    assert (tmp_path / "both" / "killed").read_text() == "copies"

    second = history.settings("both", program, 2, outputs)
    assign(second, history.header, 4)
    with driver(second) as process:
        wait_until(lambda: committed(second) >= 4, process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_SECONDS) == 0
    assert status(second).phase == "Stopped"

    third = history.settings("both", program, 3, outputs)
    assign(third, history.header, STEPS)
    with driver(third) as process:
        assert process.wait(DEADLINE_SECONDS) == 0
    end = status(third)
    assert end.phase == "Finished"
    assert [(query.name, query.output, query.open_at_end) for query in end.queries] == [
        ("write_both", output, 0) for output in outputs
    ]
    assert {query.sources[0].rows for query in end.queries} == {STEPS * ROWS_PER_STEP}
    log = (tmp_path / "both" / "driver.log").read_text()
    assert [log.count(f"batch {number}\n") for number in range(STEPS + 1)] == [
        2 if number == KILLED_IN else 1 for number in range(STEPS + 1)
    ], "also the flush is a batch"

    _compare(
        lake,
        "both",
        {
            "copies": "select * from events where user < 2",
            "counts": 'select time_bucket(interval 10 minutes, "at") as start, user, count(*) as n'
            " from events where id // 60 != 1 group by all",
            "spare": "select * from events where false",
        },
    )


MERGING = """
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.getOrCreate()
records = spark.readStream.format("kafka").option("subscribe", "raw-events").load()
events = records.select(F.from_json(F.col("value").cast("string"), "id long, user long, at timestamp").alias("e")).select("e.*")
counts = events.withWatermark("at", "1 minute").groupBy(F.window("at", "1 hour"), "user").agg(F.count("*").alias("n"))

def merge(batch, number):
    batch = batch.select("window.start", "user", "n")
    if number % 2:
        batch.createOrReplaceTempView("updates")
        batch.sparkSession.sql(
            "MERGE INTO default.counts t USING updates s ON t.start = s.start AND t.user = s.user"
            " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
    else:
        same = (F.col("counts.start") == F.col("s.start")) & F.expr("counts.user = s.user")
        merging = batch.alias("s").mergeInto("lake.default.counts", same)
        merging.whenMatched().updateAll().whenNotMatched().insertAll().merge()

counts.writeStream.outputMode("update").foreachBatch(merge).start().awaitTermination()
"""


def test_a_function_that_merges_by_keys_leaves_the_newest_row_of_each(
    tmp_path: Path, lake: Catalog
) -> None:
    history = Lake(tmp_path, lake, STEPS)
    program = tmp_path / "app.py"
    program.write_text(MERGING)
    settings = history.settings("merged", program, 1, ("counts",))
    (counts,) = settings.outputs
    keyed = counts.model_copy(update={"keys": ("start", "user")})
    settings = settings.model_copy(update={"outputs": (keyed,)})
    assign(settings, history.header, STEPS)
    with driver(settings) as process:
        assert process.wait(DEADLINE_SECONDS) == 0
    end = status(settings)
    assert end.phase == "Finished"
    assert "timestampColumn" in end.queries[0].open_unknown, "its function makes that column"
    _compare(
        lake,
        "merged",
        {
            "counts": 'select time_bucket(interval 1 hour, "at") as start, user, count(*) as n'
            " from events group by all"
        },
    )


def _compare(lake: Catalog, backfill: str, wanted: dict[str, str]) -> None:
    """Compares the results of a Backfill with what DuckDB makes of the events."""
    events = lake.load_table("default.events").scan().to_arrow()
    for output, query in wanted.items():
        table = lake.load_table(f"default.{output}")
        head = table.snapshot_by_name(f"backfill/{backfill}")
        assert head is not None, f"{output} has a result, be it without rows"
        connection = duckdb.connect()
        connection.register("events", events)
        connection.register("branch", table.scan(snapshot_id=head.snapshot_id).to_arrow())
        columns = ", ".join(f'"{field.name}"' for field in table.schema().fields)
        found = connection.sql(
            f"with wanted as (select {columns} from ({query})), given as (select {columns} from branch)"
            " (from wanted except all from given) union all (from given except all from wanted)"
        ).fetchall()
        assert found == [], output
